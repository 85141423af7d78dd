"""What shows a finding: its facts as names and values, the rows of its experiment, its program, the stack from the
user's line to the call site, torch's source there, and findings like it. The stack is without plumbing (internal
frames).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from ddefuzz.answers.model import Answers, PatchEvidence, Tally
from ddefuzz.answers.patch import source_of
from ddefuzz.classify.anchor import question
from ddefuzz.classify.cause import MEANINGS, PROOFS
from ddefuzz.classify.failure import Failure, decisive
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import function_name
from ddefuzz.errors import DdefuzzError
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding, FindingSummary, id_of, sequence_of
from ddefuzz.oracles.capture import site_frame, stack_to
from ddefuzz.oracles.table import oracle_of, row_of
from ddefuzz.oracles.verdict import Verdict
from ddefuzz.repro.finding import finding_snippet
from ddefuzz.show.blocks import Block, Items, Table, TableRow, counted, table

AROUND = 3
"""Lines of torch's source shown before and after the site."""

MOST_SIMILAR = 4


class Lines(msgspec.Struct, frozen=True):
    """Lines of a file of the installed torch. `first` is the number of the first one, `line` that of the site."""

    path: str
    first: int
    line: int
    text: str


def snippet_of(finding: Finding) -> str:
    """The snippet for an issue, else the program."""
    try:
        return finding_snippet(finding)
    except DdefuzzError:  # too long, or a stage without a capture
        return finding.minimal or finding.original or "# a program of a user"


def site_lines(finding: Finding) -> Lines | None:
    """The lines of the installed torch around a Python site. None if it is C++, or another version of torch."""
    if finding.evidence is None:
        return None
    frame = oracle_of(finding.kind).frame(finding.evidence)
    if frame is None:
        frame = site_frame(finding.evidence, finding.site)
    source = source_of(frame.file) if frame is not None and frame.file.endswith(".py") else None
    if frame is None or source is None:
        return None
    lines = source.text.splitlines()
    if frame.code and (frame.line > len(lines) or frame.code.split("\n")[0].strip() not in lines[frame.line - 1]):
        return None  # the lines have moved since this finding was seen
    first = max(1, frame.line - AROUND)
    return Lines(frame.file, first, frame.line, "\n".join(lines[first - 1 : frame.line + AROUND]))


MOST_OF_MESSAGE = 4_000
"""Characters of torch's message."""


def message_of(finding: Finding) -> str:
    """The exception that decides, as torch prints it. Empty for what was captured."""
    if finding.evidence is None or finding.evidence.observation.outcome != "fail":
        return ""
    _, error = decisive(finding.evidence.observation)
    return f"{error.name}: {error.message}"[:MOST_OF_MESSAGE]


def similar(finding: Finding, others: Iterable[FindingSummary]) -> Sequence[FindingSummary]:
    """Findings at the same function, or of the same question in the same file."""

    def shared(other: FindingSummary) -> int:
        site, anchor = other.signature.site, other.signature.anchor
        same_file = site.module is not None and site.module == finding.site.module
        return 2 * (site == finding.site) + (same_file and anchor == finding.anchor)

    near = [other for other in others if other.id != finding.id and shared(other)]
    return sorted(near, key=lambda other: (-shared(other), other.id))[:MOST_SIMILAR]


def same_program(others: Iterable[FindingSummary]) -> tuple[str, str]:
    """The name and the value of the fact which other findings have the same smallest program."""
    return "same program", "\n".join(f"{one.id}: {one.title}" for one in others)


MARK = "→"


class StackLines(msgspec.Struct, frozen=True):
    """The lines of a stack, outermost frame first.

    `marked` says whether one of them is the site. `left_out` is the number of frames that are plumbing.
    """

    lines: tuple[str, ...]
    marked: bool
    left_out: int


def stack_to_site(failure: Failure, place: Site) -> StackLines:
    """The frames from the user's line on that are not plumbing. That at the site is marked."""
    stack = stack_to(failure, place)
    lines: list[str] = []
    for frame in stack.frames:
        mark = MARK if stack.site is not None and frame == stack.site else " "
        if not frame.file:
            lines.append(f"{mark} {function_name(frame.function)}  (C++)")
            continue
        lines.append(f"{mark} {frame.file}:{frame.line} in {frame.function}")
        if frame.code:
            lines.append(f"      {' '.join(frame.code.split())}")
    if stack.site is not None and place.language == "C++" and function_name(stack.site.function) != place.function:
        lines.append(f"      the compiler inlined {place.function} into {function_name(stack.site.function)}")
    return StackLines(tuple(lines), stack.site in stack.frames, stack.left_out)


