"""The texts of a finding: its stand-alone script, its snippet, and what is made of that for PyTorch's developers.

A snippet is a few lines with imports, the function, its inputs, and one export or compile. If the captured program is
wrong when it is called, the last line compares it with eager, or is the call that refuses. Nothing is filed by ddefuzz.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from itertools import groupby
from textwrap import indent
from typing import Final, NamedTuple

import msgspec

from ddefuzz import syntax
from ddefuzz.classify.anchor import question
from ddefuzz.classify.cause import MEANINGS, PROOFS
from ddefuzz.classify.recognition import ExpectedFailure
from ddefuzz.errors import InputError
from ddefuzz.escape import (
    html_comment,
    markdown_block,
    markdown_code,
    markdown_table,
    markdown_text,
    one_line,
    python_comment,
    python_docstring,
)
from ddefuzz.execute.protocol import CAPTURE_STAGES, COMPILES, NO_VALUES, RETRACES, ProgramSubject, Stage
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.capture import IN_CALL
from ddefuzz.oracles.oracle import Script
from ddefuzz.oracles.table import ORACLES, oracle_of, own_stage, row_of, stages, stored
from ddefuzz.program.code import (
    body_of,
    callable_of,
    class_of,
    made_of,
    marks_of,
    masks_of,
    parameters_of,
    setup_of,
    short_value,
    symbols_of,
    tuple_of,
)
from ddefuzz.program.model import Program, functions_in
from ddefuzz.program.options import marks_in
from ddefuzz.program.sizes import COMPILED, MARKED, CallSize, at_size
from ddefuzz.repro.captures import CALLED, CAPTURES
from ddefuzz.repro.script import call_script, emitted, quoted, repro_script

LABEL: Final = "topic: fuzzer"  # the label that PyTorch has for issues that fuzzers found

OWNERS: Final[dict[Stage, str]] = {
    "export": "oncall: export",
    "export-strict": "oncall: export",
    "compile": "module: dynamo",
    "aot": "module: aotdispatch",
    "inductor": "module: inductor",
    **{stage: row.owners for stage, row in RETRACES.items()},
}
"""The label of a test file's owners (`tools/linter/adapters/testowners_linter.py` of torch), by torch's stages."""


class Parts(NamedTuple):
    """A snippet in parts: imports, the function or class, and the rest."""

    imports: tuple[str, ...]
    definition: str
    body: tuple[str, ...]


def issue(finding: Finding, environment: str = "", in_versions: str = "") -> str:
    """An issue in the form that PyTorch asks for (`.github/ISSUE_TEMPLATE/bug-report.yml`). `environment` is the output
    of `python -m torch.utils.collect_env`, `in_versions` what the snippet does under other versions of torch.
    """
    site = markdown_code(str(finding.site)) + ("" if finding.site.module is None else " (Python)")
    asked = question(finding.expression)
    meaning = MEANINGS[finding.cause]
    called = f"The call site is {site}" + (
        f", which evaluates {markdown_code(asked)} on an unbacked size." if asked else "."
    )
    lines = [
        f"<!-- title: {html_comment(finding.title)} -->",
        f"<!-- label: {LABEL} -->",
        "",
        "### 🐛 Describe the bug",
        "",
        _problem(finding),
        "",
        markdown_block(_snippet(finding), "python"),
        "",
        *_error(finding),
        called if _is_failed_capture(finding) else _blame(finding, site),
        f"Cause: {meaning.meaning}. What to change: {meaning.fix.removeprefix('PyTorch: ')}.",
        *_experiment(finding),
        "",
        *_control(finding),
        *_stages(finding),
        *([f"This program by version of torch: {markdown_text(in_versions)}.", ""] if in_versions else []),
        f"Seen under torch {markdown_text(', '.join(finding.torch_versions))}. "
        f"Found by ddefuzz ({markdown_text(finding.id)}).",
        "",
        "### Versions",
        "",
        markdown_block(environment)
        if environment
        else "(paste the output of `python -m torch.utils.collect_env`, or run `ddefuzz report ID --env`)",
    ]
    return "\n".join(lines) + "\n"


def _is_failed_capture(finding: Finding) -> bool:
    """Whether the capture raises. Differences between semantics do not count."""
    row = row_of(finding.kind)
    return row.cause is None and not row.deadly


def _problem(finding: Finding) -> str:
    """The sentence before the snippet: for a failed capture where it fails, for any other kind its meaning."""
    own = {stage: own_stage(stage) for stage in finding.stages}
    stages = markdown_text(", ".join(stage if row is None else row.label for stage, row in own.items()))
    if _is_failed_capture(finding):
        return f"Capturing this program fails in {stages}:"
    meaning = row_of(finding.kind).meaning
    text = meaning if meaning.startswith("torch.") else meaning[:1].upper() + meaning[1:]
    return f"{text} (seen in {stages}):"


def _blame(finding: Finding, site: str) -> str:
    """The sentence about the site that the oracle's kind has, with the whole evidence."""
    title, failure = row_of(finding.kind).title, finding.evidence
    if failure is None or not isinstance(title, str):
        return f"The call site is {site}."
    text = title.format(
        site=site,
        anchor=markdown_text(finding.anchor),
        stage=markdown_text(failure.observation.stage),
        evidence=markdown_text(failure.evidence),
    )
    return f"{text.rstrip('.')}."


