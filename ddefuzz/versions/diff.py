"""Compare what the same programs did under two versions of torch. Nothing is run here.

A finding that is another one in the same program has moved. It is then neither gone nor new. A program that one of the
two could not judge is left out of the comparison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from ddefuzz.classify.signature import Signature
from ddefuzz.versions.observed import CaseSeen

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

T = TypeVar("T")

KINDS: tuple[Kind, ...] = get_args(Kind)


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


class Pair(NamedTuple):
    """The results of one program."""

    old: CaseSeen
    new: CaseSeen


class Compared(NamedTuple):
    """All differences, the number of programs that were compared, and why others were not or what limits this."""

    differences: tuple[Difference, ...]
    cases: int
    not_judged: tuple[str, ...]

    @property
    def counts(self) -> dict[Kind, int]:
        """The number of differences of each kind."""
        return {kind: sum(one.kind == kind for one in self.differences) for kind in KINDS}


def compared(old: Iterable[CaseSeen], new: Iterable[CaseSeen]) -> Compared:
    """Compare the cases that both have: the same number, stage and text."""
    later = {_key(case): case for case in new}
    both = [Pair(case, later[_key(case)]) for case in old if _key(case) in later]
    both.sort(key=lambda pair: (pair.old.number, pair.old.stage))
    judged = [pair for pair in both if "not-judged" not in (pair.old.outcome, pair.new.outcome)]
    left_out = tuple(
        f"case {old.number}: {old.torch if old.outcome == 'not-judged' else new.torch}: "
        f"{old.reason if old.outcome == 'not-judged' else new.reason}"
        for old, new in both
        if "not-judged" in (old.outcome, new.outcome)
    )
    rows = (*_findings(judged), *_sites(judged), *_answers(judged))
    return Compared(
        tuple(sorted(rows, key=lambda row: (KINDS.index(row.kind), -row.cases, row.id))), len(judged), left_out
    )


def _key(case: CaseSeen) -> tuple[int, str, str]:
    return case.number, case.stage, case.text


def _row(kind: Kind, id_: str, pairs: Sequence[Pair], what: str, old: str = "", new: str = "") -> Difference:
    first = pairs[0].old
    return Difference(
        id=id_, kind=kind, what=what, old=old, new=new, cases=len(pairs), number=first.number, program=first.text
    )


def _findings(pairs: Sequence[Pair]) -> list[Difference]:
    was, now = _by(pairs, lambda pair: pair.old.failures), _by(pairs, lambda pair: pair.new.failures)
    moved: dict[tuple[Signature, Signature], list[Pair]] = defaultdict(list)
    for pair in pairs:
        before, after = set(pair.old.failures), set(pair.new.failures)
        for one in sorted(before - after, key=lambda one: one.key):
            for other in sorted(after - before, key=lambda one: one.key):
                moved[one, other].append(pair)
    rows = [
        _row("moved finding", f"{one.key} {other.key}", seen, "", str(one), str(other))
        for (one, other), seen in moved.items()
    ]
    left = {one for one, _ in moved}
    arrived = {other for _, other in moved}
    rows += [_row("new finding", one.key, now[one], str(one)) for one in now.keys() - was.keys() - arrived]
    rows += [_row("gone finding", one.key, was[one], str(one)) for one in was.keys() - now.keys() - left]
    return rows


def _sites(pairs: Sequence[Pair]) -> list[Difference]:
    was = _by(pairs, lambda pair: sorted({one.site for one in pair.old.guards}))
    now = _by(pairs, lambda pair: sorted({one.site for one in pair.new.guards}))
    rows = [_row("new guard site", site, now[site], site) for site in now.keys() - was.keys()]
    return rows + [_row("gone guard site", site, was[site], site) for site in was.keys() - now.keys()]


def _answers(pairs: Sequence[Pair]) -> list[Difference]:
    """Guards that both versions leave undecided in the same program, with other answers."""
    changed: dict[tuple[str, str, str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        before, after = _given(pair.old), _given(pair.new)
        for place in sorted(before.keys() & after.keys()):
            if before[place] != after[place]:
                changed[*place, before[place], after[place]].append(pair)
    return [
        _row("changed answer", f"{site} [{shape}]", seen, f"{site} [{shape}]", old, new)
        for (site, shape, old, new), seen in changed.items()
    ]


def _given(case: CaseSeen) -> dict[tuple[str, str], str]:
    answers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for guard in case.guards:
        answers[guard.site, guard.shape].add(guard.answer)
    return {place: " and ".join(sorted(given)) for place, given in answers.items()}


def _by(pairs: Sequence[Pair], of: Callable[[Pair], Iterable[T]]) -> dict[T, list[Pair]]:
    found: dict[T, list[Pair]] = defaultdict(list)
    for pair in pairs:
        for one in of(pair):
            found[one].append(pair)
    return found
