"""Groups findings by the change that mends them, from their causes and their stored answers. Nothing is run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from ddefuzz.answers.model import RIGHT, Answers, PatchEvidence
from ddefuzz.classify.cause import FRAMEWORK_CAUSES
from ddefuzz.classify.evidence import reads_a_tensor
from ddefuzz.classify.signature import Cause, Site, Verdict
from ddefuzz.findings.lifecycle import is_open
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.fixes.model import LABELS, Fix, Label
from ddefuzz.fixes.native import NUMBER, file_of, is_of_torch, native_change, python_number
from ddefuzz.instrument.truth import usual_truth
from ddefuzz.oracles.oracle import SEVERITIES
from ddefuzz.oracles.table import row_of

CAUSES: Final[tuple[Cause, ...]] = ("avoidable", "int-required", "symbolic-form", "wrong-capture")
"""The causes that a change of PyTorch's code at the site mends."""

FORMS: Final[Mapping[Verdict, str]] = {
    "guard_or_false here": "guard_or_false",
    "guard_or_true here": "guard_or_true",
    "either answer here": "either answer",
    "torch._check here": "torch._check",
    "needs SymInt": "SymInt",
    "no answer is right for all sizes": "a symbolic form",
}
"""What the guard becomes, by the verdict of the experiment."""


_GIVEN: Final[Mapping[Verdict, bool]] = {"guard_or_false here": False, "guard_or_true here": True}
"""The answer in place of a guard."""

DISTRIBUTED: Final = "torch/distributed/"


class Coverage(NamedTuple):
    """How many open findings of `CAUSES` there are, and how many are in a group of each label."""

    findings: int
    by_label: dict[Label, int]


def grouped(findings: Iterable[Finding], known: Iterable[Fix] = ()) -> tuple[Fix, ...]:
    """The changes for the open findings of `CAUSES`, the most severe first, then those that repair most ops.

    A finding for which neither its answers nor its cause name a change is in no group.

    `known` are fixes that were tried: their findings are in no other group. A duplicate is mended by the change for
    the finding that it is a duplicate of.
    """
    everything = {one.id: one for one in findings}
    open_ = to_mend(everything.values())
    groups: dict[str, Fix] = {}
    taken: dict[str, str] = {}
    for fix in known:
        first = everything.get(fix.findings[0])
        if fix.label != "verified" and (first is None or not _change(first)):
            continue  # what was refuted was all that was known
        members = [one for name in fix.findings if (one := everything.get(name))]
        groups[fix.id] = replace(fix, **_facts(members))
        if fix.doubts:
            kept = {"form": fix.form, "change": fix.change, "torch": fix.torch, "doubts": fix.doubts}
            groups[fix.id] = replace(fix_of(fix.id, members), label="in doubt", **kept)
        taken |= dict.fromkeys(fix.findings, fix.id)
    made: dict[str, list[Finding]] = {}
    for finding in open_:
        if finding.id not in taken and _change(finding) and is_of_torch(file_of(finding.site)):
            made.setdefault(id_of(finding), []).append(finding)
    for name, others in made.items():
        if name in groups:  # what a later run found at the same place
            before = [everything[one] for one in groups[name].findings if one in everything]
            groups[name] = replace(groups[name], **_facts([*before, *others]))
        else:
            groups[name] = fix_of(name, others)
    by_finding = {one: fix.id for fix in groups.values() for one in fix.findings}
    for finding in everything.values():
        fix_id = by_finding.get(finding.duplicate_of or "")
        if fix_id is not None and finding.id not in by_finding:
            fix = groups[fix_id]
            members = [everything[one] for one in (*fix.findings, finding.id) if one in everything]
            groups[fix_id] = replace(fix, **_facts(members))
    return tuple(sorted(groups.values(), key=_order))