def _snippet(finding: Finding) -> str:
    """The lines that show the failure. If only the captured graph shows it, the lines that capture the program."""
    try:
        if own_script(finding, finding.stage) is None:
            expected_of(finding)
    except InputError:
        return capture_snippet(finding)
    return finding_snippet(finding)


def _error(finding: Finding) -> list[str]:
    exceptions = finding.evidence.observation.exceptions if finding.evidence is not None else ()
    if not exceptions:
        return []
    first = exceptions[0]
    message = first.message.strip().split("\n\n")[0].splitlines()
    text = "\n".join([f"{first.type}: {message[0] if message else ''}", *message[1:6]])
    return ["Error:", "", markdown_block(text), ""]


def _experiment(finding: Finding) -> list[str]:
    answers = finding.answers
    proof = next((one for one in PROOFS if answers is not None and one.verdict == answers.verdict), None)
    if answers is None or proof is None:
        return []
    sentence = f"An experiment gave this guard each answer: {proof.why} (by {answers.extent})."
    patch = answers.fitting_patch(finding.expression)
    return (
        [sentence]
        if patch is None
        else [sentence, f"With {markdown_code(patch.code)} there, of the programs with this failure: {patch.kept}."]
    )


def _control(finding: Finding) -> list[str]:
    if finding.control is None or finding.control.is_empty:
        return []
    return [finding.control.sentence(is_failed_capture=_is_failed_capture(finding)), ""]


def _stages(finding: Finding) -> list[str]:
    if not finding.verdicts or not (_is_failed_capture(finding) or oracle_of(finding.kind).compares):
        return []
    rows = [(markdown_text(stage), markdown_text(verdict)) for stage, verdict in finding.verdicts.items()]
    return [markdown_table(("capture", "explicit unbacked semantics compared with size-oblivious"), rows), ""]


def unit_test(finding: Finding) -> str:
    """A test in PyTorch's style, expected to fail until the finding is fixed. Raises `InputError` if none shows it."""
    owners = OWNERS | {stage.name: stage.owners for oracle in ORACLES for stage in oracle.stages if stage.owners}
    if finding.stage not in owners:
        raise InputError(f"{finding.id}: found the stage {finding.stage}, expected one of {', '.join(owners)}")
    parts = parts_of(finding_snippet(finding))
    name = _words(finding, "_").lower()
    imports = sorted({*parts.imports, "import torch"} - {"import torch"})
    lines = [
        f'# Owner(s): ["{owners[finding.stage]}"]',
        "",
        "import unittest",
        "",
        "import torch",
        *imports,
        "from torch.testing._internal.common_utils import run_tests, TestCase",
        "",
        "",
        f"class Test{_words(finding, '').replace('_', '')}(TestCase):",
        f"    @unittest.expectedFailure  {python_comment(finding.title)}",
        f"    def test_{name}(self):",
        indent(parts.definition, " " * 8),
        "",
        *(indent(line, " " * 8) for line in parts.body),
        "",
        "",
        'if __name__ == "__main__":',
        "    run_tests()",
    ]
    return "\n".join(lines) + "\n"


