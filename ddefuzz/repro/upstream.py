"""Texts about one finding for PyTorch's developers: an issue, a unit test, an example for ExportDB.

Nothing is filed by ddefuzz. Each text is made from the finding's snippet.
"""

from __future__ import annotations

import ast
import re
from textwrap import indent
from typing import Final, NamedTuple

from ddefuzz.classify.cause import MEANINGS
from ddefuzz.classify.wording import question
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CAPTURE_STAGES, Stage
from ddefuzz.findings.model import Finding
from ddefuzz.repro.snippet import finding_snippet

LABEL: Final = "topic: fuzzer"
"""The label that PyTorch has for issues that fuzzers found."""

OWNERS: Final[dict[str, str]] = {
    "export": "oncall: export",
    "export-strict": "oncall: export",
    "compile": "module: dynamo",
    "aot": "module: aotdispatch",
    "inductor": "module: inductor",
}
"""The label of a test file's owners by stage (`tools/linter/adapters/testowners_linter.py` of torch)."""


class Parts(NamedTuple):
    """A snippet in parts: imports, the function or class, and the rest."""

    imports: tuple[str, ...]
    definition: str
    body: tuple[str, ...]


def issue(finding: Finding, environment: str = "") -> str:
    """An issue in the form that PyTorch asks for (`.github/ISSUE_TEMPLATE/bug-report.yml`). `environment` is the output
    of `python -m torch.utils.collect_env`.
    """
    site = f"`{finding.site}`" if finding.site.module is None else f"`{finding.site}` (Python)"
    asked = question(finding.expression)
    meaning = MEANINGS[finding.cause]
    lines = [
        f"<!-- title: {finding.title} -->",
        f"<!-- label: {LABEL} -->",
        "",
        "### 🐛 Describe the bug",
        "",
        f"Capturing this program fails in {', '.join(finding.stages)}:",
        "",
        "```python",
        finding_snippet(finding).rstrip(),
        "```",
        "",
        *_error(finding),
        f"The call site is {site}" + (f", which evaluates `{asked}` on an unbacked size." if asked else "."),
        f"Cause: {meaning.meaning}. What to change: {meaning.fix.removeprefix('PyTorch: ')}.",
        "",
        *_control(finding),
        *_stages(finding),
        f"Seen under torch {', '.join(finding.torch_versions)}. Found by ddefuzz ({finding.id}).",
        "",
        "### Versions",
        "",
        *(["```", environment.rstrip(), "```"] if environment else [_ASK_ENVIRONMENT]),
    ]
    return "\n".join(lines) + "\n"


_ASK_ENVIRONMENT: Final = "(paste the output of `python -m torch.utils.collect_env`, or run `ddefuzz report ID --env`)"


def _error(finding: Finding) -> list[str]:
    exceptions = finding.evidence.observation.exceptions if finding.evidence is not None else ()
    if not exceptions:
        return []
    first = exceptions[0]
    message = first.message.strip().split("\n\n")[0].splitlines()
    return ["Error:", "", "```", f"{first.type}: {message[0] if message else ''}", *message[1:6], "```", ""]


def _control(finding: Finding) -> list[str]:
    if finding.control is None:
        return []
    static, backed = finding.control.static, finding.control.backed
    return [f"With all sizes static the same program {_ran(static)}; with backed dynamic sizes it {_ran(backed)}.", ""]


def _ran(outcome: str) -> str:
    return {"passes": "is captured", "fails": "fails in the same way"}.get(outcome, outcome.replace("not ", "was not "))


def _stages(finding: Finding) -> list[str]:
    """The verdict of each stage: with and without explicit unbacked semantics."""
    if not finding.verdicts:
        return []
    rows = [f"| {stage} | {verdict} |" for stage, verdict in finding.verdicts.items()]
    return ["| capture | explicit unbacked semantics compared with size-oblivious |", "|---|---|", *rows, ""]


def unit_test(finding: Finding) -> str:
    """A test in the style of PyTorch's own, which is expected to fail until the finding is fixed."""
    stage = _stage(finding)
    parts = parts_of(finding_snippet(finding, stage))
    name = _words(finding, "_").lower()
    imports = sorted({*parts.imports, "import torch"} - {"import torch"})
    lines = [
        f'# Owner(s): ["{OWNERS[stage]}"]',
        "",
        "import unittest",
        "",
        "import torch",
        *imports,
        "from torch.testing._internal.common_utils import run_tests, TestCase",
        "",
        "",
        f"class Test{_words(finding, '').replace('_', '')}(TestCase):",
        f"    @unittest.expectedFailure  # {finding.title}",
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
    """A file for `torch/_export/db/examples/`. Raises `InputError` if the finding is not one of export."""
    if "export" not in finding.stages:
        raise InputError(f"{finding.id}: was not found in export, expected a finding of export for ExportDB")
    parts = parts_of(finding_snippet(finding, "export"))
    name = _words(finding, "")
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
        indent(f'"""\n{finding.title}\n"""', "    "),
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


def _stage(finding: Finding) -> Stage:
    stage = finding.stage
    if stage is None or stage not in CAPTURE_STAGES:
        raise InputError(f"{finding.id}: was found in the stage {stage}, expected one of {', '.join(CAPTURE_STAGES)}")
    return stage


def _words(finding: Finding, between: str) -> str:
    """A name in Python for the finding: its op, and what is unbacked about it."""
    op = (finding.shown_ops or (str(finding.site),))[0]
    words = [*re.findall(r"[A-Za-z0-9]+", op.removeprefix("torch.")), "unbacked"]
    return between.join(word[:1].upper() + word[1:] for word in words)
