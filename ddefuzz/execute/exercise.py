"""Call what a stage captured, and eager with the same inputs, at stated data sizes.

Every call gets new inputs, the same for both, and the same seeds. What was captured is only called here: hooks are not
installed, and nothing of torch leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import torch
from torch.fx import GraphModule, Interpreter, Node

from ddefuzz.execute.calls import ONLY_IN_EAGER, Call, Difference, Ended, What, is_accepted
from ddefuzz.execute.compare import aliases, close, differences
from ddefuzz.execute.prepared import Prepared, leaves_of
from ddefuzz.execute.protocol import ProgramSubject, Subject
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.ops import catalogue
from ddefuzz.program.inputs import at_data_size
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import print_program

MOST_DIFFERENCES = 5
"""Differences that are kept of a call."""

_ASSERTION = re.compile(r"Runtime assertion failed for expression (.+?) on node", re.DOTALL)

_UNBACKED = re.compile(r"u\d+")
"""An unbacked symbol alone, as torch prints it."""

ROUNDED: frozenset[What] = frozenset({"values", "number", "gradient"})
"""Differences that may be of rounding alone."""

SMALL_FLOATS = frozenset({"float16", "bfloat16", "float32"})


class _Result(NamedTuple):
    """What one side of a call did. `value`, `inputs` and `gradients` belong to a call that returned.

    `draws` says whether it drew random numbers.
    """

    ended: Ended
    value: Any = None
    inputs: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()
    draws: bool = False


def exercise(subject: Subject, capture: Capture, sizes: tuple[CallSize, ...]) -> tuple[Call, ...]:
    """Call eager and the captured program at each of the sizes; once where two names lead to the same inputs."""
    forms: dict[tuple[Subject, tuple[tuple[str, int], ...]], tuple[CallSize, _At]] = {}
    for size in sizes:
        at = _at(subject, size, static_dims=capture.static_dims)
        if at is not None:
            forms.setdefault((at.subject, tuple(sorted(at.kept.items()))), (size, at))
    return tuple(_call(at, capture, size) for size, at in forms.values())


class _At(NamedTuple):
    """A subject at some sizes; `kept` are the sizes of symbols that masks make (see `Prepared.kept`)."""

    subject: Subject
    kept: Mapping[str, int]

    def fresh(self) -> Prepared:
        """New arguments."""
        return replace(prepare(self.subject), kept=self.kept)


def _call(at: _At, capture: Capture, size: CallSize) -> Call:
    expected = _run(capture.reference, at.fresh, capture)
    captures = capture.captures()
    found = _run(capture.compute, at.fresh, capture)
    call = Call(size, expected.ended, found.ended, recompiled=capture.captures() != captures)
    if not expected.ended.returned:
        return call
    if not found.ended.returned:
        return msgspec.structs.replace(call, symbols=_symbols(capture, at.fresh()))
    seen = list(_differences(expected, found))
    if any(one.what in ROUNDED for one in seen) and _float64_decides(at, capture, found):
        seen = [one for one in seen if one.what not in ROUNDED]
    accepted = [one for one in seen if is_accepted(one, seen)]
    wrong = tuple(one for one in seen if one not in accepted)
    why = _undetermined(at, capture, expected) if wrong else ""
    if why:
        return msgspec.structs.replace(call, agreement="incomparable", why=why)
    return msgspec.structs.replace(
        call,
        agreement="differs" if wrong else "same",
        differences=wrong[:MOST_DIFFERENCES],
        accepted=tuple(accepted[:MOST_DIFFERENCES]),
        symbols=_symbols(capture, at.fresh()) if wrong else (),
    )


def _undetermined(at: _At, capture: Capture, expected: _Result) -> str:
    """Why eager's own result is not determined by its inputs; empty if it is."""
    if expected.draws:
        return "random numbers"
    again = _run(capture.reference, at.fresh, capture)
    return (
        "" if again.ended == expected.ended and not any(_differences(expected, again)) else "eager differs from eager"
    )


def _at(subject: Subject, size: CallSize, *, static_dims: bool) -> _At | None:
    """The subject at data sizes of that name; None if it has no such form. User code is called as it is.

    A captured program with static input dims takes tensors of the example's shapes alone. There the inputs with
    unbacked dims stay as they are, and masks keep as much of them as the size says, at most all.
    """
    if not isinstance(subject, ProgramSubject):
        return _At(subject, {}) if size == "example" else None
    program = catalogue.parse(subject.text, "<program>").program
    resized = at_data_size(program, size)
    kept: dict[str, int] = {}
    if static_dims:
        kept = {dim.symbol: dim.size for one in resized.inputs for dim in one.shape if dim.symbol is not None}
        pairs = zip(program.inputs, resized.inputs, strict=True)
        resized = replace(resized, inputs=tuple(old if old.shape != new.shape else new for old, new in pairs))
    if any(map(fault_of, resized.inputs)):  # such a size is not possible: `spd(n)` has none of 0
        return None
    return _At(ProgramSubject(print_program(resized)), kept)


