"""The relations oracle: a program that means the same as another is captured alike, and computes the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.escape import one_line
from ddefuzz.execute.protocol import Runner, Stage, What
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import KindRow, Oracle, OwnStage, Script, measured_in
from ddefuzz.program import equivalents
from ddefuzz.program.code import (
    body_of,
    fresh,
    function_of,
    made_of,
    masks_of,
    module_of,
    parameters_of,
    symbols_of,
    tuple_of,
    values_of,
)
from ddefuzz.program.equivalents import MakeVariants
from ddefuzz.program.model import Program
from ddefuzz.program.sizes import MARKED, CallSize, at_size, static

Aspect: TypeAlias = Literal["verdict", "result", "assertions"]

Verdicts: TypeAlias = Literal["same", "captured", "if-original"]
"""
same         both are captured, or both fail at the same place
captured     both are captured, or none
if-original  the variant is captured if the original is
"""

Results: TypeAlias = Literal["same", "if-both", "in-bounds"]
"""
same       both return the same, or both raise
if-both    the same, where both return
in-bounds  the variant raises at sizes out of its bounds; at others it returns the same where the original returns
"""

Assertions: TypeAlias = Literal["same", "no-fewer", "any"]
"""How many run-time assertions each form of the variant has, compared with the original's."""

SIZES: Final[tuple[CallSize, ...]] = ("example", "0", "1", "2", "equal", "7")
"""The data sizes at which the two are called."""

OUT_OF_BOUNDS: Final[CallSize] = str(equivalents.MOST + 1)

LAYOUT: Final[tuple[What, ...]] = ("strides",)


class Relation(NamedTuple):
    """What must be equal of a program and its variants, in each of the captures.

    `stage` is the name of the stage that compares them. `changes` says in words what is done to the program. The types
    of `verdict`, `result` and `assertions` say what they mean. `ignores` are differences of results that do not count.
    With `in_order`, torch makes the symbols of inputs in the order of the inputs, not of their use.
    """

    stage: Stage
    changes: str
    make: MakeVariants
    verdict: Verdicts = "same"
    result: Results = "same"
    assertions: Assertions = "same"
    captures: tuple[Stage, ...] = ("aot", "export")
    ignores: tuple[What, ...] = ()
    in_order: bool = False


RELATIONS: Final[tuple[Relation, ...]] = (
    Relation("under-backed", "its dims are backed", equivalents.backed, "if-original", "if-both", "any"),
    Relation("under-static", "its dims are static", equivalents.made_static, "if-original", "if-both", "any"),
    Relation("under-hints", "its dims get hints", equivalents.hinted, captures=("aot", "inductor")),
    Relation(
        "under-bounds",
        "its dims get a least and a greatest size",
        equivalents.bounded,
        "if-original",
        "in-bounds",
        "any",
        captures=("aot",),
    ),
    Relation("under-reordering", "independent statements change places", equivalents.reordered, "captured"),
    Relation("under-dead-code", "comparisons that nothing reads are added", equivalents.with_dead_code),
    Relation(
        "under-dead-symbols",
        "unbacked sizes that nothing reads are added",
        equivalents.with_dead_symbols,
        assertions="no-fewer",
    ),
    Relation("under-renaming", "inputs, results and symbols get other names", equivalents.renamed),
    Relation("under-input-order", "the inputs are in the reverse order", equivalents.turned, in_order=True),
    Relation(
        "under-identities",
        "tensors are replaced by equal ones",
        equivalents.with_identities,
        "if-original",
        ignores=LAYOUT,
    ),
    Relation(
        "under-row-order",
        "the rows of a row-wise program change places",
        equivalents.permuted,
        "if-original",
        ignores=LAYOUT,
    ),
)
"""All relations. A static or backed capture decides guards that an unbacked one asserts, so its assertions are not
compared, and it refuses sizes that an unbacked one takes. A bound may make an assertion true. A copy has strides of its
own, and what torch learns of them may decide a guard; so may a flip.
"""


def kind_of(relation: Relation) -> Kind:
    """The kind of its findings."""
    return f"differs-{relation.stage}"


def relation_of(stage: Stage) -> Relation:
    """The relation that a stage compares. Raises `InputError` for another stage."""
    for relation in RELATIONS:
        if relation.stage == stage:
            return relation
    raise InputError(f"found the stage {stage!r}, expected one of {', '.join(one.stage for one in RELATIONS)}")


