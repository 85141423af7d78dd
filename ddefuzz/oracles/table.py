"""The table of oracles: the kinds of failures that each reports, the calls it needs, and how it locates a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ddefuzz.classify.chain import Located
from ddefuzz.classify.classify import Classified, classify
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Signature
from ddefuzz.execute.protocol import Runner
from ddefuzz.oracles import agreement, assertions, capture, specialization
from ddefuzz.oracles.seen import Seen
from ddefuzz.program.sizes import CALL_SIZES, CallSize


class Oracle(NamedTuple):
    """One oracle. `kinds` has the kinds of failures that it reports, with their meaning.

    `calls` are the sizes at which it needs calls of the captured program. Without any, it judges the capture
    itself. `locate` finds the site and may run the program again; None means that the observation is enough
    (`classify`).

    `titles` are the title of a finding of each kind, with its `{site}` and `{evidence}`.
    """

    name: str
    kinds: Mapping[Kind, str]
    judge: Callable[[Seen], tuple[Failure, ...]]
    locate: Callable[[Failure, Seen, Runner], Located] | None = None
    calls: tuple[CallSize, ...] = ()
    titles: Mapping[Kind, str] = {}


ORACLES: tuple[Oracle, ...] = (
    Oracle("capture", capture.KINDS, lambda seen: capture.judge([seen.observation])),
    *(
        Oracle(name, one.KINDS, one.judge, one.locate, CALL_SIZES, one.TITLES)
        for name, one in (("agreement", agreement), ("specialization", specialization), ("assertions", assertions))
    ),
)
"""All oracles, in the order in which their failures are reported."""

NAMES: tuple[str, ...] = tuple(oracle.name for oracle in ORACLES)


def oracle_of(kind: Kind) -> Oracle:
    """The oracle that reports a kind."""
    return next(oracle for oracle in ORACLES if kind in oracle.kinds)


def calls_of(names: Iterable[str]) -> tuple[CallSize, ...]:
    """The sizes at which the named oracles need calls."""
    needed = {size for oracle in ORACLES if oracle.name in set(names) for size in oracle.calls}
    return tuple(size for size in CALL_SIZES if size in needed)


def classified(seen: Seen, runner: Runner, names: Iterable[str] = NAMES) -> tuple[Classified, ...]:
    """The failures that the named oracles report for one observation, each with its site."""
    chosen = [oracle for oracle in ORACLES if oracle.name in set(names)]
    return tuple(named(oracle, failure, seen, runner) for oracle in chosen for failure in oracle.judge(seen))


def named(oracle: Oracle, failure: Failure, seen: Seen, runner: Runner) -> Classified:
    """A failure that an oracle reports, with its site."""
    if oracle.locate is None:
        return classify(failure)
    located = oracle.locate(failure, seen, runner)
    signature = Signature(failure.kind, located.site, located.anchor)
    return Classified(failure, signature, "wrong-capture", oracle.name, located.frame)