def _run(compute: Callable[[Prepared], Any], make: Callable[[], Prepared], capture: Capture) -> _Result:
    fresh = make()
    before = torch.default_generator.get_state()
    try:
        with _state_kept(capture.module):
            value = compute(fresh)
            gradients = tuple(_gradients(value, fresh)) if capture.backward else ()
    except Exception as error:  # noqa: BLE001 the subject is under test: that it raises is the observation
        return _Result(_ended(error))
    draws = not torch.equal(before, torch.default_generator.get_state())
    return _Result(Ended(), value, tuple(leaves_of(fresh)), gradients, draws)


@contextmanager
def _state_kept(module: torch.nn.Module | None) -> Iterator[None]:
    """Undo what a call changes in a module's buffers (running statistics): the other side starts from the same."""
    kept = {} if module is None else {name: value.clone() for name, value in module.state_dict().items()}
    try:
        yield
    finally:
        if module is not None:
            module.load_state_dict(kept)


def _ended(error: Exception) -> Ended:
    message = str(error).encode(errors="backslashreplace").decode().strip()
    asserted = _ASSERTION.search(message)
    first = message.partition("\n")[0][:300]
    return Ended(f"{type(error).__name__}: {first}", asserted[1].strip() if asserted else "")


def _gradients(value: Any, fresh: Prepared) -> Iterator[Any]:
    """The gradients of the inputs that require one, of the sum of what is returned."""
    wanted = [arg for arg in leaves_of(fresh) if isinstance(arg, torch.Tensor) and arg.requires_grad and arg.is_leaf]
    parts = [part for part in _floats(value) if part.requires_grad]
    if wanted and parts:
        sum(part.abs().sum().to(torch.float64) for part in parts).backward()  # type: ignore[union-attr]
        yield from (arg.grad for arg in wanted)


def _floats(value: Any) -> Iterator[torch.Tensor]:
    match value:
        case torch.Tensor() if value.is_floating_point() or value.is_complex():
            yield value
        case list() | tuple():
            for item in value:
                yield from _floats(item)
        case _:
            return


def _differences(expected: _Result, found: _Result) -> Iterator[Difference]:
    yield from differences(expected.value, found.value)
    for place, (one, other) in enumerate(zip(expected.inputs, found.inputs, strict=True)):
        for difference in differences(one, other, f"input {place}"):
            yield Difference("mutation", difference.where, difference.how)
    for place, (one, other) in enumerate(zip(expected.gradients, found.gradients, strict=False)):
        for difference in differences(one, other, f"gradient {place}"):
            if difference.what != "strides":
                yield Difference("gradient", difference.where, difference.how)
    named = [{str(place): value for place, value in enumerate(side.inputs)} for side in (expected, found)]
    before, after = aliases(expected.value, named[0]), aliases(found.value, named[1])
    for pair in sorted(before ^ after):
        only = ONLY_IN_EAGER if pair in before else "only when captured"
        yield Difference("alias", pair[1], f"shares memory with {pair[0]} {only}")


def _float64_decides(at: _At, capture: Capture, found: _Result) -> bool:
    """Whether a run in float64 shows that both results are equally right and differ only by rounding.

    The subject runs in eager once more with its float inputs in float64.
    """
    if not isinstance(at.subject, ProgramSubject):
        return False
    program = catalogue.parse(at.subject.text, "<program>").program
    if not any(one.dtype in SMALL_FLOATS for one in program.inputs):
        return False
    wide = replace(
        program,
        inputs=tuple(replace(one, dtype="float64") if one.dtype in SMALL_FLOATS else one for one in program.inputs),
    )
    exactly = _At(ProgramSubject(print_program(wide)), at.kept)
    exact = _run(capture.reference, exactly.fresh, capture)
    if not exact.ended.returned:
        return False
    sides = [[*_floats(side.value), *_floats(side.gradients)] for side in (exact, found)]
    return len(sides[0]) == len(sides[1]) and all(
        one.shape == other.shape and close(one.to(other.dtype), other) for one, other in zip(*sides, strict=True)
    )


def _symbols(capture: Capture, fresh: Prepared) -> tuple[tuple[str, int], ...]:
    """The values of the capture's unbacked symbols on these arguments. The graph is run node by node, as far as it
    goes.

    The graph's nodes say in `meta["unbacked_bindings"]` which symbol is what part of their value
    (torch/fx/experimental/symbolic_shapes.py, `compute_unbacked_bindings`).
    """
    reader = _Symbols(capture.graph)
    try:
        args = capture.graph_inputs(fresh)
        if args is not None:
            reader.run(*args)
    except Exception:  # noqa: BLE001 a run-time assertion ends it: what was read before is known
        pass
    return tuple(sorted(reader.known.items()))


class _Symbols(Interpreter):
    """Runs a graph and notes the symbols that its nodes bind."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.known: dict[str, int] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node."""
        value = super().run_node(n)
        for symbol, path in (n.meta.get("unbacked_bindings") or {}).items():
            bound = torch_api.bound(torch_api.KEY_GET)(value, path)
            self.known[str(symbol)] = int(bound)
        if n.op == "placeholder":
            self._bind(n.meta.get("example_value", n.meta.get("val")), value)
        return value

    def _bind(self, fake: Any, value: Any) -> None:
        """Note the symbols of an input with unbacked dims: nothing in the graph binds them."""
        if isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
            for one, size in zip(fake.shape, value.shape, strict=False):
                self._bind(one, size)
        elif isinstance(fake, torch.SymInt) and isinstance(value, int) and _UNBACKED.fullmatch(str(fake)):
            self.known[str(fake)] = value