class RelationDifference(msgspec.Struct, frozen=True, tag="relation"):
    """A difference between a program and a variant, which is a program's text, in a capture.

    `how` says it in one line. `site` and `anchor` are those of the failed capture, if one of the two failed; else the
    op after which they differ, and in what they do. `size` is that of the calls that differ, `form` what was done,
    `expected` what a script finds.
    `inputs`, `symbols`, `marks` and `backed` are those of the variant (`equivalents.Variant`).
    """

    capture: Stage
    aspect: Aspect
    how: str
    site: Site
    anchor: str
    form: str
    variant: str
    expected: dict[str, str] = {}
    size: CallSize | None = None
    inputs: tuple[int, ...] = ()
    symbols: dict[str, str] = {}
    marks: dict[str, dict[str, int]] = {}
    backed: bool = False


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the difference that the stage found."""
    difference = seen.observation.measurement(RelationDifference)
    if difference is None:
        return ()
    return (Failure(kind_of(relation_of(seen.observation.stage)), seen.observation, difference.how, difference.size),)


def locate(failure: Failure, _seen: OracleInput, _runner: Runner) -> Location:
    """The place of the failed capture, if one of the two failed; else the op after which they differ."""
    difference = measured_in(failure, RelationDifference)
    return Location(difference.site, None, difference.anchor)


def facts(failure: Failure) -> Iterator[tuple[str, str]]:
    """What was compared, and the variant."""
    difference = measured_in(failure, RelationDifference)
    yield "compared", f"{difference.aspect} of {difference.capture}"
    yield "variant", difference.form
    marks = (f"{symbol}: {name}={value}" for symbol, given in difference.marks.items() for name, value in given.items())
    yield "marks", ", ".join(marks)
    yield "its program", difference.variant


_CAPTURED: Final = {
    "aot": """\
def in_order(module):
    \"""The module, with its inputs used in order: so torch makes their symbols.\"""

    def call(*args):
        return module(*args) if [arg.dim() for arg in args] else module()

    return call


def captured(module, inputs, shapes):
    \"""The compiled module, and how many assertions each of its graphs has.\"""
    from torch._dynamo import config
    from torch._dynamo.backends.debugging import aot_eager, boxed_nop

    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    torch._dynamo.reset()
    graphs = []

    def lowered(graph, inputs):
        graphs.append(graph)
        return boxed_nop(graph, inputs)

    def backend(graph, inputs):
        graphs.append(graph)
        return aot_eager(graph, inputs, fw_compiler=lowered)

    compiled = torch.compile(module, backend=backend, fullgraph=True)
    try:
        compiled(*inputs())
    except Exception:
        if len(graphs) < 2:  # else the captured program raises, as the call shows
            raise
    return compiled, [asserted(graph) for graph in graphs[:2]]
""",
    "export": """\
def captured(module, inputs, shapes):
    \"""The exported module, and how many assertions its graph has.\"""
    program = torch.export.export(module, inputs(), dynamic_shapes=shapes, strict=False)
    return program.module(), [asserted(program.graph_module)]
""",
}