def exportdb_example(finding: Finding) -> str:
    """A file for `torch/_export/db/examples/`. Raises `InputError` if export does not fail to capture the program."""
    if not _is_failed_capture(finding):
        raise InputError(f"{finding.id}: found the kind {finding.kind}, expected a failed export for ExportDB")
    if "export" not in finding.stages:
        raise InputError(
            f"{finding.id}: found a finding that export does not show, expected one of export for ExportDB"
        )
    parts = parts_of(finding_snippet(finding, "export"))
    name = re.sub("^(?=[0-9])", "Op", _words(finding, ""))
    inputs = next(line for line in parts.body if line.startswith("inputs = "))
    definition = parts.definition.replace("class Program(", f"class {name}(", 1)
    head, _, rest = definition.partition("\n")
    lines = [
        "# mypy: allow-untyped-defs",
        "import torch",
        "",
        "from torch._export.db.case import SupportLevel",
        "",
        "",
        head,
        indent(python_docstring(f"\n{one_line(finding.title)}\n"), "    "),
        "",
        rest,
        "",
        "",
        inputs.replace("inputs = ", "example_args = ", 1),
        'tags = {"torch.dynamic-shape"}',
        f"model = {name}()",
        "_support_level = SupportLevel.NOT_SUPPORTED_YET",
    ]
    return "\n".join(lines) + "\n"


def parts_of(snippet: str) -> Parts:
    """The parts of a snippet, each statement as it is written."""
    imports, definitions, body = [], [], []
    for node in syntax.parse(snippet).body:
        text = ast.get_source_segment(snippet, node)
        assert text is not None
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(text)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions.append(text)
        else:
            body.append(text)
    return Parts(tuple(imports), "\n\n".join(definitions), tuple(body))


def _words(finding: Finding, between: str) -> str:
    """A name in Python for the finding: its op, and that a size is unbacked; without one, the kind."""
    op = (finding.shown_ops or (str(finding.site),))[0]
    last = "unbacked" if own_stage(finding.stage) is None else finding.kind
    words = re.findall(r"[A-Za-z0-9]+", f"{op.removeprefix('torch.')} {last}")
    return between.join(word[:1].upper() + word[1:] for word in words)


def finding_script(finding: Finding, stage: Stage | None = None) -> str:
    """The script of a finding's smallest program, in the stage in which it was confirmed unless `stage` is
    given.

    Raises `InputError` for a finding without a program or a failure.
    """
    shown = stage or finding.stage
    if shown is not None and shown not in stages():
        raise InputError(f"{finding.id}: found the stage {shown!r}, expected one of {', '.join(stages())}")
    own = own_script(finding, shown)
    if own is not None and shown is not None:
        return emitted(own, shown, finding.title)
    expected, program = expected_of(finding), program_of(finding)
    known, make = (CALLED, call_script) if expected.recognizer == "by_call" else (CAPTURES, repro_script)
    if shown is None or shown not in known:
        raise InputError(f"{finding.id}: found the stage {shown}, expected one of {', '.join(known)}")
    return make(program, shown, expected, finding.title)


def own_script(finding: Finding, stage: Stage | None) -> Script | None:
    """What the oracle brings for a finding's script; None for a capture's. Raises `InputError` if a part is missing."""
    make = row_of(finding.kind).script
    if make is None or finding.evidence is None or stage is None:
        return None
    try:
        return make(text_of(finding), stage, finding.evidence)
    except InputError as error:
        raise InputError(f"{finding.id}: {error}") from error


def expected_of(finding: Finding) -> ExpectedFailure:
    """The facts by which a script recognizes a finding's failure with plain torch. Raises `InputError` without them."""
    evidence = finding.evidence
    if evidence is None:
        raise InputError(f"{finding.id}: found no stored failure, expected one that a script can show")
    same_program = finding.minimal is None or finding.shown is not None
    try:
        return row_of(finding.kind).expected(stored(evidence, finding.signature), same_program)
    except InputError as error:
        raise InputError(f"{finding.id}: {error}") from error


def program_of(finding: Finding) -> Program:
    """The smallest program of a finding, else the original one. Raises `InputError` if there is none."""
    return ProgramSubject(text_of(finding)).program(f"{finding.id}.py")


