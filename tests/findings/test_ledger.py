"""The ledger of sites: counts do not depend on the order of cases, and nothing is lost between two drains."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ddefuzz.classify.signature import Site
from ddefuzz.findings.ledger import Ledger, SiteCount, SiteKey, SiteRecord, SiteVisit, together
from ddefuzz.instrument.events import Place

REFS = "torch/_refs/__init__.py"

places = st.builds(
    Place, language=st.sampled_from(["Python", "C++"]), file=st.sampled_from([REFS, "a.cpp"]), line=st.integers(1, 3)
)
fallbacks = st.builds(
    SiteVisit,
    place=places,
    function=st.just("f"),
    call=st.just("guard_or_false"),
    answer=st.sampled_from(["False", "True"]),
    old=st.sampled_from(["same", "other", "undecided"]),
    shape=st.sampled_from(["x0", "Eq(x0, 1)"]),
)
errors = st.builds(
    SiteVisit,
    place=places,
    function=st.sampled_from(["f", "g"]),
    call=st.just("guard_bool"),
    answer=st.just("raised"),
    blamed=st.sampled_from([Site("Python", REFS, "f"), Site("C++", None, "at::native::chunk")]),
)
cases = st.lists(
    st.lists(st.tuples(st.sampled_from(["fake", "export"]), st.lists(fallbacks | errors, max_size=4)), max_size=2),
    max_size=6,
)
Case = list[tuple[str, list[SiteVisit]]]


def counts(record: SiteRecord) -> SiteRecord:
    """Without what is of the first case that came there."""
    return msgspec.structs.replace(record, call="", example="", stage="")


def ledger_of(done: list[Case]) -> Ledger:
    ledger = Ledger()
    for number, case in enumerate(done):
        ledger.add(case, f"program {number}")
    return ledger


@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_cases_does_not_matter_for_the_counts(done: list[Case], random: object) -> None:
    shuffled = list(done)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = ledger_of(done), ledger_of(shuffled)
    assert one.count() == other.count()
    assert {record.key: counts(record) for record in one.drain()} == {
        record.key: counts(record) for record in other.drain()
    }


@given(cases, st.integers(0, 6))
def test_two_drains_add_up_to_one(done: list[Case], at: int) -> None:
    whole = {record.key: record for record in ledger_of(done).drain()}
    ledger = Ledger()
    added: dict[SiteKey, SiteRecord] = {}
    for number, case in enumerate(done):
        ledger.add(case, f"program {number}")
        if number == at:
            added = {record.key: record for record in ledger.drain()}
    for record in ledger.drain():
        added[record.key] = together(added[record.key], record) if record.key in added else record
    assert added == whole
    assert ledger.drain() == ()


@given(cases)
def test_a_case_counts_once_and_what_is_new_is_new_once(done: list[Case]) -> None:
    ledger = Ledger()
    new_sites: list[tuple[str, str, int]] = []
    new_errors: list[str] = []
    shapes = 0
    for case in done:
        novel = ledger.add(case, "p")
        new_sites += [key[:3] for key in novel.fallback_sites]
        new_errors += novel.dde_sites
        shapes += novel.shapes
        assert not ledger.add(case, "p")
    assert (len(new_sites), len(new_errors), shapes) == (len(set(new_sites)), len(set(new_errors)), len(ledger.shapes))
    count = ledger.count()
    assert (count.fallback, count.dde) == (len(new_sites), len(new_errors))
    for record in ledger.drain():
        assert max([*record.fallbacks.values(), *record.old.values(), record.raised]) <= record.cases <= 2 * len(done)


def test_the_first_program_is_the_example() -> None:
    one = SiteVisit(Place("C++", "a.cpp", 1), "", "guard_or_true", "True", "other", "x0")
    ledger = Ledger()
    first = ledger.add([("fake", [one])], "first")
    again = ledger.add([("export", [one])], "second")
    assert first and not again
    (record,) = ledger.drain()
    assert record == SiteRecord(
        *("C++", "a.cpp", 1, "", "guard_or_true"),
        fallbacks={"True": 2},
        old={"other": 2},
        cases=2,
        example="first",
        stage="fake",
    )
    assert ledger.count() == SiteCount(1, 1, 0, 0)


def test_the_language_of_a_blamed_site_is_that_of_the_site() -> None:
    """A C++ function at file scope has no `::` in its name."""
    sites = (Site("C++", None, "THPVariable_length"), Site("C++", None, "at::native::chunk"), Site("Python", REFS, "f"))
    ledger = Ledger()
    ledger.add(
        [("export", [SiteVisit(Place("Python", REFS, 1), "f", "guard_int", "raised", blamed=it) for it in sites])], ""
    )
    assert ledger.count() == SiteCount(0, 0, dde=3, dde_cxx=2)