_SCRIPT: Final = Script(
    verdicts=(
        "the program and its variant differ as described at EXPECTED",
        ": they do not differ",
        ": they differ otherwise",
        "eager PyTorch raises for one of the two, or this torch lacks what captures them",
    ),
    body="""\
$subject

def marked_inputs():
    \"""The inputs with which the program is captured.\"""
    inputs = make_inputs()
    $marks
    return inputs


def call_inputs():
    \"""The inputs with which what was captured is called.\"""
    inputs = ($called)
    $marks
    return inputs


# The variant: $form.

$variant

class CapturedVariant(torch.nn.Module):
$made    def forward($parameters):
        $body


def variant_inputs():
    inputs = ($values)
    $variant_marks
    return inputs


def variant_call_inputs():
    inputs = ($variant_called)
    $variant_marks
    return inputs


SHAPES = $shapes

# The rest only compares the two.

EXPECTED = $expected


def asserted(graph):
    return sum(node.target is torch.ops.aten._assert_scalar.default for node in graph.graph.nodes)


$captured

$functions

def attempt(module, inputs, shapes=None):
    \"""What was captured, the number of assertions, and how the capture ended.\"""
    try:
        return (*captured(module, inputs, shapes), "captured")
    except Exception as error:
        while (error.__cause__ or error.__context__) is not None:
            error = error.__cause__ or error.__context__
        return None, [], " ".join([type(error).__name__, *words(str(error).partition("\\n")[0])])


def compare():
    \"""In what the two differ.\"""
    one, before, ending = attempt(Captured(), marked_inputs)
    other, after, other_ending = attempt(CapturedVariant(), variant_inputs, SHAPES)
    if one is None or other is None:
        kinds = [text.partition(" ")[0] for text in (ending, other_ending)]
        return {"original": kinds[0], "variant": kinds[1], "alike": str(ending == other_ending)}
    if "assertions" in EXPECTED:
        fewer = any(new < old for old, new in zip(before, after))
        return {"assertions": "fewer" if fewer else "as many" if before == after else "more"}
    calls = [ended(one, call_inputs(), $order), ended(other, variant_call_inputs(), $order)]
    ways = ["returns" if call.error is None else "raises" for call in calls]
    if "taken" in EXPECTED:
        return {"taken": $size, "variant": ways[1]}
    found = {"original": ways[0], "variant": ways[1]}
    if ways == ["returns", "returns"]:
        places = $places
        inputs = tuple(value for _, value in sorted(zip(places, calls[1].inputs), key=lambda pair: pair[0]))
        # Gradients are compared by ddefuzz alone if the inputs are in another order.
        calls = [call._replace(gradients=()) for call in calls] if places != sorted(places) else calls
        unequal = compared(calls[0], calls[1]._replace(inputs=inputs))
        wrong = [item.what for item in unequal if item.what not in $ignored]
        found = {**found, "differs": wrong[0]} if wrong else found
    return found
""",
    attempt="""\
Captured()(*make_inputs())
CapturedVariant()(*variant_inputs())
verdict = "fails otherwise"
found = compare()
if found == EXPECTED:
    verdict = "shows"
elif $passes:
    verdict = "passes\"""",
)


def script(text: str, _stage: Stage, failure: Failure) -> Script:
    """The script captures a program and its variant, calls both, and compares them."""
    difference = measured_in(failure, RelationDifference)
    relation = relation_of(failure.observation.stage)
    program, variant = (parse(one, "<program>").program for one in (text, difference.variant))
    capture, size = difference.capture, difference.size or "example"
    if capture not in _CAPTURED:
        raise InputError(f"found a difference in {capture}, expected one in {' or '.join(_CAPTURED)}")
    # The dims of a backed variant are no masks.
    bare = static(variant) if difference.backed else variant
    places = list(difference.inputs or range(len(program.inputs)))

    def values(size: CallSize) -> tuple[str, str]:
        """The inputs of the program and of the variant, as code."""
        resized, sizes = at_size(program, capture, size)
        given = values_of(resized, capture, sizes)
        renamed = {difference.symbols.get(symbol, symbol): number for symbol, number in sizes.items()}
        theirs = [*(given[at] for at in places), *masks_of(bare, capture, renamed)]
        return tuple_of(given)[1:-1], tuple_of(theirs)[1:-1]

    *checks, returned = body_of(bare, capture)
    marks = _marks(program, capture), _marks(variant, capture, difference.marks, is_backed=difference.backed)
    places_of = symbols_of(variant) if difference.backed and capture == "export" else {}
    shapes = [
        {dim: "AUTO" for spots in places_of.values() for at, dim in spots if at == number}
        for number in range(len(variant.inputs))
    ]
    return _SCRIPT._replace(
        expected=difference.expected,
        copied=(Path(__file__).parents[1] / "execute" / "comparison.py").read_text(encoding="utf-8"),
        parts={
            "subject": module_of(program, capture),
            "marks": marks[0],
            "called": values(size)[0],
            "form": one_line(difference.form),
            "variant": function_of(variant).replace("def program(", "def variant(", 1),
            "made": "".join(f"    {line}\n" for line in made_of(variant)),
            "parameters": ", ".join([fresh("self", bare), *parameters_of(bare, capture)]),
            "body": "\n        ".join([*checks, returned.replace("return program(", "return variant(", 1)]),
            "values": values("example")[1],
            "variant_marks": marks[1],
            "variant_called": values(size)[1],
            "shapes": repr(tuple(shapes)).replace("'AUTO'", "torch.export.Dim.AUTO") if places_of else "None",
            "captured": _CAPTURED[capture].replace(
                "compile(module", "compile(" + ("in_order(module)" if relation.in_order else "module")
            ),
            "order": int(capture == "aot"),
            "places": repr(places),
            "size": repr(size),
            "ignored": repr(relation.ignores),
            "passes": _passes(relation, difference),
        },
    )


