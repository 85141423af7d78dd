"""The growth oracle: the work of shape reasoning must not grow much faster than the program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.plumbing import is_python_plumbing
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Observation, Runner, Stage, measured
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.torch_api import EVALUATE_EXPR, GUARD_FILES
from ddefuzz.instrument.torch_api import SYMBOLIC_SHAPES_FILE as _SHAPES
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.blame import OracleInput, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle, OwnStage, Script, measured_in
from ddefuzz.program.code import module_of

BLOCKS: Final = (4, 16)  # how often the program is repeated in the two exports that are compared
STEEP: Final = 1.5  # a count that grows faster than n to this power is too slow for large n
FEW: Final = 60  # a count below this at the larger number of blocks says nothing


class Growth(msgspec.Struct, frozen=True):
    """How often a function calls the method `of`, at both numbers of blocks: the function for which that grows most.

    `stack` has file and name of the functions of the calls, outermost first; the last one is that function. For
    evaluate_expr, `pattern` is the form of expression that was evaluated most. `carried` has places of arguments, each
    with the place of the result that the next block gets there. If it is empty, all blocks get the same inputs.
    """

    of: str
    few: int
    many: int
    stack: tuple[tuple[str, str], ...]
    pattern: str
    carried: dict[int, int] = {}

    @property
    def exponent(self) -> float:
        """The power of n by which the count grows."""
        low, high = BLOCKS
        return math.log(self.many / max(self.few, 1)) / math.log(high / low)

    @property
    def is_steep(self) -> bool:
        """Whether it grows faster than `STEEP` allows, and not only because it is rare in few blocks."""
        return self.few >= BLOCKS[0] and self.many >= FEW and self.exponent > STEEP


class Growths(msgspec.Struct, frozen=True, tag="growths"):
    """How each count grows, in the order in which the counted methods call each other."""

    counts: tuple[Growth, ...]


KIND: Kind = "slow-export"


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the first count that is steep: the methods are in the order in which they call each other."""
    first = next((count for count in counts_of(seen.observation) if count.is_steep), None)
    return () if first is None else (keep(Failure(KIND, seen.observation, _said(first))),)


def counts_of(observation: Observation) -> tuple[Growth, ...]:
    """What was counted; empty for another stage."""
    growths = observation.measurement(Growths)
    return () if growths is None else growths.counts


def _said(count: Growth) -> str:
    low, high = BLOCKS
    calls = f"{count.of} {count.few} times for {low} blocks and {count.many} times for {high}"
    return f"it calls {calls}: n^{count.exponent:.1f}"


def _steep(failure: Failure) -> Growth:
    """The count that was reported. Raises `InputError` if the failure, which a finding stores, has none."""
    counts = measured_in(failure, Growths).counts
    if not counts:
        raise InputError("found a measurement without counts, expected one of a method that is called more often")
    return counts[0]


def locate(failure: Failure, seen: OracleInput, _runner: Runner) -> Location:
    """The function whose calls of the counted method grew most. The anchor is the method. For evaluate_expr it has the
    form of expression that was evaluated most, too.

    The caller of evaluate_expr is looked for outside of plumbing. A method that it does not call directly is called by
    another method of shape reasoning, and that is the site: its calls are not steep, so the growth is in it.
    """
    steep = _steep(failure)
    frames = [Frame(file, 0, function) for file, function in steep.stack]
    caller = next((one for one in reversed(frames) if one.file in _SHAPES or not is_python_plumbing(one)), None)
    if caller is None:
        return unknown(seen)
    return Location(Site("Python", caller.file, caller.function), None, f"{steep.of} {steep.pattern}".strip())


def keep(failure: Failure) -> Failure:
    """The failure with the steep counts alone."""
    observation = failure.observation
    steep = measured(Growths(tuple(count for count in counts_of(observation) if count.is_steep)))
    return msgspec.structs.replace(failure, observation=msgspec.structs.replace(observation, measured=steep))


