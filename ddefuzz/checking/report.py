"""The report of a check: which captures succeed, each problem once, the changes that help; and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.checking.acceptance import Acceptance
from ddefuzz.checking.edits import ChangeKind
from ddefuzz.checking.patch import HARM, MEANING, Advice, Change, Fix, together, unified
from ddefuzz.checking.problems import (
    BY_HAND,
    Caller,
    CaseRuns,
    Problem,
    exception_of,
    failures_of,
    origin_of,
    own_caller,
    refused_by_eager,
)
from ddefuzz.classify.cause import MEANINGS
from ddefuzz.classify.signature import USER_CODE
from ddefuzz.escape import one_line, shell_word
from ddefuzz.execute.protocol import CAPTURE_STAGES, EXPLICIT, SIZE_OBLIVIOUS, TRACED, Call, Observation, Outcome, Stage
from ddefuzz.files import leads_to_file
from ddefuzz.findings.textform import KnownFinding
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.table import row_of
from ddefuzz.oracles.verdict import Verdict, needs_second_run, verdict
from ddefuzz.show.blocks import (
    Block,
    Code,
    Facts,
    Heading,
    Inline,
    Items,
    Paragraph,
    Span,
    Style,
    Table,
    counted,
    table,
)
from ddefuzz.show.evidence import verdicts_line
from ddefuzz.show.html import html
from ddefuzz.show.terminal import terminal

SCHEMA = "ddefuzz.check/3"

CaptureOutcome: TypeAlias = Outcome | Literal["wrong", "captured"]
"""The outcome of a run; `wrong` for a captured program that is wrong, and `captured` for one that was not compared."""
"""`wrong`: it was captured, but an oracle says that the captured program is wrong (`KindRow.wrong`)."""


class CaptureResult(msgspec.Struct, frozen=True):
    """One capture. `seconds` are those of the clock, `exception` is the type and first line of the final exception.

    `verdict` compares the two semantics if both were asked for. `keys` are those of its problems.
    """

    case: str
    stage: Stage
    outcome: CaptureOutcome
    seconds: float
    cpu_seconds: float
    semantics: str = "explicit"
    reason: str = ""
    exception: str | None = None
    verdict: Verdict | None = None
    keys: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()


class Offer(msgspec.Struct, frozen=True):
    """A change that lets the captures of a case succeed."""

    case: str
    change: Change


class Report(msgspec.Struct, frozen=True):
    """The whole result. `changes` are in order of harm; `advice` has what else was tried for each case that fails.

    `ok` says that no capture fails, no captured program is wrong, and something was judged; problems that are
    `accepted`, each with its case, do not count. `refused` are the cases that cannot be built, `notes` what there is to
    say of cases that are captured.
    """

    target: str
    torch: str
    ok: bool
    captures: tuple[CaptureResult, ...] = ()
    problems: tuple[Problem, ...] = ()
    changes: tuple[Offer, ...] = ()
    advice: tuple[tuple[str, Advice], ...] = ()
    known: tuple[KnownFinding, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    accepted: tuple[tuple[str, Acceptance], ...] = ()
    schema: str = SCHEMA

    @property
    def best(self) -> tuple[Change, ...]:
        """The best change of each case that passes all stages."""
        changes: dict[str, Change] = {}
        for offer in self.changes:
            if not offer.change.fails:
                changes.setdefault(offer.case, offer.change)
        return tuple(changes.values())

    def accepting(self, problem: Problem) -> Acceptance | None:
        """What accepts a problem."""
        return next((one for case, one in self.accepted if case == problem.case and one.key in problem.keys), None)

    def text(self, width: int = 100, *, color: bool = False) -> str:
        """The report for a terminal of this width."""
        return terminal(report_view(self), width, color=color)

    def html(self) -> str:
        """The report as a page that needs no other file."""
        return html(f"ddefuzz check {self.target}", report_view(self))

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.html()

    def patch(self) -> str:
        """The best change of each case as one unified diff, for `git apply` or `patch -p1`. Empty if there is none."""
        return unified(together(self.best))


def failed(captures: Iterable[CaptureResult], accepted: Iterable[tuple[str, Acceptance]] = ()) -> bool:
    """Whether a capture or eager failed, a captured program is wrong, or nothing of some case was judged.

    Size-oblivious semantics do not count, nor do captures all of whose problems are accepted. Eager counts as judged
    only where nothing is captured.
    """
    captures = tuple(captures)
    fine = {(case, one.key) for case, one in accepted}
    counted = [one for one in captures if not one.semantics.startswith(SIZE_OBLIVIOUS.mechanism)]
    of_cases: dict[str, list[CaptureResult]] = {}
    for capture in counted:
        of_cases.setdefault(capture.case, []).append(capture)

    def is_judged(of_case: list[CaptureResult]) -> bool:
        in_stages = [one for one in of_case if one.stage != "eager"] or of_case
        return any(one.outcome != "not-judged" for one in in_stages)

    def is_accepted(capture: CaptureResult) -> bool:
        return bool(capture.keys) and fine >= {(capture.case, key) for key in capture.keys}

    return (
        any(one.outcome not in ("ok", "captured", "not-judged") and not is_accepted(one) for one in counted)
        or not captures
        or not all(map(is_judged, of_cases.values()))
    )


def acceptable(report: Report, reason: str, expires: date | None) -> tuple[Acceptance, ...]:
    """The problems that make a report fail. The cases of the report have the names of their targets."""
    failing = {(one.case, key) for one in report.captures if failed([one]) for key in one.keys}
    return tuple(
        Acceptance(problem.case, key, reason, expires, one_line(what(problem)))
        for problem in report.problems
        for key in problem.keys
        if (problem.case, key) in failing
    )


def captures_of(runs: CaseRuns) -> tuple[CaptureResult, ...]:
    """The captures of a case, and eager if the case fails there."""
    observations = [one.observation for one in runs.tried]
    refused = refused_by_eager(observations)
    failures = failures_of(runs.tried)
    results = []
    for seen in observations:
        place = (seen.stage, seen.semantics)
        own = [one for one in failures if (one.failure.observation.stage, one.failure.observation.semantics) == place]
        wrong = [one.failure.evidence for one in own if row_of(one.failure.kind).wrong]
        why = _not_compared(seen)
        result = CaptureResult(
            runs.case,
            seen.stage,
            "wrong" if wrong else "captured" if why else seen.outcome,
            seconds=round(seen.seconds, 3),
            cpu_seconds=round(seen.cpu_seconds, 3),
            semantics=str(seen.semantics),
            reason=wrong[0] if wrong else why or seen.reason,
            exception=exception_of(seen),
            verdict=_verdict(seen, observations),
            keys=tuple(dict.fromkeys(one.signature.key for one in own)),
            calls=seen.calls,
        )
        if refused is not None and seen.stage != "eager" and seen.outcome != "ok":
            why = "cannot be built" if refused.outcome == "not-judged" else "fails in eager"
            reason = f"it {why}: {exception_of(refused) or refused.reason}"
            result = msgspec.structs.replace(result, outcome="not-judged", reason=reason)
        results.append(result)
    return tuple(results)


def _not_compared(seen: Observation) -> str:
    """Why a captured program was not compared with eager; empty if it was, or if nothing was captured."""
    if seen.outcome != "ok" or seen.stage not in CAPTURE_STAGES:
        return ""
    if not seen.calls:
        return "not called"
    compared = [call for call in seen.calls if call.agreement != "incomparable"]
    return "" if compared else f"not compared: {seen.calls[0].why.removeprefix('not compared: ')}"


def _verdict(observation: Observation, observations: Sequence[Observation]) -> Verdict | None:
    if observation.stage not in TRACED or observation.semantics != EXPLICIT:
        return None
    others = [one for one in observations if one.stage == observation.stage and one.semantics != EXPLICIT]
    second = next((one for one in others if one.semantics == SIZE_OBLIVIOUS), others[0] if others else None)
    return None if second is None and needs_second_run(observation) else verdict(observation, second)


MOST_CALLERS = 8  # how many lines of a chain of calls are shown: the innermost ones
FEWEST_IN_COMMON = 3  # from how many calls on those that two problems share are shown once

OUTCOME_STYLES: dict[CaptureOutcome, Style] = {"ok": "good", "captured": "warn", "not-judged": "warn"}
"""The styles of outcomes. All others are bad."""


def report_view(report: Report) -> Iterator[Block]:
    """The report for people."""
    for case in dict.fromkeys(one.case for one in report.captures):
        yield from _case_view(report, case)
    if lines := tuple(offers_lines(report)):
        yield Items(lines)
    verdicts = verdicts_line(one.verdict for one in report.captures)
    if verdicts and len({one.semantics for one in report.captures}) > 1:
        yield Paragraph(f"verdicts: {verdicts}", style="dim")


def _case_view(report: Report, case: str) -> Iterator[Block]:
    captures = [one for one in report.captures if one.case == case]
    problems = [one for one in report.problems if one.case == case]
    yield Heading(headline(case, captures, problems), 1)
    yield _captures_table(captures, problems)
    yield _facts([("note", *(text for of_case, text in report.notes if of_case == case))])
    for number, problem in enumerate(problems, 1):
        owner = str(problem.owner)
        yield Heading(f"{number}. {owner[:1].upper()}{owner[1:]}: {what(problem)}")
        yield _facts(_problem_facts(problem, problems[: number - 1], report))
    changes = [one.change for one in report.changes if one.case == case]
    for advice in (one for of_case, one in report.advice if of_case == case):
        for number, change in enumerate(changes, 1):
            yield from change_view(number, change, problems)
        facts = list(advice_facts(advice, changes, problems))
        is_named = ":" in report.target or leads_to_file(Path(report.target))
        if is_named and not changes and any(problem.owner.kind == "PyTorch" for problem in problems):
            command = f"ddefuzz minimize {shell_word(report.target)}"
            facts.append(("report", f"`{command}` makes a small program of PyTorch's part"))
        yield _facts(facts)


def _facts(rows: Iterable[tuple[str, ...]], style: Style = "") -> Facts:
    """Names and their lines, which are foreign texts."""
    values = (
        (name, [part for line in lines for part in ("\n", Span(one_line(line), style=style))]) for name, *lines in rows
    )
    return Facts(tuple((name, tuple(parts[1:])) for name, parts in values))


def headline(case: str, captures: Sequence[CaptureResult], problems: Sequence[Problem]) -> str:
    """Whether the case is captured, and in which captures."""
    explicit = [one for one in captures if not one.semantics.startswith(SIZE_OBLIVIOUS.mechanism)]
    if refused := next((one for one in explicit if one.stage == "eager" and one.outcome != "ok"), None):
        why = "cannot be built" if refused.outcome == "not-judged" else "fails in eager, without any capture"
        return f"{case} {why}: it cannot be judged."
    judged = [one for one in explicit if one.stage in TRACED]
    by_outcome = {
        words: [one.stage for one in judged if one.outcome in outcomes]
        for words, outcomes in (
            ("captured in", ("ok",)),
            ("captured, but not compared in", ("captured",)),
            ("captured, but wrong in", ("wrong",)),
            ("fails in", ("fail", "crash", "timeout")),
            ("not judged in", ("not-judged",)),
        )
    }
    where = "; ".join(f"{words} {', '.join(stages)}" for words, stages in by_outcome.items() if stages)
    exporting = [one.outcome for one in judged if one.stage in ("export", "export-strict")]
    if not exporting:
        return f"{case}: {where}."
    captured = [outcome in ("ok", "captured") for outcome in exporting]
    verb = "exports" if all(captured) else "exports in part" if any(captured) else "does not export"
    return f"{case} {verb}: {where}.{_count(problems)}"


def _count(problems: Sequence[Problem]) -> str:
    """How many problems there are, and how many of them neither stop capture nor make a captured program wrong."""
    minor = sum(problem.is_minor for problem in problems)
    if not problems:
        return ""
    some = "" if minor == len(problems) else f"{minor} of them "
    verbs = "stops capture nor makes" if minor == 1 else "stop capture nor make"
    harmless = f"; {some}neither {verbs} its result wrong" if minor else ""
    return f" {counted(len(problems), 'problem')}{harmless}."


def _captures_table(captures: Sequence[CaptureResult], problems: Sequence[Problem]) -> Table:
    """One row for each capture. The columns of semantics are shown only if there are several."""
    several = len({one.semantics for one in captures}) > 1
    rows: list[tuple[Inline, ...]] = []
    for capture in captures:
        numbers = [str(at) for at, problem in enumerate(problems, 1) if set(problem.keys) & set(capture.keys)]
        words = f"problem {', '.join(numbers)}" if numbers else capture.reason or capture.exception or ""
        compared = (capture.semantics, capture.verdict or "") if several else ()
        outcome = Span(capture.outcome, style=OUTCOME_STYLES.get(capture.outcome, "bad"))
        rows.append((capture.stage, outcome, f"{capture.seconds:.1f}", *compared, words))
    titles = ("capture", "outcome", "seconds", *(("semantics", "verdict") if several else ()), "says")
    return table(titles, rows, folding=("says",))


def what(problem: Problem) -> str:
    """What is wrong, in one line: the question that could not be decided, or the exception."""
    evidence, site = problem.classified.failure.evidence, problem.classified.signature.site
    if problem.kind not in KINDS:
        row = row_of(problem.kind)
        return f"{'captured, but wrong' if row.wrong else row.meaning}: {evidence}"
    if problem.expression is not None:
        by = "a branch" if site.module == USER_CODE else str(site)
        return f"{by} needs `{problem.expression}`, which depends on data"
    return exception_of(problem.observation) or evidence or f"{problem.kind} in {site}"


def _problem_facts(problem: Problem, before: Sequence[Problem], report: Report) -> Iterator[tuple[str, ...]]:
    signature, cause = problem.classified.signature, problem.classified.cause
    exception = exception_of(problem.observation)
    yield "stops" if problem.kind in KINDS else "found in", ", ".join(problem.stages)
    if signature.site.module != USER_CODE:
        is_said = signature.anchor in (exception or "") or "Error: " in signature.anchor
        yield "where", str(signature.site) if is_said else f"{signature.site}  [{signature.anchor}]"
    yield "module", problem.module
    yield "called by", *_chain_lines(problem, before)
    if problem.observation.raised is not None:
        yield "variables", ", ".join(f"{name} = {value}" for name, value in problem.observation.raised.variables)
    for symbol in problem.symbols:
        first, *others = origin_of(symbol).split(", dim ")
        more = f" (and {counted(len(others), 'other dim')} of the same size)" if others else ""
        yield "size", f"{symbol.symbol} = {first}{more}"
    if problem.expression is not None and exception is not None:
        yield "error", exception.partition(":")[0] or exception
    if problem.is_minor:
        yield "note", "this does not stop capture, and the captured program computes the values of eager"
    elif cause == "user" and problem.owner.kind == "package":
        yield "cause", f"{cause}: {problem.owner} itself branches on data"
    else:
        yield "cause", f"{cause}: {MEANINGS[cause].meaning}"
    if problem.about_data is False and problem.control is not None:
        yield "not data", "it fails with static sizes as well, so that sizes and data are not to blame"
    yield "what to do", problem.remedy
    if problem.answers:
        answers = ", ".join(f"{answer.value} in {answer.stage}" for answer in problem.answers)
        yield "answered", f"{answers}, so that the capture continued"
    if problem.consequence:
        yield "note", "seen only after answers to the problems above: one of these may have led to it"
    for finding in report.known:
        if finding.id in problem.keys:
            yield "known", str(finding)
    yield "key", ", ".join(problem.keys)
    yield "accepted", str(report.accepting(problem) or "")


def _chain_lines(problem: Problem, before: Sequence[Problem]) -> Iterator[str]:
    """The innermost calls. Calls that an earlier problem has too are shown there only."""
    chain = without_wrappers(problem.chain)
    common = [in_common(chain, without_wrappers(other.chain)) for other in before]
    most = max(common, default=0)
    left_out = max(len(chain) - MOST_CALLERS, most)
    if most >= FEWEST_IN_COMMON and left_out == most:
        yield f"(the first {counted(most, 'call')} of problem {common.index(most) + 1}, then)"
    elif (left_out := len(chain) - MOST_CALLERS) > 0:
        yield f"({counted(left_out, 'outer call')} left out)"
    named: set[str] = set()
    for caller in chain[max(left_out, 0) :]:
        package = str(caller.owner) if caller.owner.kind == "package" else ""
        whose = f"  ({package})" if package and package not in named else ""
        named.add(package)
        code = caller.code.partition("\n")[0]
        yield f"{caller.file}:{caller.line} {caller.function}: {code}{whose}"


def without_wrappers(chain: tuple[Caller, ...]) -> tuple[Caller, ...]:
    """A chain without the calls by which a package only passes its arguments on."""
    return tuple(
        one
        for at, one in enumerate(chain, 1)
        if at == len(chain) or one.owner.kind != "package" or not one.code.endswith("*args, **kwargs)")
    )


def in_common(chain: tuple[Caller, ...], other: tuple[Caller, ...]) -> int:
    """How many outer calls two chains share. The innermost call of `chain` is not counted."""
    pairs = zip(chain[:-1], other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def change_view(number: int, change: Change, problems: Sequence[Problem] = ()) -> Iterator[Block]:
    """A change in words, then its diff and the code to paste."""
    fixes = {one.does: _fixes(one, problems) for one in change.fixes}
    if len(fixes) > 1:
        parts = [f"{does}: {words}" if words else does for does, words in fixes.items()]
        head = [f"{len(fixes)} parts ({MEANING[change.kind]})", *parts]
    else:
        head = [f"{change.does} ({MEANING[change.kind]})", *filter(None, fixes.values())]
    passes = f"passes {', '.join(change.passes)}; agrees with eager on {counted(change.agrees, 'set')} of inputs"
    if change.is_live:
        head.append("tried on the functions in this process: their module cannot be imported again")
    failing = [f"this is not enough: it {change.fails}"] if change.fails else []
    style: Style = "warn" if change.fails else ""
    yield _facts([(f"change {number}", *head, passes, *failing, *change.refuses)], style)
    if change.diff:
        yield Code(change.diff, "diff")
    if change.paste:
        yield Paragraph("to paste, in place of what lies outside of your project:")
        yield Code(change.paste)


def _fixes(part: Fix, problems: Sequence[Problem]) -> str:
    """Which problems are gone with a part of a change, by their numbers. Empty if that is known of none."""
    numbers = [
        str(number)
        for number, problem in enumerate(problems, 1)
        if problem.kind in KINDS
        and (set(problem.keys) & set(part.keys) or (part.continued and not problem.stages and not problem.consequence))
    ]
    return f"fixes {'problem' if len(numbers) == 1 else 'problems'} {', '.join(numbers)}" if numbers else ""


def advice_facts(
    advice: Advice, changes: Sequence[Change] = (), problems: Sequence[Problem] = ()
) -> Iterator[tuple[str, ...]]:
    """What else there is to say about a case, and what to do next: names, each with its lines.

    `problems` are in the order of their numbers.
    """
    if not changes:
        yield "why", advice.summary
    yield "tried", *(f"{one.does}: {one.ended}" for one in advice.tried)
    yield "left", advice.remaining
    apart = [number for number, problem in enumerate(problems, 1) if problem.about_data is False]
    if changes and changes[0].fails:
        yield "next", "apply change 1, run this command again, and see what is left"
    elif changes and changes[0].files:
        yield "next", "`ddefuzz check --apply` writes change 1 to your code, `--patch FILE` writes it as a diff"
    elif changes:
        yield "next", "paste the code of change 1 and run this command again"
    elif apart:
        yield "next", f"fix problem {apart[0]} first, which is not about data, and run this command again"
    elif advice.stopped:
        yield "next", "give the search more time: --budget SECONDS ended it before all changes were tried"
    elif by_hand := [one for one in problems if not one.remedy and one.classified.cause in BY_HAND]:
        own = own_caller(by_hand[0].chain)
        where = f", at {own.file}:{own.line}" if own is not None else ""
        yield "next", f"no change that was tried helps. By hand{where}: {BY_HAND[by_hand[0].classified.cause]}"


def offers_lines(report: Report) -> Iterator[str]:
    """A line for each cause, such as `user: 7 cases with a problem, best change: 3 rewrite, 4 none`.

    The cause of a case is that of its first problem. There are no lines for a single case.
    """
    causes: dict[str, str] = {}
    for problem in report.problems:
        causes.setdefault(problem.case, problem.classified.cause)
    if len(causes) < 2:
        return
    best: dict[str, ChangeKind] = {}
    for offer in report.changes:
        if not offer.change.fails:
            best.setdefault(offer.case, offer.change.kind)
    for cause, cases in Counter(causes.values()).most_common():
        kinds = Counter(best.get(case) for case, of_case in causes.items() if of_case == cause)
        counts = [f"{kinds[kind]} {kind}" for kind in HARM if kinds[kind]]
        counts += [f"{kinds[None]} none"] if kinds[None] else []
        yield f"{cause}: {counted(cases, 'case')} with a problem, best change: {', '.join(counts)}"
