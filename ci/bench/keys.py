"""What a launch of a compiled kernel costs by the key of its arguments: from the arguments to the end of the call."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import msgspec
import torch

from ci.bench.command import Result, Session, ratios
from ddefuzz.cost.rounds import in_turn
from ddefuzz.keys.key import Dispatch, paths
from ddefuzz.keys.properties import symbolic_tensor
from ddefuzz.show.blocks import prose, table

Launch = Callable[..., object]

TENSORS: Final = (2, 8, 16)
SHAPE: Final = (8, 16)


class AsInt:
    """A size that is compared and hashed without a guard: an int, or the text of a symbolic one and its ShapeEnv."""

    __slots__ = ("value",)

    def __init__(self, number: Any) -> None:
        self.value = number if type(number) is int else (id(number.node.shape_env), str(number.node.expr))

    def __eq__(self, other: object) -> bool:
        return type(other) is AsInt and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def wrapped(tensor: torch.Tensor) -> Hashable:
    """A plain key of wrapped ints."""
    return (
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        *[AsInt(size) for size in tensor.shape],
        *[AsInt(stride) for stride in tensor.stride()],
    )


def concrete(tensor: torch.Tensor) -> Hashable:
    """A plain key of ints. It is wrong for symbolic sizes, and does not distinguish alignment, conj and neg."""
    return tensor.dtype, tensor.device, tensor.requires_grad, tuple(tensor.shape), tensor.stride()


def kernel(*_tensors: torch.Tensor) -> None:
    """Nothing, so that only the launch is measured."""


def empty(*tensors: torch.Tensor) -> None:
    """The floor: a launch without a key."""
    kernel(*tensors)


def keyed(key: Callable[[torch.Tensor], Hashable]) -> Launch:
    """A launch by a dict of kernels."""
    kernels: dict[Hashable, Launch] = {}

    def launch(*tensors: torch.Tensor) -> object:
        made = tuple(map(key, tensors))
        own = kernels.get(made)
        if own is None:
            own = kernels[made] = kernel
        return own(*tensors)

    return launch


def dispatched() -> Launch:
    """A launch by ddefuzz's `Dispatch`."""
    dispatch = Dispatch(lambda *_tensors: kernel)

    def launch(*tensors: torch.Tensor) -> object:
        dispatch(*tensors)(*tensors)
        return None

    return launch


class LaunchTime(NamedTuple):
    """Microseconds of CPU time of a launch in the fastest round: other work on the machine only makes them slower."""

    key: str
    arguments: str
    tensors: int
    microseconds: float


class KeysResult(msgspec.Struct, frozen=True):
    """All launches of one run."""

    torch: str
    rounds: int
    launches: tuple[LaunchTime, ...]
    schema: str = "ddefuzz.bench.keys/1"


def run(session: Session, rounds: int, repeats: int) -> Result:
    """Measure launches of each kind in turn, with plain tensors and with FakeTensors of unbacked sizes."""
    safe, fast, both = "ddefuzz, safe path", "ddefuzz, fast path", "ddefuzz, fast path or safe path"
    own = paths()
    launches: dict[str, Launch] = {
        "no key": empty,
        "concrete ints": keyed(concrete),
        "wrapped ints": keyed(wrapped),
        fast: keyed(own.fast),
        both: keyed(own.key),
        safe: keyed(own.safe),
        "ddefuzz, dispatch": dispatched(),
    }
    symbolic = {name: launches[name] for name in ("no key", "wrapped ints", safe)}
    times: list[LaunchTime] = []
    for number in TENSORS:
        session.live.say(f"{number} tensors")
        env = symbolic_tensor(SHAPE, exact=False)[1]
        fakes = [symbolic_tensor(SHAPE, False, env, f"x{at}")[0] for at in range(number)]
        for arguments, tensors, some in (
            ("plain", [torch.zeros(SHAPE) for _ in range(number)], launches),
            ("symbolic", fakes, symbolic),
        ):
            calls = [lambda launch=launch, tensors=tensors: launch(*tensors) for launch in some.values()]
            in_turn(calls, 1, stopped=session.stopped)  # fills the tables
            spent = in_turn(calls, rounds, [repeats] * len(calls), session.stopped, time.thread_time)
            times += [
                LaunchTime(name, arguments, number, 1e6 * min(one.cpu_seconds for one in each))
                for name, each in zip(some, spent, strict=True)
            ]
    shown = table(
        ("tensors", "arguments", "key", "µs a launch", "µs more for each tensor"),
        (
            (str(one.tensors), one.arguments, one.key, f"{one.microseconds:.2f}", f"{more_for_each(one, times):.2f}")
            for one in times
        ),
        right=("tensors", "µs a launch", "µs more for each tensor"),
    )
    compared = (
        (f"{name} over {other}", name, other, arguments)
        for name, other, arguments in (
            ("wrapped ints", "concrete ints", "plain"),
            (fast, "concrete ints", "plain"),
            ("ddefuzz, dispatch", "concrete ints", "plain"),
            (safe, "wrapped ints", "plain"),
            (safe, "wrapped ints", "symbolic"),
        )
    )
    by_name = {(one.key, one.arguments, one.tensors): one.microseconds for one in times}
    rows = [
        (by_name[name, arguments, number] / by_name[other, arguments, number], f"{text}, {number} {arguments} tensors")
        for text, name, other, arguments in compared
        for number in TENSORS
    ]
    meaning = prose("A launch makes the keys of its tensors (2 dims), and finds and calls a kernel that does nothing.")
    return Result(KeysResult(str(torch.__version__), rounds, tuple(times)), [meaning, shown, ratios(rows)])


def more_for_each(launch: LaunchTime, times: list[LaunchTime]) -> float:
    """What the key takes, over a launch without one, for each tensor."""
    floor = next(one for one in times if one[1:3] == launch[1:3])
    return (launch.microseconds - floor.microseconds) / launch.tensors