def on_trial(findings: Iterable[Finding], fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Groups of the open findings of `CAUSES` in Python that no fix is for: a change may be verified all the same.

    Those of DTensors are left out: values are not compared in other processes.
    """
    taken = {name for fix in fixes for name in fix.findings}
    made: dict[str, list[Finding]] = {}
    for finding in to_mend(findings):
        file = finding.site.module
        if file and finding.id not in taken and is_of_torch(file) and not file.startswith(DISTRIBUTED):
            made.setdefault(id_of(finding), []).append(finding)
    return tuple(fix_of(name, members) for name, members in made.items())


def to_mend(findings: Iterable[Finding]) -> list[Finding]:
    """The open findings of `CAUSES`, by id."""
    everything = tuple(findings)
    tracked = {version for finding in everything for version in finding.torch_versions}
    return sorted(
        (one for one in everything if one.cause in CAUSES and is_open(one.state, one.fixed_in, tracked)),
        key=lambda one: one.id,
    )


def coverage(findings: Iterable[Finding], fixes: Iterable[Fix]) -> Coverage:
    """How many of the open findings are in a group of each label."""
    labels = {name: fix.label for fix in fixes for name in fix.findings}
    open_ = to_mend(findings)
    return Coverage(len(open_), {label: sum(labels.get(one.id) == label for one in open_) for label in LABELS})


def id_of(finding: Finding | FindingSummary) -> str:
    """The id of the change for a finding: of what has to change, whatever the evidence for it is.

    That is the guard: its code in Python, its operator in a C++ function, because C++ frames have no lines. All that
    has to take SymInt in one C++ function is one change, and so are all calls of `int` in one of Python.
    """
    signature = finding.signature
    kind, what = "" if signature.kind == "dde" else signature.kind, signature.anchor
    if finding.cause == "int-required":
        kind, what = "", what.partition("(")[0] if signature.site.language == "Python" else NUMBER
    text = "\n".join((kind, str(signature.site), what))
    return f"fix-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def of_same_change(finding: Finding, others: Iterable[FindingSummary]) -> tuple[FindingSummary, ...]:
    """Those of the others that the same change is thought to mend."""
    if finding.cause not in CAUSES:
        return ()
    return tuple(one for one in others if one.cause in CAUSES and id_of(one) == id_of(finding))


def fix_of(name: str, members: Sequence[Finding]) -> Fix:
    """The fix of findings that one change mends, with what their stored answers alone say."""
    first = min(members, key=lambda one: (LABELS.index(label_of(one)), one.kind != "dde"))
    members = (first, *(one for one in members if one is not first))
    answers, patch = first.answers, _patch(first)
    form = patch.form if patch is not None else _form(first)
    return Fix(
        id=name,
        label=label_of(first),
        form=form or ("SymInt" if first.cause == "int-required" else "not known"),
        change=_change(first),
        torch=answers.torch if answers is not None else "",
        evidence=evidence_of(answers) if answers is not None and answers.tallies else (),
        doubts=(RARE,) if is_of_rare_sizes(first) else (),
        file=file_of(first.site),
        **_facts(members),
    )


def _form(finding: Finding) -> str:
    """What the guard becomes by its answers; empty if they do not say. Of two right answers, that of usual sizes."""
    answers = finding.answers
    if answers is None:
        return ""
    usual = usual_truth(finding.expression) if finding.site.language == "Python" else None
    if answers.verdict == "either answer here" and usual is not None:
        return f"guard_or_{str(usual).lower()}"
    return FORMS.get(answers.verdict, "")


def _patch(finding: Finding) -> PatchEvidence | None:
    """The patch that was tried in memory, if it does what the answers say."""
    return None if finding.answers is None else finding.answers.fitting_patch(finding.expression)


def label_of(finding: Finding) -> Label:
    """What the stored answers alone say: nothing is verified by them."""
    answers = finding.answers
    if answers is None:
        return "untested idea"
    if is_of_rare_sizes(finding):
        return "in doubt"
    is_right = answers.verdict in RIGHT and (answers.patch is None or answers.patch.is_right)
    return "backed by forced answers" if is_right else "untested idea"


RARE: Final = "The answer is not the truth of the guard at usual sizes: all sizes would take the branch of rare ones."


def is_of_rare_sizes(finding: Finding) -> bool:
    """Whether a guard of C++ would get the answer that is its truth at rare sizes alone. Of Python it is tried."""
    answers = finding.answers
    if answers is None or finding.site.language == "Python" or answers.verdict not in _GIVEN:
        return False
    return usual_truth(finding.expression) == (not _GIVEN[answers.verdict])


def why_none(finding: Finding) -> tuple[str, ...]:
    """Why a finding is in no group, in sentences."""
    if finding.cause not in FRAMEWORK_CAUSES:
        return (f"Its cause is {finding.cause}: a change of PyTorch's code at the site does not mend it.",)
    if not is_open(finding.state, finding.fixed_in, finding.torch_versions):
        return (f"It is {finding.state}: changes are looked for of open findings.",)
    if finding.cause not in CAUSES:
        return (f"Its cause is {finding.cause}: no change was looked for.",)
    if finding.kind != "dde":
        return (f"It is of kind {finding.kind}, and not a guard that cannot be decided: no answer was tried.",)
    if finding.answers is None:
        return ("No answer of its guard was tried.",)
    return evidence_of(finding.answers)


def evidence_of(answers: Answers) -> tuple[str, ...]:
    """A sentence for each thing that the experiment tried."""
    rows = [row for row in answers.tallies if not row.clause and row.captures]
    sentences = [f"Verdict of the forced answers: {answers.verdict} ({answers.extent}, in {answers.stage})."]
    for row in rows:
        parts = {"agrees": row.agrees, "refuses what eager takes": row.refuses, "differs": row.differs}
        parts |= {"accepts what eager rejects": row.accepts}
        ends = "; ".join(f"{what} at {', '.join(sizes)}" for what, sizes in parts.items() if sizes)
        after = f" (in {row.follows} of them a later guard was answered, too)" if row.follows else ""
        given = {"assert": "deferred to a run-time assertion", "assert not": "deferred to an assertion of its opposite"}
        how = f"{given.get(row.answer, row.answer)}: captures {row.captures} of {row.programs}{after}"
        sentences.append(f"{how}; {ends or 'nothing to compare'}.")
    if answers.patch is not None:
        patch = answers.patch
        sentences.append(f"With the patch in memory, stored programs: {patch.kept}; torch's samples: {patch.samples}.")
    return tuple(sentences)


def _change(finding: Finding) -> str:
    """What becomes of the code, in a sentence. Empty if neither the answers nor the cause say so."""
    answers = finding.answers
    if finding.kind != "dde" or answers is None:
        return native_change(finding.site, finding.anchor, "needs SymInt") if finding.cause == "int-required" else ""
    if finding.site.language != "Python":
        return native_change(finding.site, finding.anchor, answers.verdict, usual_truth(finding.expression))
    if (patch := _patch(finding)) is not None:
        return f"`{finding.anchor}` becomes `{' '.join(patch.code.split())}`"
    form = _form(finding)
    if form == "SymInt":
        raised = None if finding.evidence is None else finding.evidence.observation.raised
        return python_number(finding.anchor, of_tensor=raised is not None and reads_a_tensor(raised))
    return f"`{finding.anchor}` becomes {_spelled(form, finding.anchor)}" if form else ""


def _spelled(form: str, anchor: str) -> str:
    """A form, or the function that answers `x.is_contiguous()`, which asks by itself."""
    called = re.fullmatch(r"([\w.]+)\.is_contiguous\(\)", anchor)
    return f"`is_contiguous_or_false({called[1]})`" if called and form == "guard_or_false" else form


def _facts(members: Sequence[Finding]) -> dict[str, Any]:
    """The fields of a fix that follow from its findings."""
    if not members:
        return {}
    severities = [row_of(one.kind).severity for one in members]
    site: Site = members[0].site
    return {
        "site": site,
        "severity": min(severities, key=SEVERITIES.index),
        "findings": tuple(one.id for one in members),
        "guards": tuple(dict.fromkeys(one.anchor for one in members)),
        "ops": tuple(sorted({op for one in members for op in (one.ops or one.shown_ops)})),
        "versions": tuple(sorted({version for one in members for version in one.torch_versions})),
    }


def _order(fix: Fix) -> tuple[int, int, int, str]:
    return [*SEVERITIES, fix.severity].index(fix.severity), -len(fix.ops), LABELS.index(fix.label), fix.id
