"""The growth oracle: the number of evaluations over sizes must not grow much faster than the program."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddefuzz.classify.chain import Located
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.expected import Expected
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.growth import BLOCKS, Growth
from ddefuzz.execute.protocol import GROW, Runner
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.seen import Seen, unknown

KIND: Kind = "slow-export"


def judge(seen: Seen) -> tuple[Failure, ...]:
    """Report the count that grows most, if it is steep."""
    steep = [one for one in seen.observation.growths if one.is_steep]
    if not steep:
        return ()
    worst = max(steep, key=lambda one: (one.exponent, one.of))
    return (keep(Failure(KIND, seen.observation, _said(worst))),)


def _said(one: Growth) -> str:
    low, high = BLOCKS
    return f"{one.of} is called {one.few} times for {low} blocks and {one.many} times for {high}: n^{one.exponent:.1f}"


def worst_of(failure: Failure) -> Growth | None:
    """The count that grows most."""
    return max(failure.observation.growths, key=lambda one: (one.exponent, one.of), default=None)


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The function whose own calls grew most. The anchor is the counted function, and the form of the expression that
    is evaluated most.
    """
    del runner
    worst = worst_of(failure)
    if worst is None or not worst.asker:
        return unknown(seen)
    module, _, function = worst.asker.rpartition(":")
    return Located(Site("Python", module, function), None, f"{worst.of} {worst.pattern}".strip())


def keep(failure: Failure) -> Failure:
    """The failure with the steep counts alone."""
    observation = failure.observation
    steep = tuple(one for one in observation.growths if one.is_steep)
    return msgspec.structs.replace(failure, observation=msgspec.structs.replace(observation, growths=steep))


def expected(classified: Classified, same_program: bool) -> Expected:
    """A script would have to count inside of torch; `ddefuzz replay` does."""
    del classified, same_program
    raise InputError(
        "found counts that are taken inside of torch, expected a failure that a script can show: use `ddefuzz replay`"
    )


KINDS: Mapping[Kind, KindRow] = {
    KIND: KindRow(
        "the evaluations over sizes in an export grow faster than n^1.5 when the program is repeated n times",
        "{site} makes exports slow: {evidence}",
        locate,
        expected,
        "avoidable",
        about_data=True,
    ),
}

ORACLE = Oracle("growth", KINDS, judge, keep=keep, stages=(GROW,))
