"""Judges the systematic pairs of `families` and `given`: which kinds were covered, and which pairs a key gets wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache
from types import CodeType
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.keys.argument_lists import ROWS, Given
from ddefuzz.keys.case import Kind, Options, PairKind, Violation
from ddefuzz.keys.families import Family, facts, families, parts
from ddefuzz.keys.function import KeyFunction, shown_key, violation_of
from ddefuzz.keys.tensors import with_tensor

WHY: Final = {True: "equal keys for different tensors", False: "two keys where one would do"}
"""What is wrong with keys that are equal, or that are not."""


class Verdicts(NamedTuple):
    """The first violation for each part, how many tensors or pairs were tried, and of which kinds the pairs are."""

    violations: tuple[Violation, ...] = ()
    tried: int = 0
    covered: tuple[PairKind, ...] = ()


def judged(function: KeyFunction, kinds: tuple[Kind, ...], equal: bool) -> Verdicts:
    """All pairs that need different keys (`equal` ones are wrong), or equal keys."""
    first, second = of_families(function, kinds, equal), of_code(function, kinds, equal)
    violations = _unexplained((*first.violations, *second.violations))
    return Verdicts(violations, first.tried + second.tried, (*first.covered, *second.covered))


def of_families(function: KeyFunction, kinds: tuple[Kind, ...], equal: bool) -> Verdicts:
    """The pairs of families."""
    return _summed([_of_family(function, family, equal) for family in families(kinds)])


def of_code(function: KeyFunction, kinds: tuple[Kind, ...], equal: bool) -> Verdicts:
    """The pairs of rows of code."""
    return _summed([_of_row(function, row, equal) for row in ROWS if _applies(row, function, kinds)])


def _summed(judged: Sequence[tuple[PairKind, list[Violation]]]) -> Verdicts:
    rows: dict[str, list[PairKind]] = {}
    for counted, _ in judged:
        rows.setdefault(counted.kind, []).append(counted)
    table = [
        PairKind(kind, *(sum(getattr(one, name) for one in several) for name in PairKind.__struct_fields__[1:]))
        for kind, several in rows.items()
    ]
    shown = tuple(one for one in table if one.pairs or one.raised)
    violations = _unexplained(one for _, several in judged for one in several)
    return Verdicts(violations, sum(one.pairs for one in shown), shown)


def _unexplained(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    kept: list[Violation] = []
    for violation in sorted(violations, key=lambda one: one.part.count(",")):
        if not any(other.explains(violation) for other in kept):
            kept.append(violation)
    return tuple(kept)


# Families: a key for each tensor.


def _of_family(function: KeyFunction, family: Family, equal: bool) -> tuple[PairKind, list[Violation]]:
    keys: list[Hashable] = []
    tensors = []
    for tensor in family.tensors:
        try:
            made = with_tensor(tensor, function.key)
            bool(made == made)  # noqa: PLR0124 some cannot be compared
        except BaseException:  # noqa: BLE001 that it gives no key is another property
            continue
        keys.append(made)
        tensors.append(tensor)
    wanted = [facts(one, function.options, least=equal) for one in tensors]
    labels = _numbered(keys), _numbered(wanted)
    same, other = labels if equal else labels[::-1]
    violations: dict[str, Violation] = {}
    for first, second in _pairs(same, other):
        part = parts((tensors[first], tensors[second]))
        if part not in violations:
            made_keys = (keys[first],) if equal else (keys[first], keys[second])
            violations[part] = violation_of((tensors[first], tensors[second]), made_keys, WHY[equal], part)
    number, alike = len(keys), _alike(labels[1])
    covered = PairKind(
        family.kind,
        number,
        len(family.tensors) - number,
        number * (number - 1) // 2 - alike if equal else alike,
        _alike(same) - _alike(list(zip(same, other, strict=True))),
    )
    return covered, list(violations.values())


def _alike(labels: Sequence[Hashable]) -> int:
    """How many pairs have the same label."""
    return sum(number * (number - 1) // 2 for number in Counter(labels).values())


def _numbered(values: Sequence[Any]) -> list[int]:
    """A number for each value, equal for equal ones. They need no hash: some caches compare keys only."""
    try:
        numbers: dict[Hashable, int] = {}
        return [numbers.setdefault(one, len(numbers)) for one in values]
    except BaseException:  # noqa: BLE001 the keys are of the user's class
        different: list[Any] = []
        return [_place(one, different) for one in values]


def _place(value: Any, different: list[Any]) -> int:
    for at, key in enumerate(different):
        try:
            if bool(key == value):
                return at
        except BaseException:  # noqa: BLE001 the keys are of the user's class
            continue
    different.append(value)
    return len(different) - 1


def _pairs(same: Sequence[int], other: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs that are the same by one label and not by the other: all with the first member of a group, or the first one
    that differs from it.
    """
    groups: dict[int, list[int]] = {}
    for at, label in enumerate(same):
        groups.setdefault(label, []).append(at)
    for group in groups.values():
        unlike = [at for at in group if other[at] != other[group[0]]]
        for at in unlike:
            yield group[0], at
        for at in group if unlike else ():
            if at > unlike[0] and other[at] != other[unlike[0]]:
                yield unlike[0], at


