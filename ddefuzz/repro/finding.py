"""Writes the stand-alone script of a finding."""

from __future__ import annotations

from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.model import Finding
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import KINDS
from ddefuzz.program.model import Program
from ddefuzz.repro.expected import expected_of
from ddefuzz.repro.script import repro_script


def finding_script(finding: Finding, stage: Stage | None = None) -> str:
    """The script of a finding's smallest program, in the stage in which it was confirmed unless `stage` is
    given.

    Raises `InputError` for a finding without a program or a failure, and for one of a captured program that is wrong.
    """
    if finding.kind not in KINDS:
        raise InputError(
            f"{finding.id}: found the kind {finding.kind}, expected one of a failed capture: a script cannot compare "
            "the captured program with eager; `ddefuzz replay` can"
        )
    evidence = finding.evidence
    if evidence is None:
        raise InputError(f"{finding.id}: has no failure that its script could show")
    same_program = finding.minimal is None or finding.shown is not None
    expected = expected_of(evidence, same_program=same_program)
    return repro_script(program_of(finding), stage or evidence.observation.stage, expected, finding.title)


def program_of(finding: Finding) -> Program:
    """The smallest program of a finding, else the original one. Raises `InputError` if there is none."""
    text = finding.minimal or finding.original
    if text is None:
        raise InputError(f"{finding.id}: has no program, because it was found in a user's own code")
    return catalogue.parse(text, f"{finding.id}.py").program