def text_of(finding: Finding) -> str:
    """The text of the smallest program of a finding, else of the original one. Raises `InputError` if there is none."""
    text = finding.minimal or finding.original
    if text is None:
        raise InputError(f"{finding.id}: found no program, because the finding is from a user's own code")
    return text


MOST_LINES: Final = 15

WIDTH: Final = 100  # inputs that are longer than this in one line get a line each, if the limit of lines allows it

_EXPORT: Final = "torch.export.export(Program(), inputs, strict=False)"
_AOTI: Final = "torch._inductor.aoti"

_CALLS: Final[dict[str, str]] = {
    "export": _EXPORT,
    "export-strict": "torch.export.export(Program(), inputs, strict=True)",
    "compile": 'torch.compile(program, backend="eager", fullgraph=True)(*inputs)',
    "aot": 'torch.compile(program, backend="aot_eager", fullgraph=True)(*inputs)',
    "aot-decomposed": 'torch.compile(program, backend="aot_eager_decomp_partition", fullgraph=True)(*inputs)',
    "inductor": "torch.compile(program, fullgraph=True)(*inputs)",
    "decompose": f"{_EXPORT}.run_decompositions()",
    "reexport": f"torch.export.export({_EXPORT}.module(), inputs, strict=False)",
    "saved": f'torch.export.save({_EXPORT}, "program.pt2")\ntorch.export.load("program.pt2")',
    "unflatten": f"torch.export.unflatten({_EXPORT})",
    "aoti": f"{_AOTI}_load_package({_AOTI}_compile_and_package({_EXPORT}))",
    "cpp-wrapper": "torch.compile(program, fullgraph=True)(*inputs)",
}
"""The lines that capture. The last one is an expression."""

_CALLED_ITSELF: Final = frozenset({"unflatten", "aoti"})  # the stages whose result is called, not its `module()`


def finding_snippet(finding: Finding, stage: Stage | None = None) -> str:
    """The lines for a finding's smallest program, in the stage in which it was confirmed unless `stage` is
    given.

    Raises `InputError` if there would be more than `MOST_LINES` lines beside those that make modules, and for a finding
    of a stage without a capture.
    """
    snippet, shown, own = row_of(finding.kind).snippet, stage or finding.stage, own_stage(finding.stage)
    if snippet is not None and finding.evidence is not None and shown is not None:
        return snippet(text_of(finding), shown, finding.evidence)
    if own is not None and own.hint:
        return f"{own.hint}\n{capture_snippet(finding)}"
    return _text(finding, shown, _expected_call(finding))


def inputs_at(finding: Finding, size: CallSize) -> list[str]:
    """The lines that make the inputs of a finding's smallest program at a size, to call what it captured."""
    program, stage = program_of(finding), finding.stage or "export"
    resized, kept = at_size(program, stage, size)
    return [*_inputs(resized, stage, kept, spread=True), *(_marks(program) if stage in COMPILED else [])]


def capture_snippet(finding: Finding) -> str:
    """The lines that capture a finding's smallest program, and do nothing else."""
    own = own_stage(finding.stage)
    return _text(finding, finding.stage if own is None else own.shown_by, None)


def _text(finding: Finding, shown: Stage | None, called: ExpectedFailure | None) -> str:
    if shown is None or shown not in CAPTURE_STAGES:
        raise InputError(f"{finding.id}: found the stage {shown}, expected one of {', '.join(CAPTURE_STAGES)}")
    program, config = program_of(finding), _config(finding, shown)
    spread, narrow = (
        [*_setting(program, shown, config, (), spread=spread, seeded=False), *_CALLS[shown].splitlines()]
        if called is None
        else _called(program, shown, config, called, spread=spread)
        for spread in (True, False)
    )
    most = MOST_LINES + len(made_of(program))
    # Blank lines are preferred to a line for each input.
    for lines in (spread, narrow, [line for line in spread if line], [line for line in narrow if line]):
        if len(lines) <= most:
            return "\n".join(lines) + "\n"
    raise InputError(f"{finding.id}: its snippet has {len(lines)} lines, expected at most {most}: use --repro")