VERDICTS: MappingProxyType[Verdict, str] = MappingProxyType(
    {
        "ok": "captured, as with size-oblivious semantics",
        "rescued": "captured, where size-oblivious semantics cannot decide a guard",
        "fails": "not captured",
        "changed": "captured as another graph than with size-oblivious semantics",
        "regressed": "not captured, but captured with size-oblivious semantics",
        "diverged": "the captured program computes other values than eager",
        "not-judged": "no verdict: a run was not judged",
    }
)
"""The verdicts: what happens with explicit unbacked semantics, compared with size-oblivious semantics."""


def verdicts_line(shown: Iterable[str | None]) -> str:
    """The meaning of the verdicts on a page, except `ok`."""
    names = set(shown) - {"ok"}
    return "; ".join(f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in names)


def _to_change(finding: Finding) -> str:
    """Who has to change what. Where no rule knows the cause, what a review has decided."""
    is_reviewed = finding.state in {"triaged", "reported", "fix-pending"}
    if finding.cause == "unclassified" and is_reviewed:
        return "PyTorch: the code at the site. A person has read it"
    return MEANINGS[finding.cause].fix


def facts_of(finding: Finding) -> tuple[tuple[str, str], ...]:
    """Names and values. A value is empty if it is not known."""
    begun, ended = ((time or "")[:16].replace("T", " ") for time in (finding.first_seen, finding.last_seen))
    times = "once" if finding.count == 1 else f"{finding.count} times"
    seen_in = begun if begun == ended else f"{begun} to {ended}"
    stages_of = {name: [stage for stage, seen in finding.verdicts.items() if seen == name] for name in VERDICTS}
    verdicts = [f"{name} in {', '.join(stages)} ({VERDICTS[name]})" for name, stages in stages_of.items() if stages]
    of = f" of {finding.duplicate_of}" if finding.duplicate_of else ""
    return (
        ("kind", finding.kind),
        ("severity", row_of(finding.kind).severity),
        ("cause", f"{finding.cause}: {MEANINGS[finding.cause].meaning}"),
        ("what to change", _to_change(finding)),
        ("site", f"{finding.site} ({finding.site.language})"),
        ("code at the site", finding.anchor),
        ("guard in", ":".join(map(str, native_place(finding) or ()))),
        ("condition", _undecided(finding)),
        ("calls", "\n".join(_calls(finding))),
        *(oracle_of(finding.kind).facts(finding.evidence) if finding.evidence is not None else ()),
        ("reached by", ", ".join(finding.shown_ops)),
        ("also reached by", ", ".join(op for op in finding.ops if op not in finding.shown_ops)),
        ("depends on data", _depends_on_data(finding)),
        ("verdicts", "\n".join(verdicts)),
        ("torch", ", ".join(finding.torch_versions)),
        ("state", f"{finding.state}{of}: {ROWS[finding.state].meaning}"),
        ("fixed in", ", ".join(finding.fixed_in)),
        ("returned", _ancestor(finding)),
        ("decision for", ", ".join(finding.known_in)),
        ("decision until", finding.expires),
        ("owner", finding.owner),
        ("priority", finding.priority),
        ("labels", ", ".join(finding.labels)),
        ("models", ", ".join(finding.models)),
        ("confirmed", _confirmed(finding)),
        ("seen", f"{times}, {seen_in} UTC" if begun and ended else ""),
        ("former ids", ", ".join(finding.former)),
        ("links", "\n".join(finding.links)),
    )


def native_place(finding: Finding) -> tuple[str, int] | None:
    """The file and line in C++ that the guard recorded. An operator of a SymInt records that of its header."""
    raised = finding.evidence.observation.raised if finding.evidence is not None else None
    return (raised.place.file, raised.place.line) if raised is not None and raised.place.language == "C++" else None


def _ancestor(finding: Finding) -> str:
    """The fixed finding of the same signature before this one."""
    sequence = sequence_of(finding.id, finding.signature)
    if sequence is None or sequence == 1:
        return ""
    return f"{id_of(finding.signature.key, sequence - 1)} was fixed, and the failure occurred again"


