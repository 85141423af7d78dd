"""Verifies the Python changes of groups, one after the other: candidates, further links of a program, texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from ddefuzz.answers.patch import Patch
from ddefuzz.answers.samples import is_of_value
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.plumbing import DECOMPOSING
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CAPTURE_STAGES, DECOMPOSED, Observation
from ddefuzz.files import unified_diff
from ddefuzz.findings.model import Finding
from ddefuzz.fixes.change import DELETED, candidates, noting
from ddefuzz.fixes.group import fix_of
from ddefuzz.fixes.model import Fix
from ddefuzz.fixes.out_meta import FORM as OUT
from ddefuzz.fixes.tasks import SMALL, Calls, Sights, Task, Truths
from ddefuzz.fixes.texts import pull_request, test_text
from ddefuzz.fixes.verify import (
    ALSO,
    FURTHER,
    Judgement,
    Request,
    form_doubts,
    judged,
    probed,
    task_of,
    without,
)
from ddefuzz.instrument.events import RaisedError
from ddefuzz.instrument.truth import holds, usual_sizes
from ddefuzz.repro.finding import inputs_at

MOST_TRIED: Final = 2
"""How many changes of one guard are run, those first that nothing speaks against yet."""

ASSERTING: Final = ("torch._check", "a symbolic form", OUT)

MOST_LINKS: Final = 3
"""How many guards of one program, one after the other, are changed together."""

MOST_PROGRAMS: Final = 2
MOST_FUNCTIONS: Final = 2


class Job(NamedTuple):
    """A group to verify: its findings, the guard, a change to try, and what is run."""

    fix: Fix
    findings: tuple[Finding, ...]
    raised: RaisedError
    first: Patch
    request: Request


def job_of(fix: Fix, findings: Mapping[str, Finding]) -> Job | None:
    """What to run for a group; None if no change of Python's code is known."""
    members = tuple(findings[one] for one in fix.findings if one in findings)
    raised = _raised(members[0]) if members else None
    if raised is None:
        return None
    answers = members[0].answers
    first = next(candidates(raised), None)
    if first is None:
        return None
    try:
        test = test_text(members[0], fix.id)
    except InputError:
        test = ""
    failing = [one for one in members if {*one.stages} & {*CAPTURE_STAGES}] or members
    programs = [(one.minimal or one.original or "", one.stages) for one in failing[:MOST_PROGRAMS]]
    request = Request(
        tuple(
            (text, tuple(one for one in CAPTURE_STAGES if one in {*stages, ALSO, *FURTHER}))
            for text, stages in programs
            if text
        ),
        tuple(dict.fromkeys(op for one in members for op in one.shown_ops))[:MOST_FUNCTIONS],
        test,
        "" if first.form.startswith(ASSERTING) else noting(raised),
        answers.verdict if answers is not None else "",
        "inductor"
        if {*members[0].stages} == {"inductor"}
        else DECOMPOSED
        if first.file.startswith(DECOMPOSING)
        else ALSO,
        is_of_value(raised.expression),
    )
    return Job(fix, members, raised, first, request)


def _raised(finding: Finding) -> RaisedError | None:
    return None if finding.evidence is None else finding.evidence.observation.raised


def baselines(jobs: Sequence[Job]) -> list[Sights | str]:
    """What torch as installed does, for each job."""
    return probed([without(task_of(job.request, [job.first])) for job in jobs], {})


