"""Hypothesis strategies for programs, which are built forward: each step runs at once at two data sizes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from hypothesis import assume
from hypothesis import strategies as st

from ddefuzz.generate.lockstep import REFUSALS, WORDS, Choices, Handle, Journal, Lockstep, strict_eager
from ddefuzz.generate.profiles import Profile, cumulative_weights
from ddefuzz.generate.tensors import (
    MAX_SIZE,
    NothingFitsError,
    add_leaf,
    add_template,
    arithmetic,
    draw_alike,
    draw_broadcastable,
    draw_data,
    draw_expansion,
    draw_reshape,
    draw_sections,
    draw_shape,
    draw_shaped,
    draw_size,
    draw_split,
    draw_tensor,
    draw_unbacked_input,
    extent,
    extents,
    fill,
    literal,
    shape,
)
from ddefuzz.ops import conversions, spec
from ddefuzz.ops.catalogue import GROUPS, OPS
from ddefuzz.ops.spec import OpSpec, Tensor
from ddefuzz.program.model import Dim, Expr, Program, Recipe, names_in
from ddefuzz.program.sizes import DataSize


class Arguments:
    """The slots of one step that are filled so far."""

    def __init__(self, lockstep: Lockstep, choices: Choices) -> None:
        self._lockstep = lockstep
        self._choices = choices
        self._filled: dict[str, Handle] = {}

    def call(self, op: spec.OpSpec) -> Expr:
        """The op's call with every slot filled; NothingFitsError if a slot cannot be filled."""
        for name, slot in op.slots:
            self._filled[name] = self._fill(slot)
        return fill(op.template, {name: handle.expr for name, handle in self._filled.items()})

    def _fill(self, slot: spec.Slot) -> Handle:
        lockstep, choices, filled = self._lockstep, self._choices, self._filled
        match slot:
            case spec.Tensor():
                return self._tensor(slot)
            case spec.Indices():
                return self._indices(slot)
            case spec.Size(low, high):
                most = literal(MAX_SIZE) if high is None else self._extent(high)
                return draw_size(lockstep, choices, self._extent(low), most)
            case spec.Number(low, high):
                return literal(choices.between(low, high))
            case spec.Choice(options):
                return Handle(choices.pick(options), None, None, False)
            case spec.DimOf(name, extra):
                return self._dim(filled[name], extra)
            case spec.DimsOf(name, permute):
                return self._dims(filled[name], permute)
            case spec.Shape(min_rank, max_rank):
                return draw_shape(lockstep, choices, choices.between(min_rank, max_rank))
            case spec.ReshapeOf(name, dim):
                if dim is None:
                    return draw_reshape(choices, extents(filled[name]))
                return draw_split(choices, self._extent(spec.At(name, dim)))
            case spec.ExpandOf(name):
                return draw_expansion(lockstep, choices, filled[name])
            case spec.SplitOf(name, dim, bounds):
                return draw_sections(lockstep, choices, self._extent(spec.At(name, dim)), bounds)
            case spec.Data():
                return draw_data(lockstep, choices, slot)
            case spec.Leaf():
                return add_leaf(lockstep, slot)

    def _extent(self, wanted: spec.Extent) -> Handle:
        if isinstance(wanted, int):
            return literal(wanted)
        if isinstance(wanted, str):
            return self._filled[wanted]
        dim = wanted.dim if isinstance(wanted.dim, int) else self._filled[wanted.dim].left
        tensor = self._filled[wanted.slot]
        if not -tensor.left.dim() <= dim < tensor.left.dim():
            raise NothingFitsError
        size = extent(tensor, dim)
        return arithmetic("+", size, literal(wanted.plus)) if wanted.plus else size

    def _tensor(self, slot: spec.Tensor) -> Handle:
        lockstep, choices = self._lockstep, self._choices
        if slot.shape is not None:
            return draw_shaped(lockstep, choices, [self._extent(size) for size in slot.shape], slot.kind)
        if slot.like is not None:
            return draw_alike(lockstep, choices, self._filled[slot.like], slot.kind)
        if slot.broadcast is not None:
            return draw_broadcastable(lockstep, choices, self._filled[slot.broadcast], slot.kind)
        return draw_tensor(lockstep, choices, slot)

    def _dim(self, tensor: Handle, extra: int) -> Handle:
        """A dim of `tensor`. Data-dependent dims are picked as often as all others together."""
        choices, rank = self._choices, tensor.left.dim() + extra
        if rank == 0:
            raise NothingFitsError
        telling = [dim for dim, size in enumerate(extents(tensor)) if size.varies]
        dim = choices.pick(telling) if telling and choices.one_in(2) else choices.below(rank)
        return literal(dim - rank if choices.one_in(3) else dim)

    def _dims(self, tensor: Handle, permute: bool) -> Handle:
        choices, left = self._choices, list(range(tensor.left.dim()))
        if not left:
            raise NothingFitsError
        count = len(left) if permute else choices.between(1, len(left))
        return shape([literal(left.pop(choices.below(len(left)))) for _ in range(count)])

    def _indices(self, slot: spec.Indices) -> Handle:
        lockstep, choices = self._lockstep, self._choices
        below = self._extent(slot.below)
        least = min(below.left, below.right)
        if least < 1:
            raise NothingFitsError
        if slot.like is not None:
            return self._zeros(extents(self._filled[slot.like]), least)
        if slot.shape is not None:
            return self._zeros([self._extent(size) for size in slot.shape], least)
        known = [tensor for tensor in lockstep.tensors if slot.min_rank <= tensor.left.dim() <= slot.max_rank]
        within = [tensor for tensor in known if _indexes(tensor, below)]
        if within and choices.one_in(2):
            return choices.pick(within)
        if choices.one_in(4) or slot.min_rank > 1:
            sizes = tuple(choices.between(2, 4) for _ in range(slot.min_rank))
            return lockstep.add_input("int64", tuple(map(Dim, sizes)), Recipe("index", (least,)))
        length = draw_size(lockstep, choices, literal(1), below)
        return add_template(lockstep, choices.pick(conversions.INDICES), n=length)

    def _zeros(self, sizes: list[Handle], least: int) -> Handle:
        """An index tensor of exactly these sizes. It is an input if no size is data-dependent."""
        wanted = shape(sizes)
        if wanted.varies:
            return add_template(self._lockstep, "torch.zeros(s, dtype=torch.int64)", s=wanted)
        return self._lockstep.add_input("int64", tuple(map(Dim, wanted.left)), Recipe("index", (least,)))