_SCRIPT: Final = Script(
    needs="""only torch (2.6 or later). It exports the program as $few and as $many blocks, prints one
JSON line, and exits with""",
    verdicts=(
        "the caller at EXPECTED calls the method more often, faster than n^$steep from $few to $many blocks",
        ": they do not",
        ": torch.export raises",
        "eager PyTorch raises for the program, or this torch has no such method",
    ),
    body='''\
$subject

EXPECTED = $expected
block, number = program, 1


def program(*args):
    """The program as a number of blocks. CARRIED says which results of a block are which inputs of the next."""
    results = []
    for _ in range(number):
        results.append(block(*args))
        leaves = torch.utils._pytree.tree_leaves(results[-1])
        args = [leaves[CARRIED[place]] if place in CARRIED else one for place, one in enumerate(args)]
    return results


CARRIED = $carried


INNER = $inner


def caller():
    """The function that called the method, without decorators and the files in INNER."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name != "wrapper" and not PurePath(code.co_filename).as_posix().endswith(INNER):
            return code.co_name
        frame = frame.f_back


def calls_of(method, blocks):
    """How often the caller calls the method of ShapeEnv in an export of so many blocks."""
    global number
    number, inner, callers = blocks, getattr(ShapeEnv, method), []

    @functools.wraps(inner)
    def counted(*args, **kwargs):
        callers.append(caller())
        return inner(*args, **kwargs)

    with patch.object(ShapeEnv, method, counted):
        torch.export.export(Captured(), make_inputs(), strict=False)
    return callers.count(EXPECTED["caller"])
''',
    start="""\
global number
verdict, found, method = "not judged", None, EXPECTED["method"]
torch.set_num_threads(1)""",
    attempt="""\
number = $many
Captured()(*make_inputs())
getattr(ShapeEnv, method)
verdict = "fails otherwise"
calls_of(method, 1)  # fills torch's caches
few, many = calls_of(method, $few), calls_of(method, $many)
exponent = math.log(max(many, 1) / max(few, 1)) / math.log($many / $few)
found = {**EXPECTED, "calls": f"{few} and {many}", "exponent": round(exponent, 2)}
verdict = "shows" if many >= $fewest and exponent > $steep else "passes\"""",
    copied="""\
import functools
import math
from pathlib import PurePath
from unittest.mock import patch
from torch.fx.experimental.symbolic_shapes import ShapeEnv""",
)


def script(text: str, _stage: Stage, failure: Failure) -> Script:
    """The script exports the program as few and as many blocks, and counts the calls of the steep method."""
    steep, (few, many) = _steep(failure), BLOCKS
    inner = tuple(path for file in GUARD_FILES for path in file.paths)
    return _SCRIPT._replace(
        expected={
            "method": steep.of,
            "caller": steep.stack[-1][1] if steep.stack else "",
            "calls": f"{steep.few} and {steep.many}",
        },
        parts={
            "subject": module_of(parse(text, "<program>").program, "export"),
            "carried": repr(steep.carried),
            "inner": repr(inner if steep.of == EVALUATE_EXPR.name else ("functools.py",)),
            "few": few,
            "many": many,
            "fewest": FEW,
            "steep": STEEP,
        },
    )


KINDS: Mapping[Kind, KindRow] = {
    KIND: KindRow(
        "a method of shape reasoning is called more often, faster than n^1.5, when the program is repeated n times",
        "{site} makes exports slow: {evidence}",
        locate,
        cause="avoidable",
        about_data=True,
        severity="slow",
        script=script,
    ),
}

ORACLE = Oracle(
    "growth",
    "the work of an export grows faster than the program",
    KINDS,
    judge,
    keep=keep,
    stages=(
        OwnStage(
            "grow",
            run="ddefuzz.oracles.growth_run:run",
            label="torch.export",
            every=117,
            turn=24,
            beside=("export",),
            shown_by="export",
            hint="# Repeat the lines of the program 16 and 64 times, and compare the seconds of the two exports.",
        ),
    ),
    measures=Growths,
)
