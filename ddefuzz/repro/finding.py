"""Writes the stand-alone script of a finding."""

from __future__ import annotations

from string import Template

from ddefuzz.classify.expected import Expected
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.model import Finding
from ddefuzz.ops import catalogue
from ddefuzz.oracles.oracle import Script
from ddefuzz.oracles.table import row_of, stages, stored
from ddefuzz.program.model import Program
from ddefuzz.repro.call_script import CAPTURES, call_script
from ddefuzz.repro.script import ENDING, emitted, repro_script, source_of


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
        return script_of(own, shown, finding.title)
    expected, program = expected_of(finding), program_of(finding)
    assert shown is not None
    if expected.recognizer != "by_call":
        return repro_script(program, shown, expected, finding.title)
    if shown not in CAPTURES:
        raise InputError(f"{finding.id}: found the stage {shown}, expected one of {', '.join(CAPTURES)}")
    return call_script(program, shown, expected, finding.title)


def own_script(finding: Finding, stage: Stage | None) -> Script | None:
    """What the oracle brings for a finding's script; None for a capture's. Raises `InputError` if a part is missing."""
    make = row_of(finding.kind).script
    if make is None or finding.evidence is None or stage is None:
        return None
    try:
        return make(text_of(finding), stage, finding.evidence)
    except InputError as error:
        raise InputError(f"{finding.id}: {error}") from error


def script_of(script: Script, stage: Stage, title: str) -> str:
    """The script of a failure in a stage of its oracle."""
    imports, functions = source_of(script.copied)
    parts = {"imports": imports, "functions": functions, **script.parts, "expected": repr(dict(script.expected))}
    return emitted(Template(script.text + ENDING), title, **parts, stage=stage)


def expected_of(finding: Finding) -> Expected:
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
    return catalogue.parse(text_of(finding), f"{finding.id}.py").program


def text_of(finding: Finding) -> str:
    """The text of the smallest program of a finding, else of the original one. Raises `InputError` if there is none."""
    text = finding.minimal or finding.original
    if text is None:
        raise InputError(f"{finding.id}: found no program, because the finding is from a user's own code")
    return text
