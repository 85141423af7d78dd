"""The properties of a key function, each tried on drawn tensors; a violation has the smallest tensors that show it."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple
from warnings import catch_warnings, simplefilter

import msgspec
import torch
from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import display_file, frame_at
from ddefuzz.instrument.guards import watch
from ddefuzz.keys.argument_lists import GUARDED, GUARDED_LISTS, Given, row_of
from ddefuzz.keys.case import KeyCase, Kind, Options, Property, PropertyName, Tensors, TensorSpec, Violation
from ddefuzz.keys.families import facts, families, parts
from ddefuzz.keys.function import (
    SHOWN_KEY,
    AnyKey,
    KeyFunction,
    code_of,
    error_line,
    raising_line,
    shown_key,
    violation_of,
)
from ddefuzz.keys.systematic import WHY, Verdicts, arguments_of, is_asked, judged, judged_pair, set_up
from ddefuzz.keys.tensors import pairs, simpler, singles, unbacked, with_tensor

OTHER_PROCESS: Final = 40  # how many tensors are tried in another process
MOST_VIOLATIONS: Final = 5  # how many violations of one property are looked for


class PropertyRow(NamedTuple):
    """A property: `wrong` gives its violation by tensors that `drawn` draws, if it `applies` to them. `systematic`
    tries those that are not drawn.
    """

    meaning: str
    wrong: Callable[[KeyFunction, Tensors], Violation | None]
    systematic: Callable[[KeyFunction, tuple[Kind, ...]], Verdicts] = lambda _function, _kinds: Verdicts()
    drawn: Callable[[tuple[Kind, ...]], st.SearchStrategy[Tensors]] = singles
    applies: Callable[[Options, Tensors], bool] = lambda _options, _tensors: True
    simpler: Callable[[Tensors], Iterator[Tensors]] = simpler


def check(name: PropertyName, function: KeyFunction, examples: int, kinds: tuple[Kind, ...]) -> Property:
    """One property of a key function, on so many tensors or pairs of them."""
    return _tried(name, function, examples, kinds) if name != STABLE else _stable(function, kinds)


def violation(case: KeyCase, function: KeyFunction) -> Violation | None:
    """How the tensors of a case violate its property. None if they do not, or if it does not apply to them."""
    row, tensors = PROPERTIES[case.violates], case.tensors
    with catch_warnings():
        simplefilter("ignore")  # of torch, about layouts in beta
        if case.given:
            return _of_given(case.violates, function, case.given)
        return row.wrong(function, tensors) if row.applies(function.options, tensors) else None


def _of_given(name: PropertyName, function: KeyFunction, given: tuple[str, ...]) -> Violation | None:
    row = row_of(given, guarded=name == "adds-no-guard")
    if row is None or (row.several and function.several is None):
        return None
    if name == "adds-no-guard":
        return _given_guards(function, row, given)
    is_judged = row.differ(given) == (name == "tells-apart") and is_asked(row, function.options)
    return judged_pair(function, row, given) if is_judged else None


def _tried(name: PropertyName, function: KeyFunction, examples: int, kinds: tuple[Kind, ...]) -> Property:
    row, tried = PROPERTIES[name], 0
    latest: Violation | None = None  # the smallest, and of a function that answers at random the last one

    def shows(tensors: Tensors) -> bool:
        nonlocal tried, latest
        if not row.applies(function.options, tensors):
            return False
        tried += latest is None and len(violations) == len(systematic.violations)
        made = row.wrong(function, tensors)
        if made is None or any(one.explains(made) for one in violations):
            return False
        latest = made
        return True

    with catch_warnings():
        simplefilter("ignore")
        systematic = row.systematic(function, kinds)
        violations = list(systematic.violations)
        while len(violations) < MOST_VIOLATIONS:
            latest = None
            first = _first(row.drawn(kinds), shows, examples)
            if first is not None:
                smallest_of(first, shows, row.simpler)
            smallest: Violation | None = latest
            if smallest is None:
                break
            violations.append(smallest)
    return Property(name, row.meaning, tried + systematic.tried, tuple(violations), covered=systematic.covered)


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
        return violation_of(tensors, (), error_line(error), type(error).__name__)
    if is_same:
        return None
    return violation_of(tensors, (first, again), "two keys of the same tensor differ", "two keys")


def _each_gives(function: KeyFunction, kinds: tuple[Kind, ...]) -> Verdicts:
    """Every tensor of the systematic pairs."""
    violations: dict[str, Violation] = {}
    tried = 0
    for family in families(kinds):
        for tensor in family.tensors:
            tried += 1
            made = _gives(function, (tensor,))
            if made is not None:
                violations.setdefault(made.part, made)
    return Verdicts(tuple(violations.values()), tried)


def _alike(options: Options, tensors: Tensors, *, least: bool) -> bool:
    return len({facts(one, options, least=least) for one in tensors}) == 1


def _if(equal: bool) -> Callable[[KeyFunction, Tensors], Violation | None]:
    """Two keys that are equal, or not. They need no hash: some caches compare keys only."""

    def wrong(function: KeyFunction, tensors: Tensors) -> Violation | None:
        try:
            made = tuple(with_tensor(one, function.key) for one in tensors)
            is_wrong = bool(made[0] == made[1]) == equal
        except BaseException:  # noqa: BLE001 that it gives no key is another property
            return None
        return violation_of(tensors, made[: 1 if equal else 2], WHY[equal], parts(tensors)) if is_wrong else None

    return wrong


_HOLDERS: Final = (tuple, list, dict, set, frozenset)


def _holds_memory(key: object) -> bool:
    """Whether a tensor or a storage is in a key."""
    seen, left = set[int](), [key]
    while left:
        part = left.pop()
        if isinstance(part, torch.Tensor | torch.UntypedStorage | torch.TypedStorage):
            return True
        if id(part) not in seen and not isinstance(part, type):
            seen.add(id(part))
            inner = part if isinstance(part, _HOLDERS) else getattr(part, "__dict__", ())
            left += [*inner.keys(), *inner.values()] if isinstance(inner, dict) else inner
    return False


def _holds(function: KeyFunction, tensors: Tensors) -> Violation | None:
    alive: list[Any] = []

    def keyed(tensor: torch.Tensor) -> Hashable:
        alive.append(weakref.ref(tensor))
        return function.key(tensor)

    try:
        made = with_tensor(tensors[0], keyed)
    except BaseException:  # noqa: BLE001 that it gives no key is another property
        return None
    if alive[0]() is not None:
        gc.collect()
    if alive[0]() is None and not _holds_memory(made):
        return None
    return violation_of(tensors, (made,), "the tensor is alive as long as its key")


def _unstable(function: KeyFunction, tensors: Tensors) -> Violation | None:
    here, there = texts(function.key, tensors), function.elsewhere(tensors)
    if here == there:
        return None
    return violation_of(tensors, (here[0][:SHOWN_KEY], there[0][:SHOWN_KEY]), "two texts in two processes")


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
        ()
        if wrong is None
        else (violation_of((wrong[0],), [text[:SHOWN_KEY] for text in wrong[1:]], "two texts in two processes"),)
    )
    return Property(STABLE, PROPERTIES[STABLE].meaning, len(wanted), violations)


STABLE: Final[PropertyName] = "same-in-other-process"

_SYMBOL: Final = re.compile(r"\b([us])\d+")


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
    texts = tuple(kind.format(f"({', '.join(map(str, each.shape))},)") for each in (tensor, other))
    guarded = _guarded(function.key, ((tensor,), (other,)), env, texts)
    return None if guarded is None else msgspec.structs.replace(guarded, drawn=tensors)


def _each_guards(function: KeyFunction, _kinds: tuple[Kind, ...]) -> Verdicts:
    """Every symbolic tensor of the tables, with the next one of its table, until one shows a violation."""
    tried = 0
    for row in (GUARDED, *((GUARDED_LISTS,) if function.several is not None else ())):
        texts = list(row.arguments)
        for pair in zip(texts, [*texts[1:], *texts[:1]], strict=True):
            tried += 1
            made = _given_guards(function, row, pair)
            if made is not None:
                return Verdicts((made,), tried)
    return Verdicts((), tried)


def _given_guards(function: KeyFunction, row: Given, given: tuple[str, ...]) -> Violation | None:
    names = set_up(row)
    key = function.several if row.several and function.several is not None else function.key
    first, second = (arguments_of((text,), names) for text in given)
    guarded = _guarded(key, (first, second), names["env"], given)
    return None if guarded is None else msgspec.structs.replace(guarded, given=given)


def _guarded(
    key: Callable[..., Hashable], lists: tuple[tuple[Any, ...], tuple[Any, ...]], env: Any, texts: tuple[str, ...]
) -> Violation | None:
    """What a key function does with two lists of symbolic arguments, if it guards. `texts` are the lists as code."""
    before = _state(env)
    asked: Frame | None = None
    keys: list[Hashable] = []
    guilty: tuple[int, ...] = (0,)

    def violated(why: str, part: str) -> Violation:
        text = asked.code if asked else _SYMBOL.sub(r"\1", part)
        made = tuple(shown_key(keys[at]) for at in guilty if at < len(keys))
        return Violation(tuple(texts[at] for at in guilty), made, why, part=text, asked=asked)

    with watch() as recorder:
        try:
            for at, arguments in enumerate(lists):
                guilty = (at,)
                keys.append(key(*arguments))
                if _state(env) != before:
                    break
            else:
                guilty = (0, 1)
                bool(keys[0] == keys[1])
            if _state(env) == before:
                guilty = (0,)
                hash(keys[0])
        except BaseException as error:  # noqa: BLE001 the key function is under test
            asked, raised = raising_line(code_of(key), error), recorder.raised([error])
            return violated(error_line(error), type(error).__name__ if raised is None else raised.expression)
        fell_back = recorder.guards()
        added = recorder.constraints(lambda _text, _message: True)
    if _state(env) == before:  # a question that a fallback answers fixes nothing
        return None
    if fell_back:
        place, code = fell_back[0].place, code_of(key)
        if code is not None and place.file == display_file(code.co_filename):
            asked = frame_at(code, place.line)
        return violated(f"evaluates {fell_back[0].expression}", fell_back[0].expression)
    made = [str(one.expr) for one in env.guards[before[0] :]] or [one.text for one in added]
    return violated("adds a guard or a replacement", made[0] if made else "")


PROPERTIES: Final[Mapping[PropertyName, PropertyRow]] = {
    "gives-a-key": PropertyRow(
        "the function returns a hashable key, the same one for the same tensor", _gives, _each_gives
    ),
    "adds-no-guard": PropertyRow(
        "making a key and comparing it with another adds no guard on symbolic sizes and specializes nothing",
        guards,
        _each_guards,
        unbacked,
        simpler=lambda _tensors: iter(()),
    ),
    "tells-apart": PropertyRow(
        "tensors that differ in a part of the options have different keys",
        _if(True),
        partial(judged, equal=True),
        pairs,
        lambda options, tensors: not _alike(options, tensors, least=True),
    ),
    "shares": PropertyRow(
        "tensors that differ in no part of the options have equal keys",
        _if(False),
        partial(judged, equal=False),
        pairs,
        partial(_alike, least=False),
    ),
    "holds-no-tensor": PropertyRow("a key keeps no tensor alive", _holds),
    STABLE: PropertyRow("the text of a key is the same in another process", _unstable),
}
