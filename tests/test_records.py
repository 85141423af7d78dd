"""What is said of literals that do not fit a record."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import msgspec
import pytest

from ddefuzz.errors import InputError
from ddefuzz.records import record_of


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["a", "b", ""]
    size: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.size == 5:
            raise ValueError("found the size 5, expected another")


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    one: Inner | None = None
    many: tuple[Inner, ...] = ()
    named: dict[str, list[Inner]] = {}
    pair: tuple[str, Literal[1, 2]] = ("", 1)
    day: date | None = None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"zork": 1}, "found the unknown key 'zork', expected the keys one, many, named, pair, day"),
        ({"one": {"size": 1}}, "one: found no kind, expected the keys kind, size"),
        ({"one": {"kind": "c"}}, "one.kind: found 'c', expected one of '', a, b"),
        ({"many": [{"kind": "a"}, {}]}, "many[1]: found no kind, expected the keys kind, size"),
        ({"many": [{"kind": "a", "size": -1}]}, "many[0].size: found -1, expected an integer >= 0"),
        ({"many": [{"kind": "a", "size": 5}]}, "found the size 5, expected another (many[0])"),
        ({"named": {"x": [{"kind": "c"}]}}, "named[...][0].kind: found 'c', expected one of '', a, b"),
        ({"pair": ["x", 3]}, "pair[1]: found 3, expected one of 1, 2"),
        ({"pair": ["x"]}, "pair: found ['x'], expected a list of length 2"),
        ({"day": "soon"}, "day: found 'soon', expected a date such as 2027-01-31"),
        ({"one": "x"}, "one: found text, expected a table or nothing with the keys kind, size"),
        (3, "found an integer, expected a table with the keys one, many, named, pair, day"),
    ],
)
def test_what_does_not_fit_is_said(value: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        record_of(value, Outer, "file")
    assert str(caught.value) == f"file: {said}"


def test_a_file_may_have_other_keys() -> None:
    with pytest.raises(InputError, match=r"^file: found the unknown key 'x', expected the keys y, z$"):
        record_of({"x": 1}, Outer, "file", ("y", "z"))
    assert record_of({"one": {"kind": "a"}}, Outer, "file") == Outer(Inner("a"))