def _indexes(tensor: Handle, below: Handle) -> bool:
    """Whether every value of a tensor is an index below a size, in both runs."""
    return all(
        str(values.dtype) == "torch.int64"
        and (values.numel() == 0 or (int(values.min()) >= 0 and int(values.max()) < size))
        for values, size in ((tensor.left, below.left), (tensor.right, below.right))
    )


FOCUS: Final = st.integers(0, 2**16 - 1)
"""The first thing drawn: which op of the catalogue the program is to have (modulo their number)."""

OTHER_SIZES: Final[tuple[DataSize, ...]] = (*("2",) * 7, "1")
ATTEMPTS_PER_STEP: Final = 4
SPARE_ATTEMPTS: Final = 8
STARTS: Final = tuple(spec for spec in GROUPS["sources"] if not spec.stops)
UNBACKED: Final = Tensor(1, 3)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program, and the number of steps that was requested."""

    program: Program
    requested: int


@st.composite
def drawn_programs(draw: st.DrawFn, profile: Profile, journal: Journal | None = None) -> Drawn:
    """Programs of a profile with the requested number of steps. `journal` is called with each step before it runs."""

    def choices() -> Choices:
        return Choices(draw(WORDS))

    focus = OPS[draw(FOCUS) % len(OPS)]
    first = choices()
    requested = first.between(profile.min_steps, profile.max_steps)
    lockstep = Lockstep(first.pick(OTHER_SIZES), journal)
    due = 0 if first.one_in(2) else first.between(0, requested - 1)
    with strict_eager():
        if focus in GROUPS["sources"]:
            attempt(lockstep, choices(), focus)
        elif first.below(16) < profile.unbacked_input:
            draw_unbacked_input(lockstep, first, UNBACKED)
        for _ in range(ATTEMPTS_PER_STEP):
            if lockstep.tensors or lockstep.ints:
                break
            start = choices()
            attempt(lockstep, start, start.pick(STARTS))
        is_focus_due = focus not in GROUPS["sources"]
        for _ in range(SPARE_ATTEMPTS + ATTEMPTS_PER_STEP * requested):
            if len(lockstep.steps) >= requested:
                break
            step = choices()
            if is_focus_due and len(lockstep.steps) >= due:
                is_focus_due = not attempt(lockstep, step, focus)
            else:
                attempt(lockstep, step, pick(profile, step))
    program = lockstep.program()
    assume(program.steps and len(program.inputs) == len(inputs_read(program)))
    return Drawn(program, requested)


def inputs_read(program: Program) -> frozenset[str]:
    """The inputs that some step reads. No input can be left out, as values depend on an input's position."""
    read = frozenset().union(*(names_in(step.value) for step in program.steps))
    return read.intersection(item.name for item in program.inputs)


def pick(profile: Profile, choices: Choices) -> OpSpec:
    """An op of the catalogue, by the profile's weights."""
    ops, weights = cumulative_weights(profile.name)
    return ops[bisect_right(weights, choices.below(weights[-1]))]


def attempt(lockstep: Lockstep, choices: Choices, op: OpSpec) -> bool:
    """Add a call of `op`. False, with nothing added, if its arguments cannot be made or torch raises.

    A call with literals alone is not added either: it has no unbacked size.
    """
    mark = lockstep.mark()
    try:
        expr = Arguments(lockstep, choices).call(op)
    except (NothingFitsError, *REFUSALS):
        lockstep.rollback(mark)
        return False
    if not names_in(expr) or lockstep.add_step(expr) is None:
        lockstep.rollback(mark)
        return False
    return True