def _expected_call(finding: Finding) -> ExpectedFailure | None:
    is_called = bool(oracle_of(finding.kind).calls) or finding.kind in IN_CALL.values()
    if finding.evidence is None or not is_called:
        return None
    expected = expected_of(finding)
    if expected.seen.get("differs") in ("mutation", "gradient"):  # no comparison of results shows it
        raise InputError(
            f"{finding.id}: found a difference of {expected.seen['differs']}, "
            "expected a difference of the result: use --repro"
        )
    if NO_VALUES in finding.evidence.evidence:  # a comparison of values would raise another error
        expected = msgspec.structs.replace(expected, seen={**expected.seen, "differs": "fake"})
    return expected if expected.recognizer == "by_call" else None


def _config(finding: Finding, stage: Stage) -> list[str]:
    """The settings that the capture needs. torch.compile needs them for data-dependent sizes, export needs none."""
    lines = []
    if stage in COMPILED:
        lines += [
            f"torch._dynamo.config.capture_{what} = True" for what in ("scalar_outputs", "dynamic_output_shape_ops")
        ]
    if (finding.site.function or "").startswith(("c10::SymbolicShapeMeta::", "c10::is_channels_last_strides_")):
        # A guard of a tensor's own sizes and strides: a fake tensor from the cache does not evaluate it.
        lines.append("torch._dynamo.config.fake_tensor_cache_enabled = False")
    if stage == "cpp-wrapper":
        lines.append("torch._inductor.config.cpp_wrapper = True")
    if stage in COMPILES:  # what another program with equal code left on the disk may pass
        lines.append("torch._inductor.config.force_disable_caches = True")
    return lines


def _called(program: Program, stage: Stage, config: list[str], expected: ExpectedFailure, *, spread: bool) -> list[str]:
    """The lines that capture with the example's inputs and then call with those of the failure."""
    if "node" in expected.seen and stage in COMPILED:
        return _read_while_compiled(program, stage, config, expected, spread=spread)
    changes = any(name.endswith("_") for name in functions_in(program))
    again = []
    if expected.size not in (None, "example"):
        resized, kept = at_size(program, stage, expected.size)
        marks = _marks(program) if stage in COMPILED else []
        called = ["captured(*inputs)"] if stage in COMPILED else []
        again = [*called, *_inputs(resized, stage, kept, spread=spread), *marks]
    if "node" in expected.seen:
        setting = [*_setting(program, stage, config, (), spread=spread), *_reader(stage, expected.seen)]
        return [*setting, *_captured(stage), *again, "Reader(captured).run(*inputs)"]
    return [
        *_setting(program, stage, config, ("from copy import deepcopy",) if changes else (), spread=spread),
        *_captured(stage),
        *again,
        *_ending(stage, expected.seen, "deepcopy(inputs)" if changes else "inputs"),
    ]


_SHOWN: Final[Mapping[str, str]] = {
    "strides": "(one.stride(), one.storage_offset())",
    "dtype": "one.dtype",
    "number": "one",
}
"""What shows that a graph says something wrong of one of a node's values."""


def _read_while_compiled(
    program: Program, stage: Stage, config: list[str], expected: ExpectedFailure, *, spread: bool
) -> list[str]:
    """The lines that compile with the inputs of the failure, and run dynamo's graph node by node."""
    resized = program if expected.size in (None, "example") else at_size(program, stage, expected.size)[0]
    run = "torch.compile(program, backend=lambda graph, _: Reader(graph).run, fullgraph=True)(*inputs)"
    return [*_setting(resized, stage, config, (), spread=spread), *_reader(stage, expected.seen), run]


def _reader(stage: Stage, seen: Mapping[str, str]) -> list[str]:
    """The lines that run a graph node by node. Of the node that is wrong they print what it says, and what is so."""
    claim = f'n.meta["{"example_value" if stage in COMPILED else "val"}"]'
    shown = f"torch.utils._pytree.tree_map(lambda one: {_SHOWN.get(seen['what'], 'one.shape')}, said)"
    return [
        "class Reader(torch.fx.Interpreter):",
        "    def run_node(self, n):",
        "        value = super().run_node(n)",
        f'        if getattr(n.target, "__name__", n.target) == {quoted(seen["node"])}:'
        f' print(*({shown} for said in ({claim}, value)), sep=" but ")',
        "        return value",
    ]


