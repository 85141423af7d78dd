"""The inventory joined with what was reached, by hand and in a real run."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.guard_sites import GuardSite, guard_sites, site_document, totals
from ddefuzz.findings.inventory import CALLS, GuardCall, Inventory, installed
from ddefuzz.findings.ledger import Ledger, SiteRecord, reached
from ddefuzz.findings.unreached_sites import UNREACHED, Reason, reason_for
from ddefuzz.instrument.guards import watch

REFS = "torch/_refs/__init__.py"


def call(line: int, last: int | None = None, name: str = "guard_or_false", column: int = 0) -> GuardCall:
    return GuardCall(REFS, line, column, line, last or line, "f", name, f"{name}(x{line})")


def record(line: int, name: str = "guard_or_false", function: str = "f", **numbers: object) -> SiteRecord:
    known = {"fallbacks": {CALLS[name]: 1}, "old": {"same": 1}, "cases": 1} if name in CALLS else {"raised": 1}
    return SiteRecord("Python", REFS, line, function, name, **{**known, **numbers})  # type: ignore[arg-type]


def lines(sites: tuple[GuardSite, ...]) -> list[tuple[int, bool, int]]:
    return [(site.line, site.listed, site.cases) for site in sites]


@pytest.fixture(scope="module")
def real() -> Inventory:
    return installed()


def test_what_is_no_call_of_the_source_is_a_row_of_its_own() -> None:
    cxx = SiteRecord("C++", "a.cpp", 3, "", "guard_or_true", fallbacks={"True": 2}, cases=2)
    sites = guard_sites([call(7)], [record(7, "guard_bool"), record(9), cxx])
    assert [(site.language, site.line, site.part, site.listed, site.reached) for site in sites] == [
        ("C++", 3, "c++", False, True),
        ("Python", 7, "core", True, False),
        ("Python", 7, "core", False, True),
        ("Python", 9, "core", False, True),
    ]


def test_a_call_over_several_lines_is_met_on_each_and_a_smaller_one_inside_first() -> None:
    calls = [call(4, 9), call(6, 7), call(20)]
    assert lines(guard_sites(calls, [record(8)])) == [(4, True, 1), (6, True, 0), (20, True, 0)]
    assert lines(guard_sites(calls, [record(7)])) == [(4, True, 0), (6, True, 1), (20, True, 0)]
    assert lines(guard_sites(calls, [record(4), record(4, function="<genexpr>")]))[0] == (4, True, 2)


def test_calls_of_one_name_on_a_line_share_its_record() -> None:
    sites = guard_sites([call(4), call(4, column=20), call(4, name="guard_or_true")], [record(4, cases=3)])
    assert [(site.call, site.on_line, site.cases) for site in sites] == [
        ("guard_or_false", 2, 3),
        ("guard_or_false", 2, 3),
        ("guard_or_true", 1, 0),
    ]
    said = totals("2.13.0", sites)
    (core,) = said.parts
    assert (core.listed, core.reached, core.fell_back, said.shared) == (3, 2, 1, 2)
    assert said.estimates["fallback sites"].seen == 1


def test_a_line_where_a_comparison_asked_first_is_known_by_its_answers() -> None:
    both = record(4, "guard_bool", fallbacks={"False": 2, "True": 1}, raised=1, cases=3)
    sites = guard_sites([call(4), call(4, name="guard_or_true")], [both])
    assert [(site.listed, site.cases) for site in sites] == [(True, 3), (True, 3)]


def test_a_document_has_what_scripts_ask_for() -> None:
    document = site_document(guard_sites([call(4)], [record(4, example="text")])[0])
    expected = {"language", "file", "line", "function", "call", "fallbacks", "old", "raised", "blamed", "cases"}
    assert expected <= set(document)
    assert (document["schema"], document["reached"], document["example"]) == ("ddefuzz.site/1", True, "text")


@pytest.mark.slow
def test_a_real_call_over_several_lines_is_met(real: Inventory) -> None:
    """`_prims_common`'s `__lt__` of strides asks over three lines."""
    calls = [one for one in real.calls if one.function == "__lt__" and one.first_line < one.last_line]
    assert [one.text for one in calls] == ["guard_or_false(self.stride < other.stride)"]
    env = ShapeEnv()
    with watch() as recorder:
        one, other = env.create_unbacked_symint(), env.create_unbacked_symint()
        torch._prims_common._is_non_overlapping_and_dense_or_false((one, other), (one, other))
        guards = recorder.guards()
    ledger = Ledger()
    ledger.add([("fake", reached(Observation("fake", EXPLICIT, "ok", guards=guards)))], "program")
    sites = guard_sites(real.calls, ledger.drain())
    assert [site.cases for site in sites if site.text == calls[0].text] == [1]
    assert {site.call for site in sites if not site.listed} <= set(CALLS), "only those under another name"


@pytest.mark.parametrize("row", UNREACHED, ids=lambda row: f"{row.file}-{row.where}")
def test_every_reason_is_of_a_call(row: Reason, real: Inventory) -> None:
    assert row.reason in {reason_for(one) for one in real.calls}