def snippet(text: str, stage: Stage, failure: Failure) -> str:
    """The lines that capture a program and its variant, and call both. Raises `InputError` as `script` does."""
    parts, difference = script(text, stage, failure).parts, measured_in(failure, RelationDifference)
    marks = f"{parts['marks']}\n{parts['variant_marks']}".splitlines()
    lines = [
        "from __future__ import annotations",
        "import torch",
        *dict.fromkeys(line for line in marks if line.startswith("from ")),
        "",
        f"{parts['subject']}",
        f"{parts['variant']}",
        "",
        "class CapturedVariant(torch.nn.Module):",
        *f"{parts['made']}".splitlines(),
        f"    def forward({parts['parameters']}):",
        f"        {parts['body']}",
        "",
        "torch._dynamo.config.capture_scalar_outputs = True",
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True",
        f"# {one_line(failure.evidence)}",
    ]
    sides = (
        ("Captured()", "make_inputs()", parts["marks"], parts["called"], "None"),
        ("CapturedVariant()", f"({parts['values']})", parts["variant_marks"], parts["variant_called"], parts["shapes"]),
    )
    for module, inputs, marking, called, shapes in sides:
        marked = [line.strip() for line in f"{marking}".splitlines() if "(" in line]
        is_called = difference.aspect == "result"
        lines += [
            f"inputs = {inputs}",
            *marked,
            _CAPTURE_LINE[difference.capture].format(module=module, shapes=shapes),
            *([f"inputs = ({called})", *marked, "print(captured(*inputs))"] if is_called else ["print(captured)"]),
        ]
    return "\n".join(lines) + "\n"


_CAPTURE_LINE: Final = {
    "aot": 'captured = torch.compile({module}, backend="aot_eager", fullgraph=True)\ncaptured(*inputs)',
    "export": "captured = torch.export.export({module}, inputs, dynamic_shapes={shapes}, strict=False).module()",
}


def _passes(relation: Relation, difference: RelationDifference) -> str:
    """The condition on what a script finds, as code, by which the two do not differ."""
    if difference.aspect == "assertions":
        right = ("as many", "more") if relation.assertions == "no-fewer" else ("as many",)
        return f'found.get("assertions") in {right!r}'
    if difference.expected.get("taken"):
        return 'found.get("variant") == "raises"'
    return 'found.get("original") == found.get("variant") and found.get("alike") != "False" and "differs" not in found'


def _marks(
    program: Program,
    capture: Stage,
    more: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    *,
    is_backed: bool = False,
) -> str:
    """The lines that mark the dims of `inputs`."""
    if capture not in MARKED or not symbols_of(program):
        return ""
    lines = ["from torch._dynamo.decorators import mark_unbacked, maybe_mark_dynamic", ""]
    for symbol, places in symbols_of(program).items():
        given = {"shape_id": repr(symbol)} if len(places) > 1 else {}
        given |= {name: repr(value) for name, value in more.get(symbol, {}).items()}
        words = "".join(f", {name}={value}" for name, value in given.items())
        lines += [
            f"maybe_mark_dynamic(inputs[{at}], {dim})" if is_backed else f"mark_unbacked(inputs[{at}], {dim}{words})"
            for at, dim in places
        ]
    return "\n    ".join(lines)


KINDS: Mapping[Kind, KindRow] = {
    kind_of(relation): KindRow(
        f"it is captured differently, or computes something else, if {relation.changes}",
        "{site} makes a difference: {evidence}",
        locate,
        script=script,
        snippet=snippet,
    )
    for relation in RELATIONS
}

ORACLE = Oracle(
    "relations",
    "a program that means the same is captured differently",
    KINDS,
    judge,
    stages=tuple(
        OwnStage(
            relation.stage,
            run="ddefuzz.oracles.relations_run:run",
            label=f"{', '.join(relation.captures)} if {relation.changes}",
            every=47,
            turn=7,
            beside=(*relation.captures, "compile") if "aot" in relation.captures else relation.captures,
            slower=4,
            shown_by=relation.captures[0],
            hint="# Without the variant: only the code of inductor differs.",
        )
        for relation in RELATIONS
    ),
    measures=RelationDifference,
    facts=facts,
)