def _captured(stage: Stage) -> list[str]:
    *before, call = _CALLS[stage].splitlines()
    made = call.removesuffix("(*inputs)") if stage in COMPILED else call
    is_called = stage in COMPILED or stage in _CALLED_ITSELF
    return [*before, f"captured = {made}" if is_called else f"captured = {made}.module()"]


def _ending(stage: Stage, seen: Mapping[str, str], inputs: str) -> list[str]:
    eager, captured = f"{'program' if stage in COMPILED else 'Program()'}(*inputs)", f"captured(*{inputs})"
    if seen.get("differs") == "fake":
        leaves = f"torch.utils._pytree.tree_leaves({captured})"
        return [f"assert not any(isinstance(one, torch._subclasses.FakeTensor) for one in {leaves})"]
    if "differs" in seen:
        strides = ", check_stride=True" if seen["differs"] == "strides" else ""
        return [f"torch.testing.assert_close({captured}, {eager}{strides})"]
    if seen.get("eager") != "raises":
        return [f"{eager.replace('*inputs', f'*{inputs}')}  # eager takes these inputs", "captured(*inputs)"]
    return [f"{captured}  # takes inputs that eager refuses", eager]


def _setting(
    program: Program,
    stage: Stage,
    config: list[str],
    imports: tuple[str, ...],
    *,
    spread: bool,
    seeded: bool = True,
) -> list[str]:
    marks = _marks(program) if stage in MARKED else []
    return [
        *imports,
        "import torch",
        *setup_of(program),
        *(["from torch._dynamo.decorators import mark_unbacked"] if marks else []),
        "",
        *_function(program, stage, seeded=seeded),
        "",
        *_inputs(program, stage, {}, spread=spread),
        *marks,
        *config,
    ]


def _function(program: Program, stage: Stage, *, seeded: bool) -> list[str]:
    written = callable_of if stage in COMPILED else class_of
    return written(program, parameters_of(program, stage), _unbacked(program, stage), seeded=seeded)


def _unbacked(program: Program, stage: Stage) -> list[str]:
    """The statements that make sizes unbacked, without the program's call. An index that is used once has no line."""
    lines = _joined(body_of(program, stage)[:-1])
    short: list[str] = []
    for line in lines:
        name, _, value = line.partition(" = ")
        used = [other for other in lines if other.endswith(f", {name})")]
        if value.endswith(".nonzero().squeeze(1)") and len(used) == 1:
            lines[lines.index(used[0])] = used[0].replace(f", {name})", f", {value})")
        else:
            short.append(line)
    return [lines[lines.index(line)] for line in short if line in lines]


def _joined(lines: list[str]) -> list[str]:
    joined: list[str] = []
    for size, group in groupby(lines, key=lambda line: line.partition(" == ")[0] if " == " in line else ""):
        checks = list(group)
        if size and len(checks) > 1:
            others = ", ".join(line.partition(" == ")[2].removesuffix(")") for line in checks)
            joined.append(f"for size in ({others}): {size} == size)")
        else:
            joined += checks
    return joined


def _inputs(program: Program, stage: Stage, kept: Mapping[str, int], *, spread: bool) -> list[str]:
    values = [*map(short_value, program.inputs), *masks_of(program, stage, kept)]
    line = f"inputs = {tuple_of(values)}"
    if len(line) <= WIDTH or not spread:
        return [line]
    return ["inputs = (", *(f"    {value}," for value in values), ")"]


def _marks(program: Program) -> list[str]:
    """A line for each set of dims, with all inputs that have exactly these dims unbacked."""
    if marks_in(program):
        return marks_of(program)
    inputs: dict[tuple[int, ...], list[int]] = {}
    places = sorted(place for places in symbols_of(program).values() for place in places)
    for position, group in groupby(places, key=lambda place: place[0]):
        inputs.setdefault(tuple(dim for _, dim in group), []).append(position)
    lines = []
    for dims, positions in inputs.items():
        marked = dims[0] if len(dims) == 1 else list(dims)
        if len(positions) == 1:
            lines.append(f"mark_unbacked(inputs[{positions[0]}], {marked})")
        else:
            lines.append(f"for at in {tuple(positions)}: mark_unbacked(inputs[at], {marked})")
    return lines
