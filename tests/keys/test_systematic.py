"""Systematic pairs: they show what a wrong key confuses, by ordinary tensors, and a right key stays clean."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from itertools import combinations, count
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.fx.experimental.symbolic_shapes import guard_or_false

from ddefuzz.errors import InputError
from ddefuzz.instrument import torch_api
from ddefuzz.keys.argument_lists import GUARDED, GUARDED_LISTS, ROWS, row_of
from ddefuzz.keys.case import KINDS, KeyCase, Kind, Options, Violation, parse_key, print_key
from ddefuzz.keys.families import families
from ddefuzz.keys.function import KeyFunction
from ddefuzz.keys.key import Dispatch, key
from ddefuzz.keys.properties import PROPERTIES, check, violation
from ddefuzz.keys.systematic import judged, of_code
from ddefuzz.keys.tensors import OwnTensor, with_tensor
from ddefuzz.oracles.keys_run import of_one_tensor, takes
from tests.keys import zoo
from tests.keys.zoo import OTHER, RIGHT, SPLITTING, WRONG, WRONG_OF_SEVERAL, right_of_several

pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|prototype|ComplexHalf)")


def function(made: Callable[..., Hashable], *, several: bool = False, options: Options | None = None) -> KeyFunction:
    return KeyFunction(made, options or Options(), lambda _: [], made if several else None)


OF_ROWS: tuple[Kind, ...] = ("tensor", "subclass", "parameter", "sparse", "csr")


def of_rows(made: KeyFunction, kinds: tuple[Kind, ...] = OF_ROWS) -> list[Violation]:
    """The violations of the rows of code, by default without fake tensors, which take longer."""
    return [one for equal in (True, False) for one in of_code(made, kinds, equal).violations]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_key_is_clean(name: str) -> None:
    made = function(RIGHT[name])
    assert not [one for equal in (True, False) for one in judged(made, ("tensor",), equal).violations]
    assert not of_rows(made, (*OF_ROWS, "fake"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("made", [zoo.made(), key], ids=["zoo", "ddefuzz"])
def test_a_right_key_is_clean_for_every_kind_of_tensor(made: Callable[..., Hashable]) -> None:
    for name in PROPERTIES:
        if name != "same-in-other-process":
            assert not check(name, function(made), 4, KINDS).violations, name


@pytest.mark.parametrize("name", WRONG)
def test_what_a_wrong_key_confuses_is_shown(name: str) -> None:
    part, made = WRONG[name]
    found = judged(function(made), ("tensor",), equal=True)
    assert part in {one.part for one in found.violations}
    assert sum(row.wrong for row in found.covered)
    if part in ("sizes", "strides"):
        assert "as_strided" not in "".join(next(one for one in found.violations if one.part == part).tensors)


@pytest.mark.parametrize("name", SPLITTING)
def test_what_a_key_distinguishes_without_need_is_shown(name: str) -> None:
    assert judged(function(SPLITTING[name]), ("tensor",), equal=False).violations


@pytest.mark.parametrize("name", OTHER)
def test_what_a_wrong_key_confuses_of_symbols_and_types_is_shown(name: str) -> None:
    part, made = OTHER[name]
    kinds: tuple[Kind, ...] = ("fake",) if part in ("symbols", "device") else OF_ROWS
    assert {one.part for one in of_rows(function(made), kinds)} == {part}


def test_a_right_key_of_several_arguments_is_clean() -> None:
    assert not of_rows(function(right_of_several, several=True), (*OF_ROWS, "fake"))


@pytest.mark.parametrize("name", WRONG_OF_SEVERAL)
def test_what_a_wrong_key_of_several_arguments_confuses_is_shown(name: str) -> None:
    part, made = WRONG_OF_SEVERAL[name]
    assert part in {one.part for one in of_rows(function(made, several=True))}


def test_a_key_that_compares_sizes_of_two_arguments_guards() -> None:
    def compares(*arguments: Any) -> Hashable:
        same = all(one.shape == other.shape for one, other in combinations(arguments, 2))
        return *map(key, arguments), same

    (violation,) = PROPERTIES["adds-no-guard"].systematic(function(compares, several=True), ("fake",)).violations
    assert violation.tensors == ("fake(s0), fake(s1)",)
    assert violation.part == "Eq(s, s)"
    clean = PROPERTIES["adds-no-guard"].systematic(
        function(lambda *arguments: tuple(map(key, arguments)), several=True), ("fake",)
    )
    assert not clean.violations
    assert clean.tried > len(GUARDED.arguments)


def test_a_question_about_unbacked_sizes_that_a_fallback_answers_is_no_guard() -> None:
    def asks(tensor: torch.Tensor) -> Hashable:
        unbacked = not any(is_backed(size) for size in tensor.shape)
        return key(tensor), unbacked and tensor.dim() > 0 and bool(guard_or_false(tensor.shape[0] == 1))

    assert not PROPERTIES["adds-no-guard"].systematic(function(asks), ("fake",)).violations


def is_backed(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and size.node.has_hint()


def test_the_tensor_that_guards_is_shown() -> None:
    def asks(tensor: torch.Tensor) -> Hashable:
        return key(tensor), tensor.dim() == 2 and bool(tensor.stride(0) == 2)

    (violation,) = PROPERTIES["adds-no-guard"].systematic(function(asks), ("fake",)).violations
    assert violation.tensors == ("fake(u0, s0)",)


def test_an_option_that_is_off_asks_for_nothing() -> None:
    part, made = WRONG_OF_SEVERAL["no aliases"]
    assert part not in {one.part for one in of_rows(function(made, several=True, options=Options(aliasing=False)))}
    no_type = function(zoo.made(type=None, dispatch=None))
    assert not of_code(no_type, ("tensor", "parameter"), equal=True).violations
    asked = no_type._replace(options=Options(parameter=True))
    assert [one.part for one in of_code(asked, ("tensor", "parameter"), equal=True).violations] == ["kind"]


def test_a_cache_of_kernels_is_right() -> None:
    numbers = count()
    dispatch: Dispatch[int] = Dispatch(lambda *_tensors: next(numbers))
    for equal in (True, False):
        made = judged(function(dispatch), ("tensor", "parameter"), equal)
        assert not made.violations
        assert made.tried


# The table.


def test_every_text_makes_the_tensor_that_is_drawn() -> None:
    own = {"torch": torch, "FakeTensorMode": torch_api.bound(torch_api.FAKE_MODE), "OwnTensor": OwnTensor}
    seen = {one for family in families(("tensor", "meta")) for one in family.tensors[:40]}
    for one in sorted(seen):
        made = eval(one.text, dict(own))
        assert with_tensor(one, key) == key(made), one.text


def test_rows_have_names_of_their_own_and_are_found_by_their_texts() -> None:
    assert len({row.kind for row in ROWS}) == len(ROWS)
    for row in (*ROWS, GUARDED, GUARDED_LISTS):
        assert row.needs
        assert set(row.needs) <= set(KINDS)
        assert not row.option or hasattr(Options(), row.option)
        pair = tuple(row.arguments)[:2]
        found = row_of(pair, guarded=row in (GUARDED, GUARDED_LISTS))
        assert found is not None
        assert found.differ(pair) == row.differ(pair)


GIVEN = KeyCase("ddefuzz.keys.key:key", "tells-apart", Options(), given=("fake(u0)", "fake(other_u0)"))


def test_a_pair_of_the_table_is_a_case_and_no_other_code_is() -> None:
    text = print_key(GIVEN)
    assert parse_key(text, "x") == GIVEN
    for old, new in (
        ("fake(u0)", "print(1)"),
        ('    "fake(u0)",\n', ""),
        ("tells-apart", "gives-a-key"),
        ("tells-apart", "adds-no-guard"),
        ("given = [", "tensors = ["),
    ):
        with pytest.raises(InputError, match=r"^x: "):
            parse_key(text.replace(old, new), "x")


def test_a_case_of_the_table_is_judged_again() -> None:
    assert violation(GIVEN, function(key)) is None
    wrong = function(OTHER["no ShapeEnv"][1])
    found = violation(GIVEN, wrong)
    assert found is not None
    assert (found.given, found.part) == (GIVEN.given, "symbols")
    assert violation(replace(GIVEN, violates="shares"), wrong) is None, "it is not about that"
    asks = replace(GIVEN, violates="adds-no-guard", given=("fake(s0)", "fake(s1)"))
    assert violation(asks, function(key)) is None
    backed_only = function(zoo.symbols(lambda number: int(number) if number.node.has_hint() else str(number)))
    found = violation(asks, backed_only)
    assert found is not None
    assert found.why == "adds a guard or a replacement"


def test_a_function_takes_as_many_arguments_as_it_has_parameters() -> None:
    assert [takes(one) for one in (lambda x: x, lambda x, y: y, lambda x, y=1: y, right_of_several, zip)] == [
        *((1, 1), (2, 2), (1, 1), (0, math.inf), (1, 1)),
    ]
    made = of_one_tensor(lambda x, y: (key(x), key(y)))(torch.zeros(2))
    assert made == (key(torch.zeros(2)), key(torch.zeros(3)))
