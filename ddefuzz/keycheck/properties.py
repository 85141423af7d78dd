"""The properties of a key function, each tried on drawn tensors; a violation has the smallest tensors that show it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from random import Random
from typing import Any, Final, TypeVar
from warnings import catch_warnings, simplefilter

import msgspec
import torch
from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import watch
from ddefuzz.keycheck.drawn import STRIDED, Drawn, Kind, drawn, pairs, simpler, simpler_pairs, with_tensor
from ddefuzz.keycheck.load import AnyKey
from ddefuzz.keycheck.other_process import in_another_process, texts
from ddefuzz.speckey.geometry import geometry
from ddefuzz.speckey.options import ALIGNMENT, Options

SCHEMA = "ddefuzz.key/1"

T = TypeVar("T")

OTHER_PROCESS: Final = 40
"""How many tensors are tried in another process."""

SHOWN_KEY: Final = 300
"""How many characters of a key are shown."""


class Violation(msgspec.Struct, frozen=True):
    """The smallest tensors that show it, as expressions; their keys; and what is wrong."""

    tensors: tuple[str, ...]
    keys: tuple[str, ...]
    why: str


class Property(msgspec.Struct, frozen=True):
    """A property, on how many tensors or pairs it was tried, and the smallest violation if there is one."""

    name: str
    meaning: str
    tried: int
    violations: tuple[Violation, ...]


class Checked(msgspec.Struct, frozen=True):
    """The result of a check."""

    function: str
    options: Options
    torch: str
    properties: tuple[Property, ...]
    schema: str = SCHEMA


def check(target: str, key: AnyKey, options: Options, examples: int, kinds: tuple[Kind, ...]) -> Iterator[Property]:
    """Every property of a key function, in the order of `MEANINGS`."""
    concrete, two = drawn(kinds), pairs(kinds)
    yield _tried("gives-a-key", concrete, lambda one: _gives(key, one), examples, simpler=simpler)
    yield _tried("adds-no-guard", symbolic(), lambda sizes: _guards(key, sizes), examples)
    differ, alike = partial(_differ, options), partial(_alike, options)
    yield _tried("tells-apart", two, lambda pair: _apart(key, pair), examples, differ, simpler_pairs)
    yield _tried("shares", two, lambda pair: _shares(key, pair), examples, alike, simpler_pairs)
    yield _tried("holds-no-tensor", concrete, lambda one: _holds(key, one), examples, simpler=simpler)
    yield _stable(target, key, concrete)


MEANINGS: Final[dict[str, str]] = {
    "gives-a-key": "the function returns a hashable key, the same one for the same tensor",
    "adds-no-guard": "making a key adds no guard on unbacked sizes and specializes nothing",
    "tells-apart": "tensors that differ in a part of the options have different keys",
    "shares": "tensors that differ in no part of the options have equal keys",
    "holds-no-tensor": "a key keeps no tensor alive",
    "same-in-other-process": "the text of a key is the same in another process",
}


def _tried(
    name: str,
    strategy: st.SearchStrategy[T],
    wrong: Callable[[T], Violation | None],
    examples: int,
    applies: Callable[[T], bool] = lambda _: True,
    simpler: Callable[[T], Iterator[T]] = lambda _: iter(()),
) -> Property:
    tried = 0
    found = False

    def shows(one: T) -> bool:
        nonlocal tried, found
        if not applies(one):
            return False
        tried += not found
        is_wrong = wrong(one) is not None
        found = found or is_wrong
        return is_wrong

    chosen = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    with catch_warnings():
        simplefilter("ignore")  # of torch, about layouts in beta
        try:
            first = find(strategy, shows, settings=chosen, random=Random(0))
            smallest = wrong(smallest_of(first, shows, simpler))
        except NoSuchExample:
            smallest = None
    return Property(name, MEANINGS[name], tried, (smallest,) if smallest is not None else ())


def smallest_of(first: T, shows: Callable[[T], bool], simpler_than: Callable[[T], Iterator[T]]) -> T:
    """The tensors after every simplification that still shows it. Hypothesis alone stops at larger ones, because the
    strides depend on the sizes.
    """
    found: T | None = first
    while found is not None:
        first = found
        found = next((one for one in simpler_than(first) if shows(one)), None)
    return first


def facts(one: Drawn, options: Options) -> tuple[Hashable, ...]:
    """What a kernel may depend on: the parts of the options, read from the description and not from the tensor."""
    batched = one.kind == "batched"
    sizes = one.sizes[1:] if batched else one.sizes
    strides = one.strides[1:] if batched else one.strides
    strided = msgspec.structs.replace(options, strides=options.strides if one.kind in STRIDED else "none")
    itemsize = getattr(torch, one.dtype).itemsize
    has_offset = one.kind in STRIDED and one.kind != "meta"
    return (
        "tensor" if one.kind in ("tensor", "parameter") else one.kind,
        one.bits,
        geometry(strided)(sizes, strides),
        one.dtype if options.dtype else None,
        one.requires_grad if options.requires_grad else None,
        not (options.alignment and has_offset) or one.offset * itemsize % ALIGNMENT == 0,
    )


def _key_of(key: AnyKey, one: Drawn) -> Hashable:
    return with_tensor(one, key)  # type: ignore[no-any-return]


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"


def _gives(key: AnyKey, one: Drawn) -> Violation | None:
    def twice(tensor: torch.Tensor) -> tuple[Hashable, Hashable]:
        first, second = key(tensor), key(tensor)
        hash(first)
        return first, second

    try:
        first, second = with_tensor(one, twice)
        again, _ = with_tensor(one, twice)
        is_same = bool(first == second and first == again and hash(first) == hash(second) == hash(again))
    except Exception as error:  # noqa: BLE001 the key function is under test
        return Violation((one.text,), (), _said(error))
    if is_same:
        return None
    return Violation((one.text,), (_shown(first), _shown(again)), "two keys of the same tensor differ")


def _keys(key: AnyKey, pair: tuple[Drawn, Drawn]) -> tuple[Hashable, Hashable] | None:
    try:
        first, second = _key_of(key, pair[0]), _key_of(key, pair[1])
        hash(first), hash(second)
    except Exception:  # noqa: BLE001 that it gives no key is another property
        return None
    return first, second


def _differ(options: Options, pair: tuple[Drawn, Drawn]) -> bool:
    return not _alike(options, pair)


def _alike(options: Options, pair: tuple[Drawn, Drawn]) -> bool:
    return facts(pair[0], options) == facts(pair[1], options)


def _apart(key: AnyKey, pair: tuple[Drawn, Drawn]) -> Violation | None:
    made = _keys(key, pair)
    if made is None or made[0] != made[1]:
        return None
    return Violation((pair[0].text, pair[1].text), (_shown(made[0]),), "equal keys for different tensors")


def _shares(key: AnyKey, pair: tuple[Drawn, Drawn]) -> Violation | None:
    made = _keys(key, pair)
    if made is None or made[0] == made[1]:
        return None
    return Violation((pair[0].text, pair[1].text), (_shown(made[0]), _shown(made[1])), "two keys where one would do")


def _holds(key: AnyKey, one: Drawn) -> Violation | None:
    alive: list[Any] = []

    def keyed(tensor: torch.Tensor) -> Hashable:
        alive.append(weakref.ref(tensor))
        return key(tensor)

    try:
        made = with_tensor(one, keyed)
    except Exception:  # noqa: BLE001 that it gives no key is another property
        return None
    if alive[0]() is None:
        return None
    gc.collect()
    if alive[0]() is None:
        return None
    return Violation((one.text,), (_shown(made),), "the tensor is alive as long as its key")


@st.composite
def symbolic(draw: st.DrawFn) -> tuple[tuple[int, ...], bool]:
    """The example sizes of a tensor whose sizes are all unbacked, and whether its type is exactly torch.Tensor."""
    return tuple(draw(st.lists(st.sampled_from((2, 1, 3, 5)), min_size=1, max_size=4))), draw(st.booleans())


def symbolic_tensor(sizes: tuple[int, ...], exact: bool) -> tuple[torch.Tensor, Any]:
    """A tensor whose sizes are all unbacked, and its ShapeEnv: a FakeTensor, or one on the meta device."""
    env = torch_api.bound(torch_api.SHAPE_ENV)()
    mode = torch_api.bound(torch_api.FAKE_MODE)(shape_env=env)
    context = torch_api.bound(torch_api.SYMBOLIC_CONTEXT)(dynamic_sizes=[torch_api.DIM_UNBACKED.get()] * len(sizes))
    source = torch_api.bound(torch_api.CONSTANT_SOURCE)("x")
    made: torch.Tensor = mode.from_tensor(torch.zeros(sizes), symbolic_context=context, source=source)
    return (torch.empty_strided(made.shape, made.stride(), device="meta") if exact else made), env


def _state(env: Any) -> tuple[Any, ...]:
    return len(env.guards), dict(env.replacements), env.num_deferred_runtime_asserts, dict(env.var_to_range)


def _guards(key: AnyKey, drawn_: tuple[tuple[int, ...], bool]) -> Violation | None:
    sizes, exact = drawn_
    tensor, env = symbolic_tensor(sizes, exact)
    names = ", ".join(str(size) for size in tensor.shape)
    kind = "torch.empty({}, device='meta')" if exact else "FakeTensor({})"
    text = (kind.format(f"({names},)"),)
    before = _state(env)
    with watch() as recorder:
        try:
            made = key(tensor)
            hash(made)
        except Exception as error:  # noqa: BLE001 the key function is under test
            return Violation(text, (), _said(error))
        fell_back = [guard.expression for guard in recorder.guards()]
    if fell_back:
        return Violation(text, (_shown(made),), f"evaluates {fell_back[0]}")
    return Violation(text, (_shown(made),), "adds a guard or a replacement") if _state(env) != before else None


def _stable(target: str, key: AnyKey, strategy: st.SearchStrategy[Drawn]) -> Property:
    name = "same-in-other-process"
    tensors: list[Drawn] = []

    def taken(one: Drawn) -> Violation | None:
        tensors.append(one)
        return None

    _tried(name, strategy, taken, OTHER_PROCESS)
    wanted = sorted(set(tensors), key=lambda one: (len(one.text), one))
    with catch_warnings():
        simplefilter("ignore")
        pairs_of = zip(wanted, texts(key, wanted), in_another_process(target, wanted), strict=True)
    wrong = next((one for one in pairs_of if one[1] != one[2]), None)
    found = () if wrong is None else (Violation((wrong[0].text,), (wrong[1][:300], wrong[2][:300]), "two texts"),)
    return Property(name, MEANINGS[name], len(wanted), found)


def _said(error: Exception) -> str:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return said if len(said) <= SHOWN_KEY else f"{said[:SHOWN_KEY]}…"