# Rows of code. Comparing symbols can change them, so what is wrong is tried once more with new ones.


def _applies(row: Given, function: KeyFunction, kinds: tuple[Kind, ...]) -> bool:
    has_function = not row.several or function.several is not None
    return has_function and set(row.needs) <= set(kinds) and is_asked(row, function.options)


def is_asked(row: Given, options: Options) -> bool:
    """Whether these options say that a key tells the argument lists of a row apart."""
    return not row.option or getattr(options, row.option) in (True, "all")


def _of_row(function: KeyFunction, row: Given, equal: bool) -> tuple[PairKind, list[Violation]]:
    pairs = wrong = 0
    violation: Violation | None = None
    names = set_up(row)
    alive: list[object] = []  # so that none has the id of another
    keys = {text: [_key_of(function, row, text, names, alive) for _ in range(2)] for text in row.arguments}
    for pair in row.pairs():
        (first, _), (_, second) = keys[pair[0]], keys[pair[1]]
        if row.differ(pair) != equal or _has_raised((first, second)):
            continue
        pairs += 1
        if _same(first, second) == equal:
            violation = violation or judged_pair(function, row, pair)
            wrong += violation is not None
    raised = sum(map(_has_raised, keys.values()))
    covered = PairKind(row.kind, len(keys) - raised, raised, pairs, wrong)
    return covered, [] if violation is None else [violation]


_RAISED: Final = object()


def _has_raised(keys: Iterable[Any]) -> bool:
    return any(one is _RAISED for one in keys)


def _key_of(function: KeyFunction, row: Given, text: str, names: dict[str, Any], alive: list[object]) -> Any:
    """The key of an argument list; `_RAISED` if the function raises, which is another property."""
    key = function.several if row.several and function.several is not None else function.key
    arguments = arguments_of((text,), names)
    alive.append(arguments)
    try:
        return key(*arguments)
    except BaseException:  # noqa: BLE001 the key function is under test
        return _RAISED


def judged_pair(function: KeyFunction, row: Given, pair: tuple[str, ...]) -> Violation | None:
    """What is wrong with the keys of two argument lists of a row."""
    names, alive = set_up(row), list[object]()
    keys = [_key_of(function, row, text, names, alive) for text in pair]
    return _violation(row, pair, keys) if not _has_raised(keys) and _same(*keys) == row.differ(pair) else None


def _violation(row: Given, pair: tuple[str, ...], keys: Sequence[Any]) -> Violation:
    equal = row.differ(pair)
    shown = tuple(shown_key(one) for one in keys[: 1 if equal else 2])
    return Violation(pair, shown, WHY[equal], given=pair, part=row.part)


def _same(first: Any, second: Any) -> bool | None:
    try:
        return bool(first == second)
    except BaseException:  # noqa: BLE001 that keys cannot be compared is another property
        return None


def arguments_of(texts: tuple[str, ...], names: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments that the texts of a row make, in one list."""
    made: tuple[Any, ...] = eval(_code(f"({', '.join(texts)},)", "eval"), names)
    return made


def set_up(row: Given) -> dict[str, Any]:
    """The names that the code of a row uses."""
    names: dict[str, Any] = {"torch": torch, "__name__": "given"}
    exec(_code(row.setup, "exec"), names)
    return names


@cache
def _code(text: str, mode: str) -> CodeType:
    made: CodeType = compile(text, "<pairs of ddefuzz>", mode)
    return made
