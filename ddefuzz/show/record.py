"""The record from which every format is written: what a command did, with one result for each finding or case."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ddefuzz import __version__
from ddefuzz.oracles.table import kinds

Outcome: TypeAlias = Literal["failed", "known", "passed", "skipped", "error"]
"""
failed   counts against the run: a new finding, or a case that does not do what is expected
known    a failure that is known or expected
passed   the case passes, or fails no longer
skipped  not judged: this torch has no such op or stage; or not about PyTorch
error    not judged: an exception of ddefuzz itself
"""


class Rule(msgspec.Struct, frozen=True):
    """A kind of failure. `id` is stable over versions of ddefuzz."""

    id: str
    meaning: str


def rules() -> tuple[Rule, ...]:
    """A rule for each kind of failure."""
    return tuple(Rule(kind, row.meaning) for kind, row in kinds().items())


class Replacement(msgspec.Struct, frozen=True):
    """New text in place of the lines from `start` (from 1) to before `end` of a file below the current folder."""

    path: str
    start: int
    end: int
    text: str


class Fix(msgspec.Struct, frozen=True):
    """A change of files that mends a result, and was tried."""

    does: str
    replacements: tuple[Replacement, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, or one replayed case.

    `id` is stable: it is the fingerprint by which other tools recognize the result. `path` is a file below the current
    folder, and `line` a line of it, from 1; empty and 0 if there is none. `site` is the call site in torch, with
    `site_path` below torch's folder and `site_line` if they are known. `facts` are names and values for readers. `fix`
    is a change that was applied and tried.
    """

    id: str
    rule: str
    outcome: Outcome
    title: str
    message: str = ""
    path: str = ""
    line: int = 0
    site: str = ""
    site_path: str = ""
    site_line: int = 0
    cause: str = ""
    program: str = ""
    seconds: float = 0.0
    facts: tuple[tuple[str, str], ...] = ()
    fix: Fix | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did. `command` is the command line, `facts` are lines for readers, `version` is ddefuzz's, `when`
    the time of the report (ISO 8601, UTC).

    `rules` are all rules that the command can report, also those without a result: by default the kinds of failures.
    `document` is the same in the command's own JSON, and `records` are its lines.
    """

    title: str
    torch: str
    results: tuple[Result, ...]
    command: str = ""
    version: str = __version__
    when: str = ""
    rules: tuple[Rule, ...] = msgspec.field(default_factory=rules)
    facts: tuple[str, ...] = ()
    document: Any = None
    records: tuple[Any, ...] = ()

    def of(self, *outcomes: Outcome) -> tuple[Result, ...]:
        """The results with one of these outcomes."""
        return tuple(result for result in self.results if result.outcome in outcomes)

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of results with each outcome that occurs."""
        return {outcome: len(self.of(outcome)) for outcome in get_args(Outcome) if self.of(outcome)}
