"""What differs between two versions of torch: in what the same programs did, or in what databases keep of campaigns.

Nothing is run here. A finding that is another one in the same program has moved. It is then neither gone nor new. A
program that one of the two could not judge is left out of the comparison.

A database keeps findings and guard sites, and not the result of each case. So a difference may also come from cases
that only one side has run: `Stored.campaigns` says what was run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError
from ddefuzz.escape import whole_number
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.listing import campaigns
from ddefuzz.findings.model import Campaign, Finding
from ddefuzz.findings.url import DatabaseUrl, parse_url, without_passwords
from ddefuzz.show.blocks import Block, Items, Span, TableRow, counted, table
from ddefuzz.show.record import Outcome, Report, Result
from ddefuzz.versions.side_by_side import CaseSeen, Side

Kind: TypeAlias = Literal[
    "new finding", "gone finding", "moved finding", "new guard site", "gone guard site", "changed answer"
]
"""
new finding      fails in the new version only
gone finding     fails in the old version only
moved finding    the same programs fail in both, at another site, with another condition or kind
new guard site   a place where a guard is undecided in the new version only
gone guard site  a place where a guard is undecided in the old version only
changed answer   the same guard in the same program takes another fallback, or raises in one of the two
"""

KINDS: tuple[Kind, ...] = get_args(Kind)

OUTCOMES: dict[Kind, Outcome] = {
    "new finding": "failed",
    "gone finding": "passed",
    "moved finding": "known",
    "new guard site": "known",
    "gone guard site": "passed",
    "changed answer": "known",
}

MOST_CAMPAIGNS: Final = 100_000

T = TypeVar("T")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One row: `what` was `old` and is `new`, in so many cases. `program` is that of the first case."""

    id: str
    kind: Kind
    what: str
    old: str = ""
    new: str = ""
    cases: int = 0
    number: int = 0
    program: str = ""


class Sightings(NamedTuple):
    """How many cases show a thing, and the program and the number of the first."""

    cases: int
    program: str
    number: int = 0


class DiffResult(NamedTuple):
    """All differences, the number of programs that were compared, and why others were not or what limits this."""

    differences: tuple[Difference, ...]
    cases: int
    not_judged: tuple[str, ...]

    @property
    def counts(self) -> dict[Kind, int]:
        """The number of differences of each kind."""
        return {kind: sum(one.kind == kind for one in self.differences) for kind in KINDS}


def _differences(
    findings: tuple[Mapping[Signature, Sightings], Mapping[Signature, Sightings]],
    moved: Mapping[tuple[Signature, Signature], Sightings],
    sites: tuple[Mapping[str, Sightings], Mapping[str, Sightings]],
    answers: Mapping[tuple[str, str, str], Sightings],
) -> tuple[Difference, ...]:
    """The rows, of what the old and the new side have. `answers` are by guard, old answer and new answer."""
    (was, now), (before, after) = findings, sites
    gone = was.keys() - now.keys() - {one for one, _ in moved}
    arrived = now.keys() - was.keys() - {other for _, other in moved}
    rows = [
        _row("moved finding", f"{one.key} {other.key}", "", seen, str(one), str(other))
        for (one, other), seen in moved.items()
    ]
    rows += [_row("new finding", one.key, str(one), now[one]) for one in arrived]
    rows += [_row("gone finding", one.key, str(one), was[one]) for one in gone]
    rows += [_row("new guard site", site, site, after[site]) for site in after.keys() - before.keys()]
    rows += [_row("gone guard site", site, site, before[site]) for site in before.keys() - after.keys()]
    rows += [_row("changed answer", guard, guard, seen, old, new) for (guard, old, new), seen in answers.items()]
    return tuple(sorted(rows, key=lambda row: (KINDS.index(row.kind), -row.cases, row.id)))


