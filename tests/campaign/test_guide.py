"""The guide: its choice depends only on the results of earlier cases, in order of index."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.campaign.guide import ROUND, STRATEGIES, TEMPLATES, CalledCase, Guide
from ddefuzz.campaign.tasks import CaseResult, StageOutcome, StageReached
from ddefuzz.classify.signature import Site
from ddefuzz.findings.ledger import SiteVisit
from ddefuzz.generate.profiles import CAPTURES, Draw, Mutate, Origin, Respell, Sample, name_of
from ddefuzz.instrument.events import Place
from ddefuzz.ops.catalogue import OPS

PROGRAM = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return torch.chunk(x, 2)
"""
ROUNDS = 6


def fell_back(file: str, line: int) -> SiteVisit:
    return SiteVisit(Place("Python", file, line), "f", "guard_or_false", "False", "same", "Eq(x0, 1)")


def raised(function: str) -> SiteVisit:
    return SiteVisit(
        Place("C++", "c10/core/SymInt.h", 301), function, "guard_bool", "raised", blamed=Site("C++", None, function)
    )


def result(index: int, origin: Origin, *reached: SiteVisit) -> CaseResult:
    return CaseResult(
        index,
        f"digest {index}",
        program=PROGRAM,
        reached=(StageReached("fake", reached),),
        origin=origin,
        functions=("torch.chunk",),
    )


def shown(index: int) -> tuple[SiteVisit, ...]:
    """What the case of an index shows: now and then something new."""
    return (fell_back("torch/_refs/__init__.py", index // 7), *([raised(f"f{index}")] if index % 11 == 0 else []))


def origins(guide: Guide, order: Iterable[int], count: int) -> dict[int, Origin]:
    """The cases of a campaign whose results come in as `order` ranks them, each round by itself."""
    taken: dict[int, Origin] = {}
    waiting: list[int] = []
    rank = {index: place for place, index in enumerate(order)}
    upcoming = 0
    while upcoming < count or waiting:
        while upcoming < count and guide.ready(upcoming):
            taken[upcoming] = guide.take(upcoming).origin or Draw(upcoming)
            waiting.append(upcoming)
            upcoming += 1
        waiting.sort(key=lambda index: rank[index])
        index = waiting.pop(0)
        guide.learn(result(index, taken[index], *shown(index)))
    return taken


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_in_which_results_come_does_not_matter(seed: int) -> None:
    count = ROUNDS * ROUND
    shuffled = Random(seed).sample(range(count), count)
    in_order, out_of_order = (
        origins(Guide(7, samples=("add", "chunk", "diff")), order, count) for order in (range(count), shuffled)
    )
    assert in_order == out_of_order


@pytest.mark.slow
def test_programs_that_reached_something_new_are_mutated_in_every_kind() -> None:
    found = origins(Guide(7, samples=("add", "chunk")), range(120 * ROUND), 120 * ROUND).values()
    names = {name_of(origin) for origin in found}
    assert names == set(STRATEGIES) - {"aim"}
    assert all(origin.program == PROGRAM for origin in found if isinstance(origin, Mutate))
    assert all(origin.base.focus is None for origin in found if isinstance(origin, Respell))
    sampled = {origin.op for origin in found if isinstance(origin, Sample)}
    assert {"add", "chunk"} < sampled < {"add", "chunk", *TEMPLATES}


def test_aim_chooses_ops_that_touch_files_with_unreached_sites() -> None:
    guide = Guide(7, sites_in=lambda file: frozenset({1, 1000, 1001}) if file.endswith("__init__.py") else frozenset())
    found = origins(guide, range(120 * ROUND), 120 * ROUND).values()
    aimed = [origin for origin in found if name_of(origin) == "aim"]
    assert aimed
    assert all("torch.chunk" in OPS[origin.focus or 0].callables for origin in aimed if isinstance(origin, Draw))


def test_uniform_is_drawn_in_order() -> None:
    found = origins(Guide(7, ("draw",), samples=("add",)), range(4 * ROUND), 4 * ROUND)
    assert found == {index: Draw(index) for index in range(4 * ROUND)}


def test_two_rounds_are_ready_at_once_and_no_more() -> None:
    guide = Guide(7)
    assert all(guide.ready(index) for index in range(2 * ROUND))
    assert not guide.ready(2 * ROUND)


def test_called_cases_are_chosen_by_what_earlier_cases_reached() -> None:
    def called_case(index: int) -> CalledCase | None:
        return CalledCase(Draw(index, profile=CAPTURES), "aot") if index % 7 == 0 else None

    def passed(index: int, origin: Origin) -> CaseResult:
        outcome = StageOutcome("fake", "explicit", "ok", "", 0.1)
        return msgspec.structs.replace(result(index, origin, *shown(index)), outcomes=(outcome,))

    for strategies, expected in ((STRATEGIES, {"captures", "again"}), (("draw",), {"captures"})):
        guide = Guide(7, strategies, called_case=called_case)
        called = []
        for index in range(4 * ROUND):
            origin = guide.take(index).origin or Draw(index)
            called += [name_of(origin)] if index % 7 == 0 else []
            guide.learn(passed(index, origin))
        assert expected <= set(called)
        assert set(called) == expected or strategies == STRATEGIES
