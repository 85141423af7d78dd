"""The kind `wrong-meta` of the agreement oracle: what a graph says of its values (`meta["val"]`) must be so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.recognition import ExpectedFailure
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Call, NodeDifference, Runner, Stage
from ddefuzz.instrument.truth import holds
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.blame import OracleInput, guard_to_blame, reads_strides_of_nothing
from ddefuzz.oracles.oracle import KindRow, Script
from ddefuzz.program.code import marks_of, module_of, values_of
from ddefuzz.program.sizes import MARKED, at_size

KIND: Final[Kind] = "wrong-meta"


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the first call in which the captured graph says something wrong of a value.

    A graph with a size that is replaced by what it is not in this call is for the specialization oracle. Strides of an
    empty tensor say nothing.
    """
    for call in seen.observation.calls:
        node = call.node
        if node is not None and not _assumes(seen, call) and not reads_strides_of_nothing(seen, call):
            evidence = f"at size {call.size}: {node.what} of {node.op}: the graph says {node.how}"
            return (Failure(KIND, seen.observation, evidence, call.size),)
    return ()


def _assumes(seen: OracleInput, call: Call) -> bool:
    return any(holds(one.text, dict(call.symbols)) is False for one in seen.observation.constraints)


def located_at(call: Call, anchor: str = "") -> Location | None:
    """The fake kernel that says something wrong in a call; its op, if the kernel is not in Python. `anchor` stands for
    what it says.
    """
    node = call.node
    if node is None:
        return None
    site = Site("Python", node.file, node.function) if node.file else Site("op", None, node.op)
    return Location(site, None, anchor or f"{node.what} of {node.op}")


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The guard whose true value makes the graph right; else the fake kernel."""
    call = next(call for call in seen.observation.calls if call.size == failure.size)
    guard = guard_to_blame(seen, call, lambda _, again: again.node is not None, runner)
    location = guard or located_at(call)
    assert location is not None
    return location


def expected(classified: Classification, _same_program: bool) -> ExpectedFailure:
    """The facts of the node that shows the failure."""
    node, size = _shown(classified.failure)
    return ExpectedFailure("by_call", {"node": node.target, "what": node.what}, size=size)


def _shown(failure: Failure) -> tuple[NodeDifference, str]:
    for call in failure.observation.calls:
        if call.size == failure.size and call.node is not None:
            return call.node, call.size
    raise InputError("found no node in its stored failure, expected the one of which its graph says something wrong")


_EXPORTED: Final = """
def graphs():
    from torch.export import export

    program = export(Captured(), $example, strict=$strict)
    $more
    return {program.module(): $called}
"""

_COMPILED: Final = """
def graphs():
    from torch._dynamo import config
    from torch._dynamo.backends.registry import lookup_backend

    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    given = {}

    def noted(graph, _):
        def run(*args):
            given[graph] = args
            return graph(*args)

        return run

    def lowered(graph, inputs):
        return lookup_backend("aot_eager")(graph, inputs, fw_compiler=noted)

    compiled = torch.compile(Captured(), backend=$backend, fullgraph=True)
    compiled(*$example)
    compiled(*$called)
    return given
"""

READ: Final[Mapping[Stage, str]] = {
    "export": _EXPORTED.replace("$strict", "False").replace("    $more\n", ""),
    "export-strict": _EXPORTED.replace("$strict", "True").replace("    $more\n", ""),
    "compile": _COMPILED,
    "aot": _COMPILED,
    "decompose": _EXPORTED.replace("$strict", "False").replace("$more", "program = program.run_decompositions()"),
    "reexport": _EXPORTED.replace("$strict", "False").replace(
        "$more", "program = export(program.module(), $example, strict=False)"
    ),
}
"""How a script gets the graphs of each stage that is judged, with the arguments of the call."""

_SCRIPT: Final = Script(
    verdicts=(
        "the captured graph says of a value what is not so, as described at EXPECTED",
        ": the graph is right about each value",
        ": the graph is wrong about another value, or the program is not captured",
        "eager PyTorch raises for the program, or this torch has no such op",
    ),
    body="""\
$subject

def call_inputs():
    \"""The inputs of the call that shows the difference. $what\"""
    return ($values)


def marked(inputs):
    from torch._dynamo.decorators import mark_unbacked

    $marks
    return inputs

$capture

# The rest only compares the values.

EXPECTED = $expected

$functions
""",
    attempt="""\
Captured()(*call_inputs())  # not judged if this torch does not have an op
verdict = "fails otherwise"
for graph, args in graphs().items():
    reader = Reader(graph)
    reader.run(*args)
    if reader.wrong is not None:
        node, _, unlike = reader.wrong
        found = {"node": target_of(node), "what": unlike.what}
        verdict = "shows" if found == EXPECTED else verdict
        print(f"{node.format_node()}: the graph says {unlike.how}", file=sys.stderr)
if found is None:
    verdict = "passes\"""",
)


def script(text: str, stage: Stage, failure: Failure) -> Script:
    """The script captures the program, runs its graph node by node, and compares the values."""
    (node, size), program = _shown(failure), parse(text, "<program>").program
    if stage not in READ:
        raise InputError(f"found the stage {stage}, expected one of {', '.join(READ)}")
    resized, kept = at_size(program, stage, size)
    marks = marks_of(program) if stage in MARKED else []
    inputs = {"example": "marked(make_inputs())", "called": "marked(call_inputs())"}
    metas = Path(__file__).parents[1] / "execute" / "metas.py"
    return _SCRIPT._replace(
        expected={"node": node.target, "what": node.what},
        copied=metas.read_text(encoding="utf-8"),
        parts={
            "subject": module_of(program, stage, "The inputs with which it is captured."),
            "values": "".join(f"{value}, " for value in values_of(resized, stage, kept)),
            "what": f"Their data size is `{size}`.",
            "marks": "\n    ".join(marks),
            "capture": Template(READ[stage]).substitute(inputs, backend="lowered" if node.lowered else "noted"),
        },
    )


KINDS: Final[Mapping[Kind, KindRow]] = {
    KIND: KindRow(
        "the captured graph says of one of its values what is not so: its shape, dtype, strides or memory",
        "{site} says something wrong of a value {evidence}",
        locate,
        expected,
        severity="wrong layout",
        script=script,
    ),
}
