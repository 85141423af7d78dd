"""Texts about one finding for PyTorch's developers: an issue, a unit test, an example for ExportDB.

Nothing is filed by ddefuzz. Each text is made from the finding's snippet.
"""

from __future__ import annotations

import ast
import re
from textwrap import indent
from typing import Final, NamedTuple

from ddefuzz.answers.model import Control, ControlOutcome
from ddefuzz.classify.cause import MEANINGS, PROOFS
from ddefuzz.classify.wording import question
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
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.table import ORACLES, oracle_of, own_stage, row_of
from ddefuzz.repro.finding import capture_snippet, expected_of, finding_snippet, own_script

LABEL: Final = "topic: fuzzer"  # the label that PyTorch has for issues that fuzzers found

OWNERS: Final[dict[Stage, str]] = {
    "export": "oncall: export",
    "export-strict": "oncall: export",
    "compile": "module: dynamo",
    "aot": "module: aotdispatch",
    "inductor": "module: inductor",
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
    said = meaning if meaning.startswith("torch.") else meaning[:1].upper() + meaning[1:]
    return f"{said} (seen in {stages}):"


def _blame(finding: Finding, site: str) -> str:
    """The sentence about the site that the oracle's kind has, with the whole evidence."""
    title, failure = row_of(finding.kind).title, finding.evidence
    if failure is None or not isinstance(title, str):
        return f"The call site is {site}."
    said = title.format(
        site=site,
        anchor=markdown_text(finding.anchor),
        stage=markdown_text(failure.observation.stage),
        evidence=markdown_text(failure.evidence),
    )
    return f"{said.rstrip('.')}."


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
    said = f"An experiment gave this guard each answer: {proof.why}."
    patch = answers.patch
    return (
        [said]
        if patch is None
        else [said, f"With {markdown_code(patch.code)} there, of the programs with this failure: {patch.kept}."]
    )


def _control(finding: Finding) -> list[str]:
    if finding.control is None or finding.control == Control("not judged", "not judged"):
        return []
    said = _RAN if _is_failed_capture(finding) else _RAN | {"passes": "does not show this", "fails": "shows this, too"}
    static, backed = said[finding.control.static], said[finding.control.backed]
    return [f"With all sizes static the same program {static}; with backed dynamic sizes it {backed}.", ""]


_RAN: Final[dict[ControlOutcome, str]] = {
    "passes": "is captured",
    "fails": "fails in the same way",
    "fails otherwise": "fails otherwise",
    "not judged": "was not judged",
}


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
    for node in ast.parse(snippet).body:
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
