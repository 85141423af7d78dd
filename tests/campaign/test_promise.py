"""Which way comes next: by its own record, and before it has one by that of all."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ddefuzz.campaign.promise import DOUBT, Way, pick
from ddefuzz.campaign.sampler import FIRST, Sampler
from ddefuzz.generate.origin import Draw, Sample
from ddefuzz.generate.variants import UNBACKED_FORMS


def picked(ways: dict[str, Way]) -> Counter[str]:
    random = Random(7)
    return Counter(pick(ways, random) for _ in range(2_000))


def test_a_way_without_a_record_promises_what_is_usual() -> None:
    assert Way().promise(0.25) == 0.25
    assert Way(cost=DOUBT, gained=DOUBT).promise(0.0) == 0.5
    assert Way(cost=1e6, gained=1e6).promise(0.0) == pytest.approx(1.0, abs=1e-3)


def test_what_brings_more_comes_more_often_and_what_brings_nothing_seldom() -> None:
    found = picked({"much": Way(200, 20), "little": Way(200, 5), "nothing": Way(200, 0), "new": Way()})
    assert found["much"] > found["new"] > found["little"] > found["nothing"] > 0


def test_a_record_is_forgotten() -> None:
    way = Way(100, 50)
    for _ in range(200):
        way.forget()
    assert way.promise(0.01) < 0.1


def test_each_op_of_torch_comes_once_before_any_form_is_chosen() -> None:
    sampler, random = Sampler(("add", "chunk", "diff"), ("x + 1",), 7), Random(7)
    opening = [sampler.next(random) for _ in range(3)]
    assert {(one.op, one.form, one.number) for one in opening} == {(op, FIRST, 0) for op in ("add", "chunk", "diff")}
    assert not sampler.opening
    for one in opening:
        sampler.learn(one, one, 5)
    assert all(way == Way() for way in sampler.forms.values()), "the opening says nothing of forms"
    later = [sampler.next(random) for _ in range(400)]
    assert {one.op for one in later} == {"add", "chunk", "diff", "x + 1"}
    assert {one.form for one in later} == set(UNBACKED_FORMS)


def test_a_form_is_credited_with_what_was_made_in_it() -> None:
    sampler = Sampler((), ("x + 1",), 7)
    asked = Sample("x + 1", "out", 0, 0)
    sampler.learn(asked, Draw(0), 3)
    assert (sampler.forms["out"], sampler.of_ops["x + 1"]) == (Way(), Way(1, 0))
    sampler.learn(asked, Sample("x + 1", "layout", 2, 0), 3)
    assert (sampler.forms["out"], sampler.forms["layout"]) == (Way(), Way(1, 3))
    assert sampler.of_ops["x + 1"] == Way(2, 3)
