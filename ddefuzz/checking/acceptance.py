"""Problems of a repository's own models that its owners accept for now: findings/accepted.toml.

Each has the target and the key of the problem. `check` still shows it, but it does not fail.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from ddefuzz.errors import InputError
from ddefuzz.files import is_there, read_toml, write_atomically
from ddefuzz.findings.decisions import check_text
from ddefuzz.records import record_of

ACCEPTED = Path("findings/accepted.toml")
"""The accepted problems of the targets of a repository."""

HEAD = "# Accepted problems of the targets of `ddefuzz check`. Written by `ddefuzz ci accept`.\n\n"


class Acceptance(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One problem. `target` is as it is given to `check`, for a file with a list CASES with `:ID`. `key` is that of the
    problem, `expires` the last day on which it is accepted; without one it is accepted until the line is deleted.
    `title` is for readers.
    """

    target: str
    key: str
    reason: str
    expires: date | None = None
    title: str = ""

    def __str__(self) -> str:
        return f"until {self.expires}: {self.reason}" if self.expires else self.reason


NEEDED = ("target", "key", "reason")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    problem: tuple[Acceptance, ...] = ()


def read_accepted(path: Path) -> tuple[Acceptance, ...]:
    """What a file accepts; nothing if there is no such file. Raises `InputError`."""
    if not is_there(path):
        return ()
    read = record_of(read_toml(path), _File, path).problem
    for acceptance in read:
        check_text(f"{path}: {acceptance.key}: reason", acceptance.reason)
        check_reason(f"{path}: {acceptance.key}: ", acceptance.reason)
    return read


def check_reason(where: str, reason: str) -> None:
    """Raise `InputError`, which begins with `where`, for a reason that says nothing."""
    if not reason.strip():
        raise InputError(f"{where}found an empty reason, expected why the problem is accepted")


def write_accepted(path: Path, accepted: Iterable[Acceptance]) -> None:
    """Write the file, which is read in review: one table for each problem, in order of targets."""
    tables: list[dict[str, Any]] = [
        {name: value for name, value in msgspec.structs.asdict(one).items() if value or name in NEEDED}
        for one in sorted(accepted, key=lambda one: (one.target, one.key))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, HEAD + tomli_w.dumps({"problem": tables}))


def holding(accepted: Iterable[Acceptance], today: date) -> tuple[Acceptance, ...]:
    """Those whose last day has not passed."""
    return tuple(one for one in accepted if one.expires is None or today <= one.expires)


def renewed(
    before: Iterable[Acceptance], problems: Iterable[Acceptance], judged: Container[str], today: date
) -> tuple[Acceptance, ...]:
    """What is accepted after targets were `judged`, which have these problems now. What was accepted before and still
    holds stays as it was decided, and so does what is about other targets.
    """
    before = tuple(before)
    held = {(one.target, one.key): one for one in holding(before, today)}
    now = (held.get((one.target, one.key), one) for one in problems)
    return (*(one for one in before if one.target not in judged), *now)
