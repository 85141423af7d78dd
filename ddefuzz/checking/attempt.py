"""One attempt of the search for changes: its sources, the edits that led to them, and what each edit fixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddefuzz.checking.candidates import Proposed, Sources
from ddefuzz.checking.changes import HARM, Fixed
from ddefuzz.checking.diffs import owner_of
from ddefuzz.classify.classify import Classified


class Attempt(NamedTuple):
    """Changed sources and promises about inputs, the edits that led to them, and the failure that is left.

    `met` has, for each edit, the key of the failure that it was proposed for. It is empty if a part of the source was
    taken back later, because it is then not known whose edit that was.
    """

    sources: Sources
    failure: Classified
    edits: tuple[Proposed, ...] = ()
    promises: tuple[str, ...] = ()
    met: tuple[str, ...] = ()

    @property
    def harm(self) -> int:
        return max((HARM[one.edit.kind] for one in self.edits), default=0)

    @property
    def rank(self) -> float:
        """The order of trying. A change of a package's code comes after promises about inputs, which leave it alone."""
        outside = any(one.path and owner_of(one.path) for one in self.edits)
        return max(self.harm, HARM["input-promise"] + 0.5) if outside else self.harm

    @property
    def does(self) -> str:
        return "; ".join(dict.fromkeys(one.edit.does for one in self.edits))


def fixed(attempt: Attempt, failing: Sequence[str]) -> tuple[Fixed, ...]:
    """What each part of a change fixes that passes all stages. `failing` are the keys of the failures without it.

    A single part fixes all of them. Of several parts, each fixes the failures that it was proposed for: the capture
    with the parts before it ended there, and the capture with it does not.
    """
    parts: dict[str, list[str]] = {}
    for one, key in zip(attempt.edits, attempt.met, strict=False):
        parts.setdefault(one.edit.does, []).append(key)
    if len(parts) > 1:
        return tuple(Fixed(does, tuple(dict.fromkeys(keys))) for does, keys in parts.items())
    keys = dict.fromkeys((*failing, *attempt.met))
    keeps_code = all(HARM[one.edit.kind] > 1 and one.edit.removed is None for one in attempt.edits)
    return (Fixed(attempt.does, tuple(keys), continued=keeps_code and bool(attempt.met)),)
