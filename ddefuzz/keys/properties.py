"""The properties of a key function, each tried on drawn tensors; a violation has the smallest tensors that show it."""

from __future__ import annotations

import gc
import linecache
import math
import re
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from inspect import unwrap
from random import Random
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias
from warnings import catch_warnings, simplefilter

import msgspec
import torch
from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample
from msgspec.structs import replace

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import display_file
from ddefuzz.instrument.guards import watch
from ddefuzz.keys.case import (
    ALIGNMENT,
    KINDS,
    Kind,
    Options,
    Property,
    PropertyName,
    Tensors,
    TensorSpec,
    Violation,
)
from ddefuzz.keys.key import geometry
from ddefuzz.program.recipes import DTYPES

SIZES: Final = (0, 1, 2, 3, 5, 16, 17, 32)
MOST_DIMS: Final = 5
MOST_ELEMENTS: Final = 4_096


class OwnTensor(torch.Tensor):
    """A subclass without anything of its own."""


STRIDED: Final = frozenset({"tensor", "parameter", "subclass", "fake", "meta", "batched", "grad"})
"""The kinds whose strides are those that were drawn."""


def exists(spec: TensorSpec) -> bool:
    """Whether torch has such a tensor."""
    dtype = getattr(torch, spec.dtype)
    differentiable = dtype.is_floating_point or dtype.is_complex
    if spec.requires_grad and not (differentiable and spec.kind in {"tensor", "parameter", "subclass", "fake", "meta"}):
        return False
    if spec.bits and (spec.kind not in {"tensor", "parameter"} or dtype.is_complex != (spec.bits == "conj")):
        return False
    if spec.bits == "neg" and not dtype.is_floating_point:
        return False
    match spec.kind:
        case "mkldnn":
            return spec.dtype == "float32" and bool(spec.sizes) and 0 not in spec.sizes
        case "csr":
            return len(spec.sizes) == 2
        case "grad":
            return bool(dtype.is_floating_point)
        case "batched":
            return bool(spec.sizes) and spec.sizes[0] > 0
        case "nested":
            return bool(spec.sizes)
        case _:
            return math.prod(spec.sizes) <= MOST_ELEMENTS


def with_tensor(spec: TensorSpec, use: Callable[[torch.Tensor], Any]) -> Any:
    """What `use` gives for the tensor. Functorch's wrappers live only within a call."""
    made = torch.zeros(spec.elements, dtype=getattr(torch, spec.dtype)).as_strided(
        spec.sizes, spec.strides, spec.offset
    )
    if spec.bits:
        made = made.conj() if spec.bits == "conj" else torch_api.bound(torch_api.NEGATED_VIEW)(made)
    if spec.requires_grad and spec.kind != "parameter":
        made.requires_grad_()
    match spec.kind:
        case "batched" | "grad":
            return _within(spec.kind, made, use)
        case "parameter":
            made = torch.nn.Parameter(made, requires_grad=spec.requires_grad)
        case "subclass":
            made = made.as_subclass(OwnTensor)
        case "fake":
            made = torch_api.bound(torch_api.FAKE_MODE)().from_tensor(made)
        case "zeros":
            made = torch_api.bound(torch_api.LAZY_ZEROS)(spec.sizes, dtype=made.dtype)
        case "nested":
            made = torch.nested.nested_tensor([made])
        case "meta":
            made = torch.empty_strided(spec.sizes, spec.strides, dtype=made.dtype, device="meta").requires_grad_(
                spec.requires_grad
            )
        case "sparse" | "csr" | "mkldnn":
            made = getattr(made, {"sparse": "to_sparse", "csr": "to_sparse_csr", "mkldnn": "to_mkldnn"}[spec.kind])()
    return use(made)


def _within(kind: Kind, made: torch.Tensor, use: Callable[[torch.Tensor], Any]) -> Any:
    results: list[Any] = []

    def inner(tensor: torch.Tensor) -> torch.Tensor:
        results.append(use(tensor))
        return tensor.sum() if kind == "grad" else tensor

    (torch.func.grad if kind == "grad" else torch.vmap)(inner)(made)
    return results[0]


