"""The texts of a fix: a test in PyTorch's style that fails before the change and passes after it; a pull request."""

from __future__ import annotations

import re
from textwrap import indent

from ddefuzz.classify.anchor import question
from ddefuzz.errors import InputError
from ddefuzz.escape import markdown_block, markdown_code, markdown_text
from ddefuzz.findings.model import Finding
from ddefuzz.fixes.model import Fix
from ddefuzz.fixes.tasks import Calls
from ddefuzz.repro.finding import OWNERS, finding_snippet, inputs_at, parts_of

_EXPORTED = re.compile(r"torch\.export\.export\(Program\(\), inputs, strict=(?:True|False)\)")
_COMPILED = re.compile(r"torch\.compile\(program(.*)\)\(\*inputs\)")


def test_text(finding: Finding, fix_id: str, calls: Calls | None = None) -> str:
    """A test that captures the smallest program of a finding and compares calls with eager: at the sizes of the
    example, then at these. Raises `InputError`.
    """
    if finding.stage not in OWNERS:
        raise InputError(f"{finding.id}: found the stage {finding.stage}, expected one of {', '.join(OWNERS)}")
    parts = parts_of(finding_snippet(finding))
    *settings, last = parts.body
    settings = [line for line in settings if "_dynamo.config" not in line]
    patched = [line for line in parts.body if "_dynamo.config" in line]
    same = ["self.assertEqual(captured(*inputs), program(*inputs))"]
    if _EXPORTED.fullmatch(last):
        exported = last.replace("Program()", "program", 1)
        if "__init__" in parts.definition:  # a module may have dropout
            seed = "torch.manual_seed(0)"
            same = [seed, "expected = program(*inputs)", seed, "self.assertEqual(captured(*inputs), expected)"]
        compared = ["program = Program()", f"captured = {exported}.module()", *same]
    elif _COMPILED.fullmatch(last):
        compared = [f"captured = {last.removesuffix('(*inputs)')}", *same]
    else:
        compared, calls = [last], None
    agree, refuse = calls or Calls()
    for size in agree:
        compared += [*inputs_at(finding, size), *same]
    for size in refuse:
        compared += [*inputs_at(finding, size), "with self.assertRaises(RuntimeError):", "    captured(*inputs)"]
    named = "_".join(re.findall(r"[A-Za-z0-9]+", (finding.shown_ops or (str(finding.site),))[0].removeprefix("torch.")))
    imports = sorted({*parts.imports} - {"import torch"})
    decorators = [f"    @torch._dynamo.config.patch({_keyword(line)})" for line in patched]
    lines = [
        f'# Owner(s): ["{OWNERS[finding.stage]}"]',
        "",
        "import torch",
        *(["import torch._dynamo"] if patched else []),
        *imports,
        "from torch.testing._internal.common_utils import run_tests, TestCase",
        "",
        "",
        f"class Test{''.join(word.capitalize() for word in named.split('_'))}Unbacked(TestCase):",
        *decorators,
        f"    def test_{named.lower()}_unbacked_{fix_id.removeprefix('fix-')}(self):",
        indent(parts.definition, " " * 8),
        "",
        *(indent(line, " " * 8) for line in (*settings, *compared)),
        "",
        "",
        'if __name__ == "__main__":',
        "    run_tests()",
    ]
    return "\n".join(lines) + "\n"


def _keyword(line: str) -> str:
    return line.partition("_dynamo.config.")[2].replace(" = ", "=")


def pull_request(fix: Fix, first: Finding) -> str:
    """The text of a pull request, in Markdown. Nothing is filed."""
    asked, function = question(first.expression), fix.site.function or ""
    place = f"{fix.site.module}:{function}" if fix.site.module else function
    why = f"With an unbacked size this is {markdown_code(asked)}, which capture does not know, and it raises"
    if fix.site.module is None:
        why = "With an unbacked size it raises"
    called = markdown_text(", ".join(fix.ops[:3]) or function)
    lines = [
        f"# [unbacked] {called}: no data-dependent error in {markdown_text(function)}",
        "",
        f"{markdown_code(place)} {'decides' if fix.site.module else 'asks'} {markdown_code(fix.guards[0])}. "
        f"{why} a data-dependent error:",
        "",
        markdown_block(_snippet(first), "python"),
        "",
        "### Change",
        "",
        fix.change + ".",
        "",
        "### Test",
        "",
        f"Before and after the change, in a copy of torch {markdown_text(fix.torch)}:",
        "",
        *(f"- {markdown_text(line)}" for line in fix.evidence),
        "",
        f"Found by ddefuzz ({markdown_text(', '.join(fix.findings))}).",
    ]
    return "\n".join(lines) + "\n"


def _snippet(finding: Finding) -> str:
    try:
        return finding_snippet(finding)
    except InputError:
        return finding.minimal or finding.original or ""
