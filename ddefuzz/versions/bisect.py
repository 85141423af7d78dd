"""Search for the two versions of torch between which a finding was fixed, moved or appeared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ddefuzz.versions.model import Cell, Status


class Bisection(msgspec.Struct, frozen=True, kw_only=True):
    """The two versions between which a finding's status changes: None if it is the same at both ends. Versions that lie
    between these two could not be judged.
    """

    schema: str = "ddefuzz.bisect/1"
    finding: str
    first: Status
    last: Status
    before: str | None = None
    after: str | None = None
    runs: dict[str, Cell] = {}

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.finding}: {self.first} in the oldest and in the newest: no change to look for"
        status = self.runs[self.after].status
        return f"{self.finding}: {self.first} up to {self.before}, {status} from {self.after} (newest: {self.last})"


def bisected(finding_id: str, names: Sequence[str], run: Callable[[int], Cell]) -> Bisection:
    """Search among the versions, which are in order, by halves. `run` gives the cell of the version at a place.

    A version that cannot be judged says nothing about the others: the nearest one that can is run instead.
    """
    cells: dict[int, Cell] = {}

    def status(at: int) -> Status:
        if at not in cells:
            cells[at] = run(at)
        return cells[at].status

    low, high = 0, len(names) - 1
    first, last = status(low), status(high)
    while first != last:
        between = sorted(range(low + 1, high), key=lambda at: abs(2 * at - low - high))
        judged = next((at for at in between if status(at) != "not judged" or first == "not judged"), None)
        if judged is None:
            break
        low, high = (judged, high) if status(judged) == first else (low, judged)
    before, after = (names[low], names[high]) if first != last else (None, None)
    runs = {names[at]: cell for at, cell in sorted(cells.items())}
    return Bisection(finding=finding_id, first=first, last=last, before=before, after=after, runs=runs)
