"""The properties of a key function, each tried on drawn tensors; a violation has the smallest tensors that show it."""

from __future__ import annotations

import gc
import linecache
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
from hypothesis.errors import NoSuchExample

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import display_file
from ddefuzz.instrument.guards import watch
from ddefuzz.keys.case import ALIGNMENT, Drawn, Kind, Options, PropertyName
from ddefuzz.keys.drawn import STRIDED, Tensors, pairs, simpler, singles, unbacked, with_tensor
from ddefuzz.keys.key import geometry

AnyKey: TypeAlias = Callable[[Any], Hashable]

SHOWN_KEY: Final = 300
"""How many characters of a key are shown."""


class KeyFunction(NamedTuple):
    """A key function. `elsewhere` gives the texts of another process's keys, `options` say what a key distinguishes."""

    key: AnyKey
    options: Options
    elsewhere: Callable[[Sequence[Drawn]], list[str]]


class Violation(msgspec.Struct, frozen=True):
    """The smallest tensors that show it, as expressions and as data; their keys; and what is wrong.

    `part` is what the key confuses, or the error. `asked` is the line of the key function that evaluated a guard.
    """

    tensors: tuple[str, ...]
    keys: tuple[str, ...]
    why: str
    drawn: Tensors = ()
    part: str = ""
    asked: Frame | None = None

    def explains(self, other: Violation) -> bool:
        """Whether the other confuses what this one does, and perhaps more."""
        return set(self.part.split(", ")) <= set(other.part.split(", "))


def shown_key(key: object) -> str:
    """The text of a key, not too long."""
    text = repr(key)
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"


def said(error: Exception) -> str:
    """The first line of an error, without the symbols that torch lists in any order."""
    first = next(iter(str(error).strip().splitlines()), "").partition(" (Size-like symbols: ")[0]
    text = " ".join(f"{type(error).__name__}: {first}".split())
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


SCHEMA = "ddefuzz.key/1"

OTHER_PROCESS: Final = 40
"""How many tensors are tried in another process."""

MOST_VIOLATIONS: Final = 5
"""How many violations of one property are looked for."""


class Property(msgspec.Struct, frozen=True):
    """A property, on how many tensors or pairs it was tried, and the smallest violation for each confused part."""

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
    (one,) = tensors
    exact = one.kind == "meta"
    tensor, env = symbolic_tensor(one.sizes, exact)
    other, _ = symbolic_tensor(one.sizes, exact, env, "y")
    kind = "torch.empty({}, device='meta')" if exact else "FakeTensor({})"
    texts = [kind.format(f"({', '.join(map(str, each.shape))},)") for each in (tensor, other)]
    before = _state(env)
    asked: Frame | None = None
    keys: list[Hashable] = []

    def found(why: str, part: str) -> Violation:
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
        except Exception as error:  # noqa: BLE001 the key function is under test
            asked, raised = raising_line(code_of(function.key), error), recorder.raised([error])
            return found(said(error), type(error).__name__ if raised is None else raised.expression)
        fell_back = recorder.guards()
        added = recorder.constraints(lambda _text, _message: True)
    if fell_back:
        place, code = fell_back[0].place, code_of(function.key)
        if code is not None and place.file == display_file(code.co_filename):
            asked = frame_at(code, place.line)
        return found(f"evaluates {fell_back[0].expression}", fell_back[0].expression)
    if _state(env) == before:
        return None
    return found("adds a guard or a replacement", added[0].text if added else "")


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