def _row(kind: Kind, id_: str, what: str, of: Sightings, old: str = "", new: str = "") -> Difference:
    cases, program, number = of
    return Difference(id=id_, kind=kind, what=what, old=old, new=new, cases=cases, number=number, program=program)


def compared(old: Iterable[CaseSeen], new: Iterable[CaseSeen]) -> DiffResult:
    """Compare the cases that both have: the same number, stage and text."""
    later = {_key(case): case for case in new}
    both = [(case, later[_key(case)]) for case in old if _key(case) in later]
    both.sort(key=lambda pair: (pair[0].number, pair[0].stage))
    judged: list[Pair] = []
    left_out = []
    for before, after in both:
        lost = next((case for case in (before, after) if case.outcome == "not-judged"), None)
        if lost is None:
            judged.append((before, after))
        else:
            left_out.append(f"case {before.number}: {lost.torch}: {lost.reason}")

    def findings(side: int) -> Mapping[Signature, Sightings]:
        return _by(judged, lambda pair: pair[side].failures)

    def sites(side: int) -> Mapping[str, Sightings]:
        return _by(judged, lambda pair: sorted({guard.site for guard in pair[side].guards}))

    rows = _differences(
        (findings(0), findings(1)), _by(judged, _moved), (sites(0), sites(1)), _by(judged, _changed_answers)
    )
    return DiffResult(rows, len(judged), tuple(left_out))


Pair: TypeAlias = tuple[CaseSeen, CaseSeen]
"""The results of one program: the old one, and the new one."""


def _key(case: CaseSeen) -> tuple[int, str, str]:
    return case.number, case.stage, case.text


def _by(pairs: Sequence[Pair], of: Callable[[Pair], Iterable[T]]) -> dict[T, Sightings]:
    cases_of: dict[T, list[CaseSeen]] = defaultdict(list)
    for pair in pairs:
        for item in of(pair):
            cases_of[item].append(pair[0])
    return {one: Sightings(len(cases), cases[0].text, cases[0].number) for one, cases in cases_of.items()}


def _of_signature(signature: Signature) -> str:
    return signature.key  # the parts of a site may be None, and have no order


def _moved(pair: Pair) -> Iterator[tuple[Signature, Signature]]:
    before, after = (set(case.failures) for case in pair)
    yield from product(sorted(before - after, key=_of_signature), sorted(after - before, key=_of_signature))


def _changed_answers(pair: Pair) -> Iterator[tuple[str, str, str]]:
    """Guards that both versions leave undecided in the same program, with other answers."""
    before, after = map(_given, pair)
    for guard in sorted(before.keys() & after.keys()):
        if before[guard] != after[guard]:
            yield guard, before[guard], after[guard]


def _given(case: CaseSeen) -> dict[str, str]:
    answers: dict[str, set[str]] = defaultdict(set)
    for guard in case.guards:
        answers[f"{guard.site} [{guard.shape}]"].add(guard.answer)
    return {guard: " and ".join(sorted(given)) for guard, given in answers.items()}


class StoredSide(NamedTuple):
    """What a database has seen under one version of torch, of one campaign or of all."""

    name: str
    torch: str
    campaigns: tuple[Campaign, ...]
    findings: Mapping[Signature, Sightings]
    sites: Mapping[str, SiteRecord]

    @property
    def cases(self) -> int:
        """The cases that its campaigns have run."""
        return sum(one.next_index + len(one.ahead) for one in self.campaigns)


def is_stored(typed: str) -> bool:
    """Whether a side is a database or a campaign."""
    return "://" in typed or whole_number(typed) is not None


def stored_side(typed: str, db: DatabaseUrl) -> StoredSide:
    """The side `[NAME=]URL[#VERSION|#CAMPAIGN]`, or the number of a campaign of `db`. Raises `InputError`."""
    name, separator, rest = typed.partition("=")
    named = separator and "://" in rest and "/" not in name
    text, _, which = (rest if named else typed).partition("#") if "://" in typed else ("", "", typed)
    shown = without_passwords(typed)
    with Database.open(parse_url(text) if text else db, create=False) as database:
        return _stored(database, which, name if named else shown, shown)