def _calls(finding: Finding) -> Iterator[str]:
    """The calls of the captured program and of eager, at each size that shows the failure."""
    for call in finding.evidence.observation.calls if finding.evidence is not None else ():
        eager, captured = (
            "returns" if ended.returned else f"raises {ended.error}" for ended in (call.eager, call.captured)
        )
        ends = [f"eager {eager}, {'dynamo captures again' if call.recompiled else f'captured {captured}'}"]
        ends += map(str, call.differences)
        symbols = ", ".join(f"{name} = {value}" for name, value in call.symbols)
        yield f"at size {call.size}{f' ({symbols})' if symbols else ''}: {'; '.join(ends)}"


def _undecided(finding: Finding) -> str:
    """The guard that failed, as people and as torch write it. Symbols are those of one program, so it is named."""
    expression, plain_form = finding.expression, question(finding.expression)
    text = expression if plain_form == expression else f"{plain_form} (torch writes such a condition {expression})"
    if not expression or finding.shown is not None or finding.original is None:
        return text
    return f"{text}, in the program that it was found with"


def _depends_on_data(finding: Finding) -> str:
    """The results of the control runs, and what follows from them."""
    text = {True: "yes", False: "no", None: "not known"}[finding.data_dependent]
    if finding.control is None:
        return text if finding.data_dependent is not None else ""
    if finding.data_dependent and "fails" in (finding.control.static, finding.control.backed):
        text = "yes, torch's message says so"
    words = {
        "fails": "fails in the same way",
        "fails otherwise": "fails in another way",
        "not judged": "was not judged",
    }
    static, backed = (words.get(outcome, outcome) for outcome in (finding.control.static, finding.control.backed))
    if static == backed:
        return f"{text}. With static sizes and with backed dynamic sizes it {static}"
    return f"{text}. With static sizes it {static}, with backed dynamic sizes it {backed}"


def _confirmed(finding: Finding) -> str:
    if finding.confirmed is None:
        return "not yet: `ddefuzz minimize` runs its smallest program in new processes"
    k, n = finding.confirmed.k, finding.confirmed.n
    return f"{k} of {n} runs of the smallest program in new processes show the failure, in {finding.stage}"


TITLES = ("answer", "captured", "agrees", "refuses", "differs", "accepts")


def tallies_table(tallies: Iterable[Tally], details: Mapping[tuple[str, str], str] = MappingProxyType({})) -> Table:
    """A row for each answer of a guard or of a clause of it. `details` are below the rows."""
    rows = []
    for tally in tallies:
        sizes = (tally.agrees, tally.refuses, tally.differs, tally.accepts)
        captured = f"{tally.captures} of {tally.programs}" if tally.programs else "no"
        answer = f"{tally.answer}{f' for {tally.clause}' if tally.clause else ''}"
        rows.append(TableRow((answer, captured, *map(" ".join, sizes)), details.get((tally.clause, tally.answer), "")))
    return table(TITLES, rows, folding=TITLES[2:])


def evidence_of(document: Mapping[str, Any]) -> Iterator[Block]:
    """The blocks of a finding's document (`as_document`)."""
    if document["answers"] is not None:
        yield from evidence_blocks(msgspec.convert(document["answers"], Answers), document["expression"])


def evidence_blocks(answers: Answers, expression: str) -> Iterator[Block]:
    """What a finding keeps of its experiment on a guard: the rows, the verdict and what it means for the cause, and the
    patch.
    """
    if answers.tallies:
        yield tallies_table(answers.tallies)
    where = f"{counted(answers.programs, 'program')} in {answers.stage}, torch {answers.torch}"
    lines = [f"verdict: {answers.verdict} ({where})"]
    lines += [
        f"so its cause is {proof.cause}: {proof.why} (by {answers.extent})"
        for proof in PROOFS
        if proof.verdict == answers.verdict
    ][:1]
    if answers.patch is not None:
        what = "what the verdict says" if answers.verdict != "either answer here" else "the truth at usual sizes"
        fits = answers.fitting_patch(expression) is not None
        lines += [f"{'patch' if fits else f'also tried, but not {what}'}: {answers.patch.code}", *scores(answers.patch)]
    yield Items(tuple(lines))


def scores(patch: PatchEvidence) -> tuple[str, str]:
    """What a patch does to programs."""
    return f"kept programs: {patch.kept}", f"samples of torch: {patch.samples}"
