"""Known findings: the decisions in a `known.toml`, and which of them hold for a torch and a day.

A file has one table for each finding, by its id:

    [dde-1937c0d9a9]
    state = "reported"                                        # a state of `lifecycle`, but not new
    reason = "needs a meta kernel first"
    url = "https://github.com/pytorch/pytorch/issues/1"       # the upstream issue
    expires = 2027-01-31                                      # the last day of the decision; default: no end
    versions = ["2.13.0"]                                     # default: all versions of torch

`title`, `site`, `duplicate_of` and `fixed_in` may follow. `findings export` writes such a file next to the findings,
and `run --known FILE` reads one of any repository: no other file of findings is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.files import read_toml
from ddefuzz.findings.decisions import check_typed
from ddefuzz.findings.lifecycle import ROWS, State, in_versions, recurs
from ddefuzz.findings.model import Finding


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision in a known.toml. `title` and `site` are for its readers."""

    state: State
    title: str = ""
    site: str = ""
    reason: str = ""
    url: str = ""
    expires: date | None = None
    versions: tuple[str, ...] = ()
    duplicate_of: str | None = None
    fixed_in: tuple[str, ...] = ()


class Now(NamedTuple):
    """Which findings are known now, and which were known until a date that has passed."""

    known: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()


NONE = Now()
"""Nothing is known."""


def read_known(path: Path) -> dict[str, Known]:
    """The decisions in a file, by id. Raises `InputError`."""
    return {name: _known(path, name, table) for name, table in read_toml(path).items()}


def _known(path: Path, name: str, table: object) -> Known:
    try:
        known = msgspec.convert(table, Known)
    except msgspec.ValidationError as error:
        states = ", ".join(state for state, row in ROWS.items() if row.decided)
        expected = f"a table with a state ({states}) and the fields {', '.join(Known.__struct_fields__[1:])}"
        raise InputError(f"{path}: [{name}]: found {error}; expected {expected}") from error
    check_typed(f"{path}: [{name}]: ", (*known.versions, *known.fixed_in), filter(None, [known.url]))
    return known


def known_of(finding: Finding) -> Known:
    """The decision on a finding as a known.toml has it. The reason is that of the latest change of its state."""
    entries = sorted((entry for entry in finding.history if entry.field == "state"), key=lambda entry: entry.when)
    return Known(
        state=finding.state,
        title=finding.title,
        site=str(finding.site),
        reason=entries[-1].why if entries else "",
        url=next(iter(finding.links), ""),
        expires=date.fromisoformat(finding.expires) if finding.expires else None,
        versions=finding.known_in,
        duplicate_of=finding.duplicate_of,
        fixed_in=finding.fixed_in,
    )


def fields_of(known: Known) -> dict[str, Any]:
    """The fields of a decision that a known.toml has: those that are not empty."""
    fields = msgspec.structs.asdict(known)
    return {name: value for name, value in fields.items() if value not in ("", (), None)}


def known_now(decisions: Mapping[str, Known], torch: str, today: date) -> Now:
    """The decisions that hold for a version of torch on a day, and those that have expired by then."""
    decided = {
        name: one
        for name, one in decisions.items()
        if ROWS[one.state].decided and in_versions(one.versions, torch) and not recurs(one.state, one.fixed_in, torch)
    }
    expired = {name for name, one in decided.items() if one.expires is not None and one.expires < today}
    return Now(frozenset(decided.keys() - expired), frozenset(expired))


def decided(findings: Iterable[Finding]) -> dict[str, Known]:
    """The decisions on these findings, by id."""
    return {finding.id: known_of(finding) for finding in findings if ROWS[finding.state].decided}
