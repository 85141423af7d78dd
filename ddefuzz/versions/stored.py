"""Compare what databases keep of campaigns under two versions of torch. Nothing is run.

A database keeps findings and guard sites, and not the result of each case. So a difference may also come from cases
that only one side has run: `Stored.campaigns` says what was run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ddefuzz.classify.signature import Signature
from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import campaigns
from ddefuzz.findings.model import Campaign, Finding
from ddefuzz.versions.diff import KINDS, Difference

_TORCH: Final = re.compile(r" torch=(\S+)")
"""The version of torch in what `generator_key` says of a campaign."""

_MOST: Final = 100_000


class Seen(NamedTuple):
    """The sightings of a signature, and the program of the first one."""

    cases: int
    program: str


class Stored(NamedTuple):
    """What a database has seen under one version of torch, of one campaign or of all."""

    name: str
    torch: str
    campaigns: tuple[Campaign, ...]
    findings: Mapping[Signature, Seen]
    sites: Mapping[str, SiteRecord]

    @property
    def cases(self) -> int:
        """The cases that its campaigns have run."""
        return sum(one.next_index + len(one.ahead) for one in self.campaigns)


def stored(database: Database, which: str, name: str, typed: str) -> Stored:
    """What the database has seen. `which` is a version of torch, the number of a campaign, or empty: the only version.

    Of a campaign it has the findings that were seen while it ran. Guard sites are those of all campaigns under its
    torch, because a database keeps them by version. Raises `InputError`.
    """
    known = database.read(lambda session: campaigns(session, _MOST))
    found = database.findings()
    by_torch = {_torch(one) for one in known} | {seen.torch for one in found for seen in one.occurrences}
    listed = ", ".join(sorted(by_torch)) or "none"
    chosen = [one for one in known if which.isdigit() and one.id == int(which)]
    if which.isdigit() and not chosen:
        ids = ", ".join(str(one.id) for one in reversed(known)) or "none"
        raise InputError(f"{typed}: found no campaign {which}, expected one of: {ids}")
    versions = {_torch(one) for one in chosen} or {one for one in by_torch if which in ("", one, one.partition("+")[0])}
    if len(versions) != 1:
        raise InputError(f"{typed}: expected one version of torch (URL#VERSION) or one campaign, found {listed}")
    (torch,) = versions
    return Stored(
        name,
        torch,
        tuple(chosen or (one for one in known if _torch(one) == torch)),
        _findings(found, torch, chosen),
        {_site(one): one for one in database.sites(torch)},
    )


def _torch(campaign: Campaign) -> str:
    found = _TORCH.search(campaign.generator)
    return found[1] if found else ""


def _findings(found: Iterable[Finding], torch: str, within: Iterable[Campaign]) -> dict[Signature, Seen]:
    spans = [(one.started, one.updated) for one in within]
    by_signature: dict[Signature, Seen] = {}
    for finding in found:
        counts = [
            seen.count
            for seen in finding.occurrences
            if seen.torch == torch
            and (not spans or any(seen.first_seen <= end and seen.last_seen >= start for start, end in spans))
        ]
        if counts:
            before = by_signature.get(finding.signature)
            program = finding.original or finding.minimal or ""
            by_signature[finding.signature] = Seen(
                sum(counts) + (before.cases if before else 0), before.program if before else program
            )
    return by_signature


def _site(one: SiteRecord) -> str:
    """Its name without a line, because lines differ by version."""
    return f"{one.file}:{one.function or one.language} {one.call}".strip()


def differences(old: Stored, new: Stored) -> tuple[Difference, ...]:
    """What differs. Findings with the same program but another signature have moved."""
    gone, arrived = old.findings.keys() - new.findings.keys(), new.findings.keys() - old.findings.keys()
    by_program: dict[str, list[Signature]] = defaultdict(list)
    for one in sorted(arrived, key=_key):
        by_program[new.findings[one].program].append(one)
    moved = [
        (one, other)
        for one in sorted(gone, key=_key)
        if (program := old.findings[one].program)
        for other in by_program[program]
    ]
    rows = [
        Difference(
            id=f"{one.key} {other.key}",
            kind="moved finding",
            what="",
            old=str(one),
            new=str(other),
            cases=new.findings[other].cases,
            program=new.findings[other].program,
        )
        for one, other in moved
    ]
    rows += [
        Difference(id=one.key, kind="new finding", what=str(one), cases=seen.cases, program=seen.program)
        for one, seen in new.findings.items()
        if one in arrived - {other for _, other in moved}
    ]
    rows += [
        Difference(id=one.key, kind="gone finding", what=str(one), cases=seen.cases, program=seen.program)
        for one, seen in old.findings.items()
        if one in gone - {before for before, _ in moved}
    ]
    rows += [
        Difference(id=site, kind="new guard site", what=site, cases=one.cases, program=one.example)
        for site, one in new.sites.items()
        if site not in old.sites
    ]
    rows += [
        Difference(id=site, kind="gone guard site", what=site, cases=one.cases, program=one.example)
        for site, one in old.sites.items()
        if site not in new.sites
    ]
    rows += [
        Difference(
            id=site,
            kind="changed answer",
            what=site,
            old=_answers(old.sites[site]),
            new=_answers(one),
            cases=one.cases,
            program=one.example,
        )
        for site, one in new.sites.items()
        if site in old.sites and _answers(old.sites[site]) != _answers(one)
    ]
    return tuple(sorted(rows, key=lambda row: (KINDS.index(row.kind), -row.cases, row.id)))


def _key(signature: Signature) -> str:
    return signature.key  # the parts of a site may be None, and have no order


def _answers(one: SiteRecord) -> str:
    """All answers of a site, over its cases."""
    return " and ".join([*sorted(one.fallbacks), *(["raised"] if one.raised else [])])


def unlike(old: Stored, new: Stored) -> str:
    """A sentence if the campaigns of both sides have not run the same cases, else nothing."""
    ran = [sorted(map(_ran, side.campaigns)) for side in (old, new)]
    if ran[0] == ran[1]:
        return ""
    said = " and ".join(
        f"{side.name}: {'; '.join(one) or 'no campaign'}" for side, one in zip((old, new), ran, strict=True)
    )
    return f"The campaigns differ, and so may their cases. {said}"


def _ran(one: Campaign) -> str:
    """What decides the cases of a campaign, without torch."""
    options = " ".join(f"{key}={value}" for key, value in sorted(one.options.items()) if key != "budget")
    return f"profile {one.profile}, seed {one.seed}, {one.next_index} cases, {options}"
