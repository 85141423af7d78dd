"""The n-th case of a campaign, as a pure function of the versions, the profile, the seed and the index. Hypothesis
draws it forward: each step runs at once at two data sizes.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from typing import Final, TypeAlias

import hypothesis
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ddefuzz.generate.bodies import draw_body, takes_functions
from ddefuzz.generate.lockstep import REFUSALS, WORD_BITS, WORDS, Choices, Handle, Journal, Lockstep, strict_eager
from ddefuzz.generate.profiles import CAPTURES, PROFILES, Draw, Profile, cumulative_weights, drawable, profile_named
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
    draw_producer,
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
from ddefuzz.ops.conversions import TEMPLATES
from ddefuzz.ops.spec import OpSpec, Tensor
from ddefuzz.program.evaluate import materialize, run_step, run_steps
from ddefuzz.program.model import Call, Dim, Expr, Literal, Name, Option, Program, Recipe, Sequence, Step, names_in
from ddefuzz.program.options import fitting
from ddefuzz.program.plain import address_of
from ddefuzz.program.recipes import DIFFERENTIABLE
from ddefuzz.program.sizes import DataSize, at_data_size
from ddefuzz.program.text import print_program


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
            case spec.Body():
                return draw_body(lockstep, choices, slot, filled, _attempt_inside)

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
            wanted = choices.pick((slot.shape, *slot.others)) if slot.others else slot.shape
            return draw_shaped(lockstep, choices, [self._extent(size) for size in wanted], slot.kind)
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
        if choices.one_in(4) or slot.min_rank != 1:
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


def _attempt_inside(lockstep: Lockstep, choices: Choices) -> bool:
    """Add a step inside of a function: an op that captures, and that takes no function itself."""
    op = pick(profile_named(CAPTURES), choices)
    return not takes_functions(op) and attempt(lockstep, choices, op)


FOCUS: Final = st.integers(0, 2**16 - 1)
"""The first thing drawn: which op of the catalogue the program is to have (modulo their number)."""

OTHER_SIZES: Final[tuple[DataSize, ...]] = (*("2",) * 7, "1")
ATTEMPTS_PER_STEP: Final = 4
SPARE_ATTEMPTS: Final = 8
STARTS: Final = tuple(spec for spec in GROUPS["sources"] if not spec.stops)
UNBACKED: Final = Tensor(1, 3)


@dataclass(frozen=True, slots=True)
class DrawnProgram:
    """A program, and the number of steps that was requested."""

    program: Program
    requested: int


@st.composite
def drawn_programs(draw: st.DrawFn, profile: Profile, journal: Journal | None = None) -> DrawnProgram:
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
            if profile.producers and first.one_in(profile.producers):
                draw_producer(lockstep, first)
            else:
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
    if profile.gradients and first.one_in(profile.gradients):
        program = with_gradients(program, lockstep.other_size)
    elif profile.writes:
        program = with_write(program, lockstep.other_size)
    if profile.options and first.one_in(profile.options):
        program = with_options(program, first)
    return DrawnProgram(program, requested)


def with_options(program: Program, choices: Choices) -> Program:
    """The program with one option or two. Every pair is as likely as any other."""
    kinds: dict[str, list[Option]] = defaultdict(list)
    for option in fitting(program):
        kinds[option.name].append(option)
    names = [choices.pick(sorted(kinds)) for _ in range(2)] if kinds else []
    return replace(program, options=tuple(choices.pick(kinds[name]) for name in dict.fromkeys(names)))


def with_write(program: Program, other_size: DataSize) -> Program:
    """The program with an op at its end that writes into a view, and all that shares its memory in the result: the last
    view of which eager allows it. A copy in place of the view, or a view that autograd makes again, shows then.
    """
    env: dict[str, object] = dict(materialize(program))
    with strict_eager():
        for step in program.steps:
            env |= run_step(step, env)
    tensors = {name: one for name, one in env.items() if isinstance(one, torch.Tensor) and one.numel()}
    memory = {name: address for name, one in tensors.items() if (address := address_of(one))}
    returned = program.returns.items if isinstance(program.returns, Sequence) else (program.returns,)
    for written in reversed(memory):
        shared = [Name(name) for name, where in memory.items() if where == memory[written] and name != written]
        results = (*returned, *(one for one in (Name(written), *shared) if one not in returned))
        write = Step((), Call("Tensor.add_", (Name(written), Literal(1))))
        made = replace(program, steps=(*program.steps, write), returns=Sequence(results))
        if shared and _runs(made, other_size):
            return made
    return program


def _runs(program: Program, other_size: DataSize) -> bool:
    with strict_eager():
        try:
            for sized in (program, at_data_size(program, other_size)):
                run_steps(sized, materialize(sized))
        except REFUSALS:
            return False
    return True


def with_gradients(program: Program, other_size: DataSize) -> Program:
    """The program with inputs that require gradients, if eager computes gradients at both data sizes; else the program
    itself. A program that changes an input in place has none, for example.
    """
    made = replace(
        program, inputs=tuple(replace(one, requires_grad=one.dtype in DIFFERENTIABLE) for one in program.inputs)
    )
    with strict_eager():
        for sized in (made, at_data_size(made, other_size)):
            try:
                given = materialize(sized)
                result = run_steps(sized, given)
                results = result if isinstance(result, tuple) else (result,)
                parts = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
                wanted = [one for one in given.values() if one.requires_grad]
                torch.autograd.grad(parts, wanted, [torch.ones_like(one) for one in parts], allow_unused=True)
            except REFUSALS:
                return program
    return made


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


GENERATOR_VERSION: Final = 13
"""Raised when the code of `generate` or of a campaign's guide changes the program of an index. Tables have a digest."""

