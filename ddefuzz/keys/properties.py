"""The properties of a key function, each tried on drawn tensors; a violation has the smallest tensors that show it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from warnings import catch_warnings, simplefilter

import msgspec
import torch
from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from ddefuzz.keys.case import Drawn, Kind, PropertyName
from ddefuzz.keys.drawn import STRIDED, Tensors, pairs, simpler, singles, unbacked, with_tensor
from ddefuzz.keys.geometry import geometry
from ddefuzz.keys.guarding import guards
from ddefuzz.keys.options import ALIGNMENT, Options
from ddefuzz.keys.violation import SHOWN_KEY, AnyKey, KeyFunction, Violation, said, shown_key

SCHEMA = "ddefuzz.key/1"

OTHER_PROCESS: Final = 40
"""How many tensors are tried in another process."""

MOST_VIOLATIONS: Final = 5
"""How many violations of one property are looked for."""


class Property(msgspec.Struct, frozen=True):
    """A property, on how many tensors or pairs it was tried, and the smallest violation for each part that is
    confused.
    """

    name: PropertyName
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


class PropertyRow(NamedTuple):
    """A property: `wrong` gives its violation by tensors that `drawn` draws, if it `applies` to them."""

    meaning: str
    wrong: Callable[[KeyFunction, Tensors], Violation | None]
    drawn: Callable[[tuple[Kind, ...]], st.SearchStrategy[Tensors]] = singles
    applies: Callable[[Options, Tensors], bool] = lambda _options, _tensors: True
    simpler: Callable[[Tensors], Iterator[Tensors]] = simpler


def check(function: KeyFunction, examples: int, kinds: tuple[Kind, ...]) -> Iterator[Property]:
    """Every property of a key function, in the order of `PROPERTIES`."""
    for name in PROPERTIES:
        yield _tried(name, function, examples, kinds) if name != STABLE else _stable(function, kinds)


def violation(name: PropertyName, function: KeyFunction, tensors: Tensors) -> Violation | None:
    """How these tensors violate a property. None if they do not, or if it does not apply to them."""
    row = PROPERTIES[name]
    with catch_warnings():
        simplefilter("ignore")  # of torch, about layouts in beta
        return row.wrong(function, tensors) if row.applies(function.options, tensors) else None


def _tried(name: PropertyName, function: KeyFunction, examples: int, kinds: tuple[Kind, ...]) -> Property:
    """The property, with a violation for each part that is confused."""
    row, tried, found = PROPERTIES[name], 0, False
    violations: list[Violation] = []

    def shown(tensors: Tensors) -> Violation | None:
        made = row.wrong(function, tensors) if row.applies(function.options, tensors) else None
        return None if made is None or any(one.explains(made) for one in violations) else made

    def shows(tensors: Tensors) -> bool:
        nonlocal tried, found
        tried += not found and row.applies(function.options, tensors)
        is_wrong = shown(tensors) is not None
        found = found or is_wrong
        return is_wrong

    with catch_warnings():
        simplefilter("ignore")
        while len(violations) < MOST_VIOLATIONS:
            first = _first(row.drawn(kinds), shows, examples)
            smallest = (
                None if first is None else shown(smallest_of(first, lambda one: shown(one) is not None, row.simpler))
            )
            if smallest is None:
                break
            violations.append(smallest)
    return Property(name, row.meaning, tried, tuple(violations))


def _first(strategy: st.SearchStrategy[Tensors], shows: Callable[[Tensors], bool], examples: int) -> Tensors | None:
    """Tensors that show it, as small as Hypothesis makes them."""
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
    except NoSuchExample:
        return None


def smallest_of(
    first: Tensors, shows: Callable[[Tensors], bool], simpler_than: Callable[[Tensors], Iterator[Tensors]]
) -> Tensors:
    """The tensors after every simplification that still shows it. Hypothesis alone stops at larger ones, because the
    strides depend on the sizes.
    """
    found: Tensors | None = first
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


def _violation(tensors: Tensors, keys: Sequence[object], why: str, part: str = "") -> Violation:
    shown = tuple(key if isinstance(key, str) else shown_key(key) for key in keys)
    return Violation(tuple(one.text for one in tensors), shown, why, tensors, part)


def _gives(function: KeyFunction, tensors: Tensors) -> Violation | None:
    def twice(tensor: torch.Tensor) -> tuple[Hashable, Hashable]:
        first, second = function.key(tensor), function.key(tensor)
        hash(first)
        return first, second

    (one,) = tensors
    try:
        first, second = with_tensor(one, twice)
        again, _ = with_tensor(one, twice)
        is_same = bool(first == second and first == again and hash(first) == hash(second) == hash(again))
    except Exception as error:  # noqa: BLE001 the key function is under test
        return _violation(tensors, (), said(error), type(error).__name__)
    if is_same:
        return None
    return _violation(tensors, (first, again), "two keys of the same tensor differ", "two keys")


def _keys(function: KeyFunction, tensors: Tensors) -> tuple[bool, tuple[Hashable, ...]] | None:
    """Whether the keys are equal, and the keys. They need no hash: some caches compare keys only."""
    try:
        made = tuple(with_tensor(one, function.key) for one in tensors)
        return bool(made[0] == made[1]), made
    except Exception:  # noqa: BLE001 that it gives no key is another property
        return None


def _alike(options: Options, tensors: Tensors) -> bool:
    return len({facts(one, options) for one in tensors}) == 1


def _differ(options: Options, tensors: Tensors) -> bool:
    return not _alike(options, tensors)


def _parts(tensors: Tensors) -> str:
    """The parts in which two tensors differ."""
    first, second = tensors
    if len(first.sizes) != len(second.sizes):
        return "rank"
    differing = [name for name in Drawn.__struct_fields__ if getattr(first, name) != getattr(second, name)]
    return ", ".join(name for name in differing if name != "strides" or "sizes" not in differing)


def _apart(function: KeyFunction, tensors: Tensors) -> Violation | None:
    equal, made = _keys(function, tensors) or (False, ())
    if not equal:
        return None
    return _violation(tensors, made[:1], "equal keys for different tensors", _parts(tensors))


def _shares(function: KeyFunction, tensors: Tensors) -> Violation | None:
    equal, made = _keys(function, tensors) or (True, ())
    if equal:
        return None
    return _violation(tensors, made, "two keys where one would do", _parts(tensors))


def _holds(function: KeyFunction, tensors: Tensors) -> Violation | None:
    alive: list[Any] = []

    def keyed(tensor: torch.Tensor) -> Hashable:
        alive.append(weakref.ref(tensor))
        return function.key(tensor)

    try:
        made = with_tensor(tensors[0], keyed)
    except Exception:  # noqa: BLE001 that it gives no key is another property
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


def texts(key: AnyKey, tensors: Sequence[Drawn]) -> list[str]:
    """The text of each tensor's key; the error's if it has none."""
    return [_text(key, one) for one in tensors]


def _text(key: AnyKey, one: Drawn) -> str:
    try:
        return str(with_tensor(one, lambda tensor: repr(key(tensor))))
    except Exception as error:  # noqa: BLE001 the key function is under test
        return type(error).__name__


def _stable(function: KeyFunction, kinds: tuple[Kind, ...]) -> Property:
    """The property `STABLE`: all its tensors are tried in one process."""
    drawn: list[Drawn] = []

    def taken(tensors: Tensors) -> bool:
        drawn.extend(tensors)
        return False

    with catch_warnings():
        simplefilter("ignore")
        _first(singles(kinds), taken, OTHER_PROCESS)
        wanted = sorted(set(drawn), key=lambda one: (len(one.text), one))
        compared = zip(wanted, texts(function.key, wanted), function.elsewhere(wanted), strict=True)
    wrong = next((one for one in compared if one[1] != one[2]), None)
    found = () if wrong is None else (_violation((wrong[0],), [text[:SHOWN_KEY] for text in wrong[1:]], "two texts"),)
    return Property(STABLE, PROPERTIES[STABLE].meaning, len(wanted), found)


STABLE: Final[PropertyName] = "same-in-other-process"

PROPERTIES: Final[Mapping[PropertyName, PropertyRow]] = {
    "gives-a-key": PropertyRow("the function returns a hashable key, the same one for the same tensor", _gives),
    "adds-no-guard": PropertyRow(
        "making a key and comparing it with another adds no guard on unbacked sizes and specializes nothing",
        guards,
        unbacked,
        simpler=lambda _tensors: iter(()),
    ),
    "tells-apart": PropertyRow(
        "tensors that differ in a part of the options have different keys", _apart, pairs, _differ
    ),
    "shares": PropertyRow("tensors that differ in no part of the options have equal keys", _shares, pairs, _alike),
    "holds-no-tensor": PropertyRow("a key keeps no tensor alive", _holds),
    STABLE: PropertyRow("the text of a key is the same in another process", _unstable),
}