def verified(
    job: Job, before: Sights | str, others: Iterable[Finding], torch: str, forms: Mapping[tuple[Site, str], str]
) -> Fix:
    """The fix with the result of its best change: verified, or in doubt, with what speaks against it.

    `others` are findings that may be later links: those that no other change is known to mend. `forms` are those of
    verified changes, by the site and the anchor of their guards.
    """
    best: tuple[list[Patch], Judgement, list[Finding]] | None = None
    if isinstance(before, str):
        return _refuted(job, torch, (f"with torch as installed: {before}",))
    truths = before.truths

    def order(form: str) -> int:
        return len(form_doubts(form, job.request.verdict, truths))

    for patch in islice(candidates(job.raised, order), MOST_TRIED):
        if best is not None and any(truths) and order(patch.form):
            break  # whatever is seen, its form speaks against it
        for patches, result, later in _chain(job, [patch], before, tuple(others), forms):
            if best is None or len(result.doubts) < len(best[1].doubts):
                best = patches, result, later
        if best is not None and not best[1].doubts:
            break
    assert best is not None
    patches, result, later = best
    first = job.findings[0]
    if result.doubts or not job.request.test:
        doubts = result.doubts or ("no test in PyTorch's style can show it",)
        return _refuted(job, torch, doubts, patches)
    texts: dict[str, tuple[str, str]] = {}
    for patch in patches:
        texts[patch.file] = texts.get(patch.file, (patch.before,))[0], patch.after
    ids = dict.fromkeys([*job.fix.findings, *(one.id for one in later)])
    diff = "".join(unified_diff(file, *both) for file, both in texts.items())
    fix = replace(
        job.fix,
        label="verified",
        form=patches[0].form,
        change=f"{_change(first.anchor, patches)}{in_helpers(diff)}",
        torch=torch,
        findings=tuple(ids),
        ops=_called(job),
        later=tuple(one.id for one in later),
        file=", ".join(texts),
        evidence=result.evidence,
        doubts=(),
        patch=diff,
        test=wider_test(
            first, fix_id=job.fix.id, calls=result.calls, files={file: new for file, (_, new) in texts.items()}
        ),
    )
    return replace(fix, pull_request=pull_request(fix, first))


def _called(job: Job) -> tuple[str, ...]:
    """The ops of the group that the captured programs call; all of them if none does."""
    texts = [text for text, _ in job.request.programs]
    called = tuple(op for op in job.fix.ops if any(f"{op.rpartition('.')[2]}(" in text for text in texts))
    return called or job.fix.ops


def wider_test(finding: Finding, fix_id: str, calls: Calls, files: Mapping[str, str]) -> str:
    """The test with a call at another usual size, one at a small size and one that is refused, as far as it passes with
    these files of torch.
    """
    usual = (size for size in calls.agree if size not in SMALL and not size.startswith("values-"))
    small = (size for size in calls.agree if size in SMALL)
    example = inputs_at(finding, "example")
    agree = [next((size for size in sizes if inputs_at(finding, size) != example), None) for sizes in (usual, small)]
    agreeing = tuple(size for size in agree if size is not None)
    for wanted in (Calls(agreeing, calls.refuse[:1]), Calls(agreeing)):
        text = test_text(finding, fix_id, wanted)
        (after,) = probed([Task((), (), "", test=text, is_changed=True)], files)
        if isinstance(after, Sights) and after.test == "passes":
            return text
    return test_text(finding, fix_id)


def _refuted(job: Job, torch: str, doubts: tuple[str, ...], patches: Sequence[Patch] = ()) -> Fix:
    """The group as it was, with the change that comes closest, and what speaks against it."""
    members = [one for one in job.findings if one.id not in job.fix.later]
    fix = replace(fix_of(job.fix.id, members), label="in doubt", torch=torch, doubts=doubts)
    return replace(fix, form=patches[0].form, change=_change(members[0].anchor, patches)) if patches else fix


def _change(anchor: str, patches: Sequence[Patch]) -> str:
    """What becomes of the code, in a sentence."""
    first, *others = (f"`{' '.join(patch.code.split())}`" for patch in patches)
    sentence = f"`{anchor}` becomes {first}"
    if patches[0].form == OUT:
        sentence = f"the meta function of Python serves out=, too: {first}"
    if patches[0].form == DELETED:
        sentence = f"the test `{anchor}` is deleted" + (f", which leaves {first}" if patches[0].code else "")
    return sentence + (f"; the guards that follow become {', '.join(others)}" if others else "")


def in_helpers(diff: str) -> str:
    """Where the new code is, if functions are added for it beside the old code; else empty."""
    names = re.findall(r"^\+def (\w+)\(", diff, re.MULTILINE)
    return f", in a function of its own, which the old place calls: `{'`, `'.join(names)}`" if names else ""


def truths_at_calls(raised: RaisedError, captured: Sequence[Observation]) -> Truths:
    """The truths of the code of a guard at the calls of captured programs, by its expression and their sizes.

    Some functions of Python run with symbolic sizes only, so they cannot note what they evaluate.
    """
    calls = [dict(call.symbols) for seen in captured for call in seen.calls if call.symbols]
    truths = [(_truth(raised, symbols), min(symbols.values()) > 1) for symbols in calls]
    return Truths(
        tuple(truth for truth, is_usual in truths if truth is not None and is_usual),
        tuple(truth for truth, is_usual in truths if truth is not None and not is_usual),
    )