@st.composite
def drawn(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> TensorSpec:
    """A tensor. It shrinks towards few dims, contiguous, float32."""
    sizes = tuple(draw(st.lists(st.sampled_from(SIZES), max_size=MOST_DIMS)))
    while math.prod(max(size, 1) for size in sizes) > MOST_ELEMENTS:
        sizes = sizes[:-1]
    base = TensorSpec(
        sizes,
        draw(strides_of(sizes)),
        draw(st.sampled_from((0, 0, 1, 4, 16))),
        draw(st.sampled_from(("float32", *sorted(set(DTYPES.values()) - {"float32"})))),
        draw(st.sampled_from(kinds)),
        draw(st.booleans()),
        draw(st.sampled_from(("", "", "conj", "neg"))),
    )
    # What does not exist is made to, so that no draw is thrown away.
    for changed in ({}, {"bits": ""}, {"bits": "", "requires_grad": False}, {"bits": "", "dtype": "float32"}):
        made = replace(base, **changed)
        if exists(made):
            return made
    return TensorSpec(sizes, base.strides, base.offset, kind=kinds[0])


@st.composite
def strides_of(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of every layout: contiguous, permuted (channels-last among them), expanded, and with gaps."""
    order = draw(st.one_of(st.just(list(reversed(range(len(sizes))))), st.permutations(range(len(sizes)))))
    gaps = draw(st.one_of(st.just([1] * len(sizes)), st.lists(st.sampled_from((0, 1, 2)), min_size=5, max_size=5)))
    strides, extent = [0] * len(sizes), 1
    for dim in order:
        strides[dim] = extent * gaps[dim]
        extent = max(extent * gaps[dim] * max(sizes[dim], 1), extent)
    return tuple(strides)


def singles(kinds: tuple[Kind, ...] = KINDS) -> st.SearchStrategy[Tensors]:
    """One tensor."""
    return drawn(kinds).map(lambda one: (one,))


@st.composite
def unbacked(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> Tensors:
    """A tensor whose sizes are all to be unbacked, by an example: a FakeTensor, or one whose type is torch.Tensor."""
    del kinds
    sizes = tuple(draw(st.lists(st.sampled_from((2, 1, 3, 5)), min_size=1, max_size=4)))
    strides = tuple(math.prod(sizes[at + 1 :]) for at in range(len(sizes)))
    return (TensorSpec(sizes, strides, kind=draw(st.sampled_from(("fake", "meta")))),)


@st.composite
def pairs(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> Tensors:
    """Two tensors. Most pairs differ in one thing only, where a key function is most easily wrong."""
    first, other = draw(drawn(kinds)), draw(drawn(kinds))
    part = draw(st.sampled_from(("all", *TensorSpec.__struct_fields__, "size", "size")))
    if part == "all":
        return first, other
    if part == "size" and first.sizes:
        at = draw(st.integers(0, len(first.sizes) - 1))
        sizes = (*first.sizes[:at], draw(st.sampled_from(SIZES)), *first.sizes[at + 1 :])
        changed = {"sizes": sizes, "strides": draw(strides_of(sizes))}
    elif part in ("size", "sizes", "strides"):
        changed = {"strides": draw(strides_of(first.sizes))}
    else:
        changed = {part: getattr(other, part)}
    second = replace(first, **changed)
    small = math.prod(max(size, 1) for size in second.sizes) <= MOST_ELEMENTS
    return (first, second) if small and exists(second) else (first, other)


def simpler(tensors: Tensors) -> Iterator[Tensors]:
    """Tensors that are simpler in one thing: in all of them, or in one."""
    yield from _simpler(tensors)
    for at in range(len(tensors) if len(tensors) > 1 else 0):
        for (simpler_spec,) in _simpler(tensors[at : at + 1]):
            yield (*tensors[:at], simpler_spec, *tensors[at + 1 :])


def _simpler(tensors: Tensors) -> Iterator[Tensors]:
    for change in _changes(max(len(one.sizes) for one in tensors)):
        made = tuple(change(one) for one in tensors)
        if made != tensors and all(map(exists, made)):
            yield made


def _changes(rank: int) -> Iterator[Callable[[TensorSpec], TensorSpec]]:
    plain: tuple[tuple[str, Any], ...] = (
        ("kind", "tensor"),
        ("bits", ""),
        ("requires_grad", False),
        ("dtype", "float32"),
        ("offset", 0),
    )
    for name, value in plain:
        yield lambda one, name=name, value=value: replace(one, **{name: value})  # type: ignore[misc]
    for at in range(rank):
        yield (
            lambda one, at=at: replace(  # type: ignore[misc]
                one, sizes=one.sizes[:at] + one.sizes[at + 1 :], strides=one.strides[:at] + one.strides[at + 1 :]
            )
        )
    for at in range(rank):
        yield lambda one, at=at: _with(one, "sizes", at, 2)  # type: ignore[misc]
        for most in (0, 1, 2):
            yield lambda one, at=at, most=most: _with(one, "strides", at, most)  # type: ignore[misc]


def _with(spec: TensorSpec, name: str, at: int, number: int) -> TensorSpec:
    """With another size or stride. The simplest size is 2, because 0 and 1 are special."""
    numbers: tuple[int, ...] = getattr(spec, name)
    if at >= len(numbers) or (name == "strides" and numbers[at] < number):
        return spec
    return replace(spec, **{name: (*numbers[:at], number, *numbers[at + 1 :])})


AnyKey: TypeAlias = Callable[[Any], Hashable]

SHOWN_KEY: Final = 300  # how many characters of a key are shown


class KeyFunction(NamedTuple):
    """A key function. `elsewhere` gives the texts of another process's keys, `options` say what a key distinguishes."""

    key: AnyKey
    options: Options
    elsewhere: Callable[[Sequence[TensorSpec]], list[str]]


def shown_key(key: object) -> str:
    """The text of a key, not too long."""
    try:
        return _short(repr(key))
    except BaseException as error:  # noqa: BLE001 the key is of the user's class
        return f"<{type(error).__name__} in __repr__>"


def error_line(error: BaseException) -> str:
    """The first line of an error, without the symbols that torch lists in any order."""
    try:
        text = str(error)
    except BaseException as failure:  # noqa: BLE001 the error is of the user's class
        text = f"<{type(failure).__name__} in __str__>"
    first = next(iter(text.strip().splitlines()), "").partition(" (Size-like symbols: ")[0]
    return _short(" ".join(f"{type(error).__name__}: {first}".split()))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"


def code_of(key: object) -> CodeType | None:
    """The code of a key function, of the function that it wraps, or of its class's `__call__`. None if C++ has it."""
    function: Any = unwrap(key) if callable(key) else key
    function = getattr(function, "func", function)
    made = function if hasattr(function, "__code__") else vars(type(function)).get("__call__")
    code = getattr(made, "__code__", None)
    return code if isinstance(code, CodeType) else None


def raising_line(code: CodeType | None, error: BaseException) -> Frame | None:
    """The line of the key function that raised."""
    traceback, line = error.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return None if line is None or code is None else frame_at(code, line)


def defined(key: object, target: str) -> Frame:
    """The definition of a key function."""
    code = code_of(key)
    module, _, name = target.rpartition(":")
    return frame_at(code, code.co_firstlineno) if code is not None else Frame(module, 0, name)


def frame_at(code: CodeType, line: int) -> Frame:
    text = linecache.getline(code.co_filename, line).strip()
    return Frame(display_file(code.co_filename), line, code.co_name, text)


OTHER_PROCESS: Final = 40  # how many tensors are tried in another process
MOST_VIOLATIONS: Final = 5  # how many violations of one property are looked for


class PropertyRow(NamedTuple):
    """A property: `wrong` gives its violation by tensors that `drawn` draws, if it `applies` to them."""

    meaning: str
    wrong: Callable[[KeyFunction, Tensors], Violation | None]
    drawn: Callable[[tuple[Kind, ...]], st.SearchStrategy[Tensors]] = singles
    applies: Callable[[Options, Tensors], bool] = lambda _options, _tensors: True
    simpler: Callable[[Tensors], Iterator[Tensors]] = simpler


def check(name: PropertyName, function: KeyFunction, examples: int, kinds: tuple[Kind, ...]) -> Property:
    """One property of a key function, on so many tensors or pairs of them."""
    return _tried(name, function, examples, kinds) if name != STABLE else _stable(function, kinds)


def violation(name: PropertyName, function: KeyFunction, tensors: Tensors) -> Violation | None:
    """How these tensors violate a property. None if they do not, or if it does not apply to them."""
    row = PROPERTIES[name]
    with catch_warnings():
        simplefilter("ignore")  # of torch, about layouts in beta
        return row.wrong(function, tensors) if row.applies(function.options, tensors) else None


def _tried(name: PropertyName, function: KeyFunction, examples: int, kinds: tuple[Kind, ...]) -> Property:
    row, tried = PROPERTIES[name], 0
    violations: list[Violation] = []
    latest: Violation | None = None  # the smallest, and of a function that answers at random the last one

    def shows(tensors: Tensors) -> bool:
        nonlocal tried, latest
        if not row.applies(function.options, tensors):
            return False
        tried += latest is None and not violations
        made = row.wrong(function, tensors)
        if made is None or any(one.explains(made) for one in violations):
            return False
        latest = made
        return True

    with catch_warnings():
        simplefilter("ignore")
        while len(violations) < MOST_VIOLATIONS:
            latest = None
            first = _first(row.drawn(kinds), shows, examples)
            if first is not None:
                smallest_of(first, shows, row.simpler)
            smallest: Violation | None = latest
            if smallest is None:
                break
            violations.append(smallest)
    return Property(name, row.meaning, tried, tuple(violations))


def _first(strategy: st.SearchStrategy[Tensors], shows: Callable[[Tensors], bool], examples: int) -> Tensors | None:
    """The tensors that Hypothesis finds. None without any, and where `shows` answers at random."""
    chosen = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    try:
        return find(strategy, shows, settings=chosen, random=Random(0))
    except (NoSuchExample, Flaky):
        return None


def smallest_of(
    first: Tensors, shows: Callable[[Tensors], bool], simpler_than: Callable[[Tensors], Iterator[Tensors]]
) -> Tensors:
    """The tensors after every simplification that still shows it. Hypothesis alone stops at larger ones."""
    smaller: Tensors | None = first
    while smaller is not None:
        first = smaller
        smaller = next((one for one in simpler_than(first) if shows(one)), None)
    return first


def facts(spec: TensorSpec, options: Options) -> tuple[Hashable, ...]:
    """What a kernel may depend on: the parts of the options, read from the description and not from the tensor."""
    batched = spec.kind == "batched"
    sizes = spec.sizes[1:] if batched else spec.sizes
    strides = spec.strides[1:] if batched else spec.strides
    if spec.kind == "zeros":  # it is laid out without gaps, whatever was drawn
        strides = torch.empty(sizes, device="meta").stride()
    has_strides = spec.kind in STRIDED or spec.kind == "zeros"
    strided = msgspec.structs.replace(options, strides=options.strides if has_strides else "none")
    itemsize = getattr(torch, spec.dtype).itemsize
    has_offset = spec.kind in STRIDED and spec.kind != "meta"
    return (
        "tensor" if spec.kind in ("tensor", "parameter") else spec.kind,
        spec.bits,
        geometry(strided)(sizes, strides),
        spec.dtype if options.dtype else None,
        spec.requires_grad if options.requires_grad else None,
        not (options.alignment and has_offset) or spec.offset * itemsize % ALIGNMENT == 0,
    )


def _violation(tensors: Tensors, keys: Sequence[object], why: str, part: str = "") -> Violation:
    shown = tuple(key if isinstance(key, str) else shown_key(key) for key in keys)
    return Violation(tuple(one.text for one in tensors), shown, why, tensors, part)


def _gives(function: KeyFunction, tensors: Tensors) -> Violation | None:
    def twice(tensor: torch.Tensor) -> tuple[Hashable, Hashable]:
        first, second = function.key(tensor), function.key(tensor)
        hash(first)
        return first, second

    (spec,) = tensors
    try:
        first, second = with_tensor(spec, twice)
        again, _ = with_tensor(spec, twice)
        is_same = bool(first == second and first == again and hash(first) == hash(second) == hash(again))
    except BaseException as error:  # noqa: BLE001 the key function is under test
        return _violation(tensors, (), error_line(error), type(error).__name__)
    if is_same:
        return None
    return _violation(tensors, (first, again), "two keys of the same tensor differ", "two keys")


def _alike(options: Options, tensors: Tensors) -> bool:
    return len({facts(one, options) for one in tensors}) == 1


def _parts(tensors: Tensors) -> str:
    first, second = tensors
    if len(first.sizes) != len(second.sizes):
        return "rank"
    differing = [name for name in TensorSpec.__struct_fields__ if getattr(first, name) != getattr(second, name)]
    return ", ".join(name for name in differing if name != "strides" or "sizes" not in differing)


def _if(equal: bool, why: str) -> Callable[[KeyFunction, Tensors], Violation | None]:
    """Two keys that are equal, or not. They need no hash: some caches compare keys only."""

    def wrong(function: KeyFunction, tensors: Tensors) -> Violation | None:
        try:
            made = tuple(with_tensor(one, function.key) for one in tensors)
            is_wrong = bool(made[0] == made[1]) == equal
        except BaseException:  # noqa: BLE001 that it gives no key is another property
            return None
        return _violation(tensors, made[: 1 if equal else 2], why, _parts(tensors)) if is_wrong else None

    return wrong


def _holds(function: KeyFunction, tensors: Tensors) -> Violation | None:
    alive: list[Any] = []

    def keyed(tensor: torch.Tensor) -> Hashable:
        alive.append(weakref.ref(tensor))
        return function.key(tensor)

    try:
        made = with_tensor(tensors[0], keyed)
    except BaseException:  # noqa: BLE001 that it gives no key is another property
        return None
    if alive[0]() is None:
        return None
    gc.collect()
    if alive[0]() is None:
        return None
    return _violation(tensors, (made,), "the tensor is alive as long as its key")


def _unstable(function: KeyFunction, tensors: Tensors) -> Violation | None:
    here, there = texts(function.key, tensors), function.elsewhere(tensors)
    if here == there:
        return None
    return _violation(tensors, (here[0][:SHOWN_KEY], there[0][:SHOWN_KEY]), "two texts")


def texts(key: AnyKey, tensors: Sequence[TensorSpec]) -> list[str]:
    """The text of each tensor's key; the error's if it has none."""
    return [_text(key, one) for one in tensors]


def _text(key: AnyKey, spec: TensorSpec) -> str:
    try:
        return str(with_tensor(spec, lambda tensor: repr(key(tensor))))
    except BaseException as error:  # noqa: BLE001 the key function is under test
        return type(error).__name__


def _stable(function: KeyFunction, kinds: tuple[Kind, ...]) -> Property:
    """The property `STABLE`: all its tensors are tried in one process."""
    drawn: list[TensorSpec] = []

    def taken(tensors: Tensors) -> bool:
        drawn.extend(tensors)
        return False

    with catch_warnings():
        simplefilter("ignore")
        _first(singles(kinds), taken, OTHER_PROCESS)
        wanted = sorted(set(drawn), key=lambda one: (len(one.text), one))
        compared = zip(wanted, texts(function.key, wanted), function.elsewhere(wanted), strict=True)
    wrong = next((one for one in compared if one[1] != one[2]), None)
    violations = (
        () if wrong is None else (_violation((wrong[0],), [text[:SHOWN_KEY] for text in wrong[1:]], "two texts"),)
    )
    return Property(STABLE, PROPERTIES[STABLE].meaning, len(wanted), violations)


STABLE: Final[PropertyName] = "same-in-other-process"

_SYMBOL: Final = re.compile(r"\bu\d+")


def symbolic_tensor(sizes: tuple[int, ...], exact: bool, env: Any = None, name: str = "x") -> tuple[torch.Tensor, Any]:
    """A tensor whose sizes are all unbacked, and its ShapeEnv: a FakeTensor, or one on the meta device."""
    env = env or torch_api.bound(torch_api.SHAPE_ENV)()
    mode = torch_api.bound(torch_api.FAKE_MODE)(shape_env=env)
    context = torch_api.bound(torch_api.SYMBOLIC_CONTEXT)(dynamic_sizes=[torch_api.DIM_UNBACKED.get()] * len(sizes))
    source = torch_api.bound(torch_api.CONSTANT_SOURCE)(name)
    made: torch.Tensor = mode.from_tensor(torch.zeros(sizes), symbolic_context=context, source=source)
    return (torch.empty_strided(made.shape, made.stride(), device="meta") if exact else made), env


def _state(env: Any) -> tuple[Any, ...]:
    return len(env.guards), dict(env.replacements), env.num_deferred_runtime_asserts, dict(env.var_to_range)


def guards(function: KeyFunction, tensors: Tensors) -> Violation | None:
    """Make a key, compare it with that of a tensor of other unbacked sizes, as a cache does, and hash it."""
    (spec,) = tensors
    exact = spec.kind == "meta"
    tensor, env = symbolic_tensor(spec.sizes, exact)
    other, _ = symbolic_tensor(spec.sizes, exact, env, "y")
    kind = "torch.empty({}, device='meta')" if exact else "FakeTensor({})"
    texts = [kind.format(f"({', '.join(map(str, each.shape))},)") for each in (tensor, other)]
    before = _state(env)
    asked: Frame | None = None
    keys: list[Hashable] = []

    def violated(why: str, part: str) -> Violation:
        shown = tuple(map(shown_key, keys))
        return Violation(
            tuple(texts[: max(len(keys), 1)]),
            shown,
            why,
            tensors,
            asked.code if asked else _SYMBOL.sub("u", part),
            asked,
        )

    with watch() as recorder:
        try:
            keys.append(function.key(tensor))
            if _state(env) == before and not recorder.guards():
                keys.append(function.key(other))
                bool(keys[0] == keys[1])
            hash(keys.pop())
        except BaseException as error:  # noqa: BLE001 the key function is under test
            asked, raised = raising_line(code_of(function.key), error), recorder.raised([error])
            return violated(error_line(error), type(error).__name__ if raised is None else raised.expression)
        fell_back = recorder.guards()
        added = recorder.constraints(lambda _text, _message: True)
    if fell_back:
        place, code = fell_back[0].place, code_of(function.key)
        if code is not None and place.file == display_file(code.co_filename):
            asked = frame_at(code, place.line)
        return violated(f"evaluates {fell_back[0].expression}", fell_back[0].expression)
    if _state(env) == before:
        return None
    return violated("adds a guard or a replacement", added[0].text if added else "")


PROPERTIES: Final[Mapping[PropertyName, PropertyRow]] = {
    "gives-a-key": PropertyRow("the function returns a hashable key, the same one for the same tensor", _gives),
    "adds-no-guard": PropertyRow(
        "making a key and comparing it with another adds no guard on unbacked sizes and specializes nothing",
        guards,
        unbacked,
        simpler=lambda _tensors: iter(()),
    ),
    "tells-apart": PropertyRow(
        "tensors that differ in a part of the options have different keys",
        _if(True, "equal keys for different tensors"),
        pairs,
        lambda options, tensors: not _alike(options, tensors),
    ),
    "shares": PropertyRow(
        "tensors that differ in no part of the options have equal keys",
        _if(False, "two keys where one would do"),
        pairs,
        _alike,
    ),
    "holds-no-tensor": PropertyRow("a key keeps no tensor alive", _holds),
    STABLE: PropertyRow("the text of a key is the same in another process", _unstable),
}