def _stored(database: Database, which: str, name: str, typed: str) -> StoredSide:
    """What the database has seen. `which` is a version of torch, the number of a campaign, or empty: the only version.

    Of a campaign it has the findings that were seen while it ran. Guard sites are those of all campaigns under its
    torch, because a database keeps them by version.
    """
    known = database.read(lambda session: campaigns(session, MOST_CAMPAIGNS))
    findings = database.findings()
    by_torch = {campaign_torch(one) for one in known} | {seen.torch for one in findings for seen in one.occurrences}
    listed = ", ".join(sorted(by_torch)) or "none"
    number = whole_number(which)
    chosen = [one for one in known if one.id == number]
    if number is not None and not chosen:
        ids = ", ".join(str(one.id) for one in reversed(known)) or "none"
        raise InputError(f"{typed}: found no campaign {which}, expected one of: {ids}")
    versions = {campaign_torch(one) for one in chosen} or {
        one for one in by_torch if which in ("", one, one.partition("+")[0])
    }
    if len(versions) != 1:
        raise InputError(f"{typed}: expected one version of torch (URL#VERSION) or one campaign, found {listed}")
    (torch,) = versions
    return StoredSide(
        name,
        torch,
        tuple(chosen or (one for one in known if campaign_torch(one) == torch)),
        _seen(findings, torch, chosen),
        # without a line, because lines differ by version
        {f"{one.file}:{one.function or one.language} {one.call}".strip(): one for one in database.sites(torch)},
    )


def campaign_torch(campaign: Campaign) -> str:
    """The version of torch in what `generator_key` says of a campaign."""
    match = re.search(r" torch=(\S+)", campaign.generator)
    return match[1] if match else ""


def _seen(findings: Iterable[Finding], torch: str, within: Iterable[Campaign]) -> dict[Signature, Sightings]:
    spans = [(one.started, one.updated) for one in within]
    by_signature: dict[Signature, Sightings] = {}
    for finding in findings:
        counts = [
            seen.count
            for seen in finding.occurrences
            if seen.torch == torch
            and (not spans or any(seen.first_seen <= end and seen.last_seen >= start for start, end in spans))
        ]
        if counts:
            before = by_signature.get(finding.signature)
            program = finding.original or finding.minimal or ""
            by_signature[finding.signature] = Sightings(
                sum(counts) + (before.cases if before else 0), before.program if before else program
            )
    return by_signature


def stored_differences(old: StoredSide, new: StoredSide) -> DiffResult:
    """What differs. Findings with the same program but another signature have moved. Raises NothingRanError."""
    gone, arrived = old.findings.keys() - new.findings.keys(), new.findings.keys() - old.findings.keys()
    by_program: dict[str, list[Signature]] = defaultdict(list)
    for signature in sorted(arrived, key=_of_signature):
        by_program[new.findings[signature].program].append(signature)
    moved = {
        (one, other): new.findings[other]
        for one in sorted(gone, key=_of_signature)
        if (program := old.findings[one].program)
        for other in by_program[program]
    }
    before, after = (
        {site: Sightings(one.cases, one.example) for site, one in side.sites.items()} for side in (old, new)
    )
    answers = {
        (site, was, now): after[site]
        for site, one in new.sites.items()
        if site in old.sites and (was := _answers(old.sites[site])) != (now := _answers(one))
    }
    rows = _differences((old.findings, new.findings), moved, (before, after), answers)
    note = _unlike(old, new)
    return DiffResult(rows, min(old.cases, new.cases), (note,) if note else ())


def _answers(record: SiteRecord) -> str:
    """All answers of a site, over its cases."""
    return " and ".join([*sorted(record.fallbacks), *(["raised"] if record.raised else [])])


