"""What one program did under one torch, as plain records: the results that `ddefuzz diff` compares. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ddefuzz.classify.signature import Signature
from ddefuzz.coverage.ledger import Reached
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Stage
from ddefuzz.files import read_bytes

SCHEMA = "ddefuzz.seen/1"


class Ask(msgspec.Struct, frozen=True):
    """A program to run in a stage: a text, or the case `number` of the uniform campaign with this profile and seed."""

    number: int
    stage: Stage
    text: str = ""
    profile: str = ""
    seed: int = 0


class GuardSeen(msgspec.Struct, frozen=True, order=True):
    """An undecided guard. `site` is file, function and method without a line, because lines differ by version.

    `shape` is its expression without the names of symbols, `answer` the fallback it took, or `raised`.
    """

    site: str
    shape: str
    answer: str


def guard_seen(one: Reached) -> GuardSeen:
    """Its site is that of the blamed code if it raised: the place of a plain comparison is another one by version."""
    function = one.function or one.place.language
    site = f"{one.place.file}:{function}" if one.blamed is None else str(one.blamed)
    return GuardSeen(f"{site} {one.call}".strip(), one.shape, one.answer)


class CaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one program under one torch. `outcome` is that of the run: ok, fail, not-judged, crash or timeout.

    `text` is empty if the worker was lost while it was drawn. `reason` says why the case is not judged.
    """

    number: int
    stage: Stage
    torch: str
    text: str
    outcome: str
    reason: str = ""
    failures: tuple[Signature, ...] = ()
    guards: tuple[GuardSeen, ...] = ()
    schema: str = SCHEMA


def read_saved(path: Path) -> tuple[CaseSeen, ...]:
    """The results in a file of JSON lines that `ddefuzz diff --save` wrote. Raises `InputError`."""
    cases = []
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            case = msgspec.json.decode(line, type=CaseSeen)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{path}:{number}: {error}, expected a line that `ddefuzz diff --save` wrote") from error
        if case.schema != SCHEMA:
            raise InputError(f"{path}:{number}: found the schema {case.schema!r}, expected {SCHEMA!r}")
        cases.append(case)
    if not cases:
        raise InputError(f"{path}: found no line, expected results that `ddefuzz diff --save` wrote")
    return tuple(cases)


def saved_text(cases: Iterable[CaseSeen]) -> str:
    """The text of such a file, in order of the cases."""
    return "".join(
        msgspec.json.encode(case).decode() + "\n" for case in sorted(cases, key=lambda case: (case.number, case.stage))
    )
