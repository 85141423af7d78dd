"""Writes the stand-alone script of a finding."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from ddefuzz.classify.expected import Expected
from ddefuzz.errors import InputError
from ddefuzz.execute import kernels
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.model import Finding
from ddefuzz.keys.case import KeyCase, parse_key
from ddefuzz.ops import catalogue
from ddefuzz.oracles.table import row_of, stored
from ddefuzz.program.model import Program
from ddefuzz.repro.arguments import marks_of, symbols_of
from ddefuzz.repro.call_script import CAPTURES, call_script
from ddefuzz.repro.count_script import DYNAMIC, count_script
from ddefuzz.repro.emitted import ENDING, emitted, source_of, subject_of
from ddefuzz.repro.growth_script import growth_script
from ddefuzz.repro.key_script import key_script
from ddefuzz.repro.script import repro_script

_SCRIPT: Final = Template(
    '''\
"""$title

Run it as it is: it needs only torch (2.6 or later) and a C++ compiler. It prints one JSON line, and exits with
  1  it shows: inductor's code for unbacked sizes is worse than that for backed sizes, as described at EXPECTED
  0  it passes: it is not worse
  3  it fails otherwise: torch.compile raises, or the code is worse in another way
  4  it cannot be judged: eager PyTorch raises for the program, or there is no C++ compiler
"""

from __future__ import annotations

$imports


$subject

def marked_inputs(mark):
    """The inputs, with the dims marked whose sizes are dynamic."""
    inputs = make_inputs()
    $marks
    return inputs


def code_for(mark):
    """The code that inductor generates."""
    from torch._dynamo import config
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    torch._inductor.config.force_disable_caches = True
    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    inputs = marked_inputs(mark)
    return run_and_get_code(torch.compile(Captured(), fullgraph=True), *inputs)[1][0]


# The rest only reads the kernels in the code.

EXPECTED = $expected

$functions


def main():
    verdict, found = "not judged", None
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):  # torch prints graphs when it fails
        try:
            Captured()(*make_inputs())
            verdict = "fails otherwise"
            from torch._dynamo import maybe_mark_dynamic
            from torch._dynamo.decorators import mark_unbacked

            unbacked, backed = kernels_in(code_for(mark_unbacked)), kernels_in(code_for(maybe_mark_dynamic))
            worse = worse_in(unbacked, backed)
            found = {"kind": ", ".join(worse), "kernels": str(unbacked.number)}
            if EXPECTED["kind"] in worse:
                verdict = "shows"
            elif not worse:
                verdict = "passes"
        except Exception as error:
            found = {"exception": type(error).__name__, "message": str(error).partition("\\n")[0]}
            if "InvalidCxxCompiler" in str(found):
                verdict = "not judged"
'''
    + ENDING
)


def kernels_script(program: Program, stage: str, expected: Expected, title: str) -> str:
    """The script for a kind of the lowering oracle."""
    imports, functions = source_of(Path(kernels.__file__).read_text(encoding="utf-8"))
    marks = (line.replace("mark_unbacked(", "mark(") for line in marks_of(symbols_of(program)))
    return emitted(
        _SCRIPT,
        title,
        imports=imports,
        subject=subject_of(program, "inductor"),
        marks="\n    ".join(marks),
        expected=repr(expected.seen),
        functions=functions,
        stage=stage,
    )


def finding_script(finding: Finding, stage: Stage | None = None) -> str:
    """The script of a finding's smallest program, in the stage in which it was confirmed unless `stage` is
    given.

    Raises `InputError` for a finding without a program or a failure.
    """
    expected = expected_of(finding)
    if expected.recognizer == "by_key":
        return key_script(case_of(finding), expected, finding.title)
    program, shown = program_of(finding), stage or finding.stage
    assert shown is not None  # that of the failure
    if expected.recognizer == "by_count":
        if shown not in DYNAMIC:
            raise InputError(f"{finding.id}: found the stage {shown}, expected one of {', '.join(DYNAMIC)}")
        return count_script(program, shown, expected, finding.title)
    if expected.recognizer == "by_kernels":
        return kernels_script(program, shown, expected, finding.title)
    if expected.recognizer == "by_growth":
        return growth_script(program, shown, expected, finding.title)
    if expected.recognizer != "by_call":
        return repro_script(program, shown, expected, finding.title)
    if shown not in CAPTURES:
        raise InputError(f"{finding.id}: found the stage {shown}, expected one of {', '.join(CAPTURES)}")
    return call_script(program, shown, expected, finding.title)


def expected_of(finding: Finding) -> Expected:
    """The facts by which a script recognizes the failure of a finding with plain torch. Raises `InputError` if it
    cannot.
    """
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
    return catalogue.parse(_text_of(finding), f"{finding.id}.py").program


def case_of(finding: Finding) -> KeyCase:
    """The case of a finding about a key function."""
    return parse_key(_text_of(finding), f"{finding.id}.py")


def _text_of(finding: Finding) -> str:
    text = finding.minimal or finding.original
    if text is None:
        raise InputError(f"{finding.id}: found no program, because the finding is from a user's own code")
    return text