def _unlike(old: StoredSide, new: StoredSide) -> str:
    """A sentence if the campaigns of both sides have not run the same cases, else nothing."""
    ran = [sorted(map(_ran, side.campaigns)) for side in (old, new)]
    if ran[0] == ran[1]:
        return ""
    campaigns = " and ".join(
        f"{side.name}: {'; '.join(one) or 'no campaign'}" for side, one in zip((old, new), ran, strict=True)
    )
    return f"The campaigns differ, and so may their cases. {campaigns}"


def _ran(campaign: Campaign) -> str:
    """What decides the cases of a campaign, without torch."""
    options = " ".join(f"{key}={value}" for key, value in sorted(campaign.options.items()) if key != "budget")
    return f"profile {campaign.profile}, seed {campaign.seed}, {campaign.next_index} cases, {options}"


def diff_view(compared: DiffResult, old: Side | StoredSide, new: Side | StoredSide) -> Iterator[Block]:
    """The table, and the counts. What is stored has no numbers of cases."""
    numbered = ("first",) if isinstance(old, Side) else ()
    if compared.differences:
        rows = (
            TableRow(
                (row.kind, str(row.cases), *(str(row.number) for _ in numbered), row.what or row.old),
                Span(_change(row), style="dim"),
            )
            for row in compared.differences
        )
        yield table(("change", "cases", *numbered, "what"), rows, folding=("what",))
    yield Items(tuple(_totals(compared, old, new)))


def _change(row: Difference) -> str:
    if row.kind == "moved finding":
        return f"now {row.new}"
    return f"{row.old} before, {row.new} now" if row.old or row.new else ""


def _totals(compared: DiffResult, old: Side | StoredSide, new: Side | StoredSide) -> list[str]:
    counts = ", ".join(f"{number} {kind}" for kind, number in compared.counts.items() if number) or "no difference"
    if isinstance(old, StoredSide) or isinstance(new, StoredSide):
        lines = [
            f"{one.name} (torch {one.torch}): {counted(one.cases, 'case')} in "
            f"{counted(len(one.campaigns), 'campaign')}, {counted(len(one.findings), 'finding')}, "
            f"{counted(len(one.sites), 'guard site')}"
            for one in (old, new)
            if isinstance(one, StoredSide)
        ]
        return [*lines, *compared.not_judged, counts]
    lines = [
        f"{old.name} (torch {old.torch}) and {new.name} (torch {new.torch}): "
        f"{counted(compared.cases, 'program')} compared"
    ]
    if compared.not_judged:
        lines.append(f"{len(compared.not_judged)} not judged by one of them, such as {compared.not_judged[0]}")
    return [*lines, counts]


def diff_report(compared: DiffResult, old: Side | StoredSide, new: Side | StoredSide) -> Report:
    """The differences as a report. A new finding failed."""
    documents = tuple(msgspec.to_builtins(row) for row in compared.differences)
    return Report(
        title=f"ddefuzz diff: torch {old.torch} and {new.torch}",
        torch=f"{old.torch}, {new.torch}",
        results=tuple(
            Result(
                id=f"{row.kind}: {row.id}",
                rule=row.id.partition(" ")[0].rpartition("-")[0] if "finding" in row.kind else "dde",
                outcome=OUTCOMES[row.kind],
                title=f"{row.kind}: {row.what or row.old}",
                message=_change(row),
                program=row.program,
                facts=(("cases", str(row.cases)), ("first case", str(row.number))),
            )
            for row in compared.differences
        ),
        facts=tuple(_totals(compared, old, new)),
        document={
            "schema": "ddefuzz.diff/1",
            "old": {"name": old.name, "torch": old.torch},
            "new": {"name": new.name, "torch": new.torch},
            "cases": compared.cases,
            "not_judged": compared.not_judged,
            "counts": compared.counts,
            "differences": documents,
        },
        records=documents,
    )