FOCUS_BYTES: Final = 2
WORD_BYTES: Final = WORD_BITS // 8
WORDS_OF_CASE: Final = 128
CASE_BYTES: Final = FOCUS_BYTES + WORD_BYTES * WORDS_OF_CASE

FOCUSED: Final = tuple(position for position, spec in enumerate(OPS) if spec not in GROUPS["pointwise"])
"""The positions of the ops that take turns in focus. Pointwise ops are left out, because they evaluate few guards."""

STOPPING: Final = tuple(position for position in FOCUSED if OPS[position].stops)
"""Those of them that usually stop capture."""

Fuzz: TypeAlias = Callable[[bytes, Journal | None], DrawnProgram | None]


def generator_key(profile: str, seed: int) -> str:
    """Everything that decides the set of cases, as a line. Two campaigns with the same key draw the same programs."""
    return (
        f"generator={GENERATOR_VERSION} tables={_tables_digest()} torch={torch.__version__} "
        f"hypothesis={hypothesis.__version__} profile={profile} seed={seed}"
    )


def case(profile: str, seed: int, index: int, journal: Journal | None = None) -> Program:
    """The case `index` of a campaign. InputError for an unknown profile.

    `journal` is called with each step before the step runs. So a step that kills the process is known.
    """
    return drawn_case(profile, seed, index, journal).program


def case_text(profile: str, seed: int, index: int) -> str:
    """The text of that program."""
    return print_program(case(profile, seed, index))


def drawn_case(
    profile: str, seed: int, index: int, journal: Journal | None = None, focus: int | None = None
) -> DrawnProgram:
    """The same, with the requested number of steps. `focus` is the op in focus in place of the index's own."""
    chosen = _focus(profile, seed, index) if focus is None else focus
    drawn = (_fuzzer(profile)(_spelling(profile, seed, index, attempt, chosen), journal) for attempt in count())
    return next(found for found in drawn if found is not None)


def respelled(
    profile: str, seed: int, base: Draw, changes: tuple[tuple[int, int], ...], journal: Journal | None = None
) -> Program | None:
    """The bytes of a case with some words (counted modulo) drawn again. None if the bytes give no program."""
    focus = _focus(profile, seed, base.index) if base.focus is None else base.focus
    data = bytearray(_spelling(profile, seed, base.index, 0, focus))
    for word, number in changes:
        begin = FOCUS_BYTES + word % WORDS_OF_CASE * WORD_BYTES
        data[begin : begin + WORD_BYTES] = random.Random(number).randbytes(WORD_BYTES)
    return from_bytes(profile, bytes(data), journal)


def _spelling(profile: str, seed: int, index: int, attempt: int, focus: int) -> bytes:
    stream = random.Random(f"{profile}:{seed}:{index}:{attempt}")
    return focus.to_bytes(FOCUS_BYTES, "big") + stream.randbytes(WORD_BYTES * WORDS_OF_CASE)


def from_bytes(profile: str, data: bytes, journal: Journal | None = None) -> Program | None:
    """The program that a byte string encodes. None if the string is too short or no step of it is accepted.

    The first two bytes choose the op in focus. Every 24 bytes after them are one attempt at a step. So a change
    in the middle keeps the steps before it.
    """
    drawn = _fuzzer(profile)(data, journal)
    return None if drawn is None else drawn.program


@lru_cache(maxsize=8)
def _round(seed: int, number: int, focused: tuple[int, ...]) -> tuple[int, ...]:
    """The ops in focus in one round of cases, each once, so that a campaign reaches every op early."""
    return tuple(random.Random(f"{seed}:{number}").sample(focused, len(focused)))


def _focus(profile: str, seed: int, index: int) -> int:
    """The op in focus. At the start of a campaign every second case has an op that usually stops capture, each
    such op once.

    So a short campaign sees the known failures, and a long one is as even as its rounds. A profile without
    ops that stop capture has none of them in focus.
    """
    if not profile_named(profile).stops:
        focused = tuple(position for position in FOCUSED if OPS[position] in drawable(profile))
        rounds, position = divmod(index, len(focused))
        return _round(seed, rounds, focused)[position]
    opening = len(STOPPING)
    place, is_odd = divmod(index, 2)
    if place < opening:
        if not is_odd:
            return random.Random(f"{seed}:opening").sample(STOPPING, opening)[place]
        rounds, position = divmod(place, len(FOCUSED))
    else:
        rounds, position = divmod(index - opening, len(FOCUSED))
    return _round(seed, rounds, FOCUSED)[position]


@cache
def _fuzzer(profile: str) -> Fuzz:
    """The profile's strategy behind Hypothesis's `fuzz_one_input`, which keeps no examples and reads no database."""
    made: list[DrawnProgram] = []
    listeners: list[Journal] = []

    def test_with(journal: Journal | None) -> Callable[[bytes], bytes | None]:
        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(drawn_programs(profile_named(profile), journal))
        def keep(drawn: DrawnProgram) -> None:
            made.append(drawn)

        fuzz: Callable[[bytes], bytes | None] = keep.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
        return fuzz

    def note(line: str) -> None:
        listeners[-1](line)

    silent, noting = test_with(None), test_with(note)

    def run(data: bytes, journal: Journal | None) -> DrawnProgram | None:
        made.clear()
        if journal is None:
            silent(data)
        else:
            listeners.append(journal)
            try:
                noting(data)
            finally:
                listeners.pop()
        return made.pop() if made else None

    return run


@cache
def _tables_digest() -> str:
    """A digest of the catalogue, the conversions and the profiles."""
    tables = repr((OPS, TEMPLATES, sorted(PROFILES.items())))
    return hashlib.sha256(tables.encode()).hexdigest()[:10]