def answered_truths(patch: Patch, text: str, after: Sights) -> Truths:
    """The truths of a guard that took its answer, at the calls of captures that agree with eager.

    `text` is that of the file that runs. A guard of the change is one on a line that the file did not have before.
    """
    lines, old = text.splitlines(), {*patch.before.splitlines()}
    usual, small = list[bool](), list[bool]()
    for seen in (*after.captured, *(seen for _, seen in after.of_samples)):
        for guard in seen.guards:
            place = guard.place
            if place.file == patch.file and 0 < place.line <= len(lines) and lines[place.line - 1] not in old:
                for symbols in (dict(call.symbols) for call in seen.calls if call.agreement == "same" and call.symbols):
                    truth = holds(guard.expression, symbols)
                    if truth is not None and patch.form.startswith(guard.method):
                        (usual if min(symbols.values()) > 1 else small).append(truth)
    return Truths(tuple(usual), tuple(small))


def _truth(raised: RaisedError, symbols: Mapping[str, int | float]) -> bool | None:
    """The truth of the code of a guard, which may be the opposite of the guard's."""
    anchor, expression = python_anchor(site(raised)[1]), raised.expression
    turned = (" != " in anchor and expression.startswith("Eq(")) or (" == " in anchor and expression.startswith("Ne("))
    truth = holds(expression, symbols)
    return None if truth is None else truth != turned


def usual_answer(raised: RaisedError) -> str:
    """The answer in place of a guard that is its truth where all sizes are large and differ."""
    return "guard_or_true" if _truth(raised, usual_sizes(raised.expression)) else "guard_or_false"


def _chain(
    job: Job,
    patches: list[Patch],
    before: Sights | str,
    others: tuple[Finding, ...],
    forms: Mapping[tuple[Site, str], str],
) -> Iterator[tuple[list[Patch], Judgement, list[Finding]]]:
    """The results of a change, then of it with changes of the guards at which the program stops next."""
    later: list[Finding] = []
    links = [(job.raised, job.request.verdict)]
    made = {(job.findings[0].site, job.findings[0].anchor): patches[0].form}
    for _ in range(MOST_LINKS):
        texts = {patch.file: patch.after for patch in patches}
        task = task_of(job.request, patches)
        (after,) = probed([replace(task, noting="", is_changed=True)], texts)  # that is known from before
        result = judged(task, before, after)
        if isinstance(before, Sights) and isinstance(after, Sights):
            against = []
            for (raised, verdict), patch in zip(links, patches, strict=True):
                noted = before.truths if raised is job.raised and any(before.truths) else None
                truths = noted or truths_at_calls(raised, after.captured)
                is_answer = patch.form.startswith("guard_or_")
                tested = answered_truths(patch, texts[patch.file], after) if is_answer else truths
                against += form_doubts(patch.form, verdict, tested, truths.usual)
                if job.request.of_numbers and verdict == "either answer here" and patch.file.startswith(DECOMPOSING):
                    against.append("either value of the number gives the same: no stage decomposes the op by this code")
            result = result._replace(doubts=(*against, *result.doubts))
        yield list(patches), result, list(later)
        if not result.doubts:
            return
        chosen = next(filter(None, (_following(raised, texts, {**forms, **made}) for raised in result.next)), None)
        if chosen is None:
            return
        raised, following = chosen
        place = _place(raised)
        made[place] = following.form
        same = [one for one in others if (one.site, one.anchor) == place and one not in job.findings]
        verdicts = [one.answers.verdict for one in same if one.answers is not None]
        links.append((raised, next(iter(verdicts), "")))
        patches = [*patches, following]
        later += same


def _place(raised: RaisedError) -> tuple[Site, str]:
    where, frame = site(raised)
    return where, python_anchor(frame)


def _following(
    raised: RaisedError, texts: dict[str, str], forms: Mapping[tuple[Site, str], str]
) -> tuple[RaisedError, Patch] | None:
    """A later guard and its change, in files that are changed already; None if there is no candidate for it.

    A guard of a place with a known form gets that: a verified one, or that of the same test above. For any other one an
    assertion comes first, then the answer of usual sizes, which has to be tested like the first one.
    """
    place = _place(raised)
    wanted = (forms[place],) if place in forms else (*ASSERTING, usual_answer(raised))
    order: Callable[[str], int] = lambda form: wanted.index(form) if form in wanted else len(wanted)  # noqa: E731
    patch = next(candidates(raised, order, texts), None)
    return (raised, patch) if patch is not None and patch.form in wanted and patch.after not in texts.values() else None
