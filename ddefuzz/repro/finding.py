"""Writes the stand-alone script of a finding."""

from __future__ import annotations

from ddefuzz.classify.expected import Expected
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.model import Finding
from ddefuzz.keys.case import KeyCase, parse_key
from ddefuzz.ops import catalogue
from ddefuzz.oracles.table import row_of, stored
from ddefuzz.program.model import Program
from ddefuzz.repro.call_script import CAPTURES, call_script
from ddefuzz.repro.count_script import DYNAMIC, count_script
from ddefuzz.repro.growth_script import growth_script
from ddefuzz.repro.kernels_script import kernels_script
from ddefuzz.repro.key_script import key_script
from ddefuzz.repro.script import repro_script


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
