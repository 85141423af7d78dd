"""The census: status of an op, totals, and the comparison with upstream's list."""

from __future__ import annotations

import msgspec
import pytest

from ddefuzz.show.markdown import markdown
from ddefuzz.sweep.census import Census, census_document, compared, rows_of, totals_of
from ddefuzz.sweep.tasks import STATIC, OpFailure, OpResult, Status, UpstreamResult, row_of, status_of, with_status
from tests.sweep.made_by_hand import CHUNK, INTERNAL, NO_KERNEL, ROLL, failed, swept


@pytest.mark.parametrize(
    ("one", "explicit", "size_oblivious"),
    [
        (swept("a"), "ok", "ok"),
        (swept("a", runs=0), "none", "none"),
        (swept("a", runs=0, lost=("crash",)), "other", "other"),
        (swept("a", lost=("crash",)), "other", "other"),
        (swept("a", rescued=("a.cpp:1",)), "ok", "dde"),
        (swept("a", failed(INTERNAL), failed(CHUNK)), "dde", "dde"),
        (swept("a", failed(INTERNAL), failed(NO_KERNEL)), "unsupported", "unsupported"),
        (swept("a", failed(INTERNAL)), "other", "other"),
        (swept("a", failed(CHUNK, verdict="regressed")), "dde", "ok"),
    ],
)
def test_the_worst_sample_decides(one: OpResult, explicit: Status, size_oblivious: Status) -> None:
    assert status_of(one) == (explicit, size_oblivious)


def test_the_row_names_what_most_samples_show() -> None:
    row = row_of(
        swept(
            "chunk",
            failed(INTERNAL, runs=9),
            failed(ROLL, runs=1),
            failed(CHUNK, runs=2, cause="result-depends-on-data"),
        )
    )
    assert (row.site, row.cause) == ("at::native::chunk", "result-depends-on-data")
    assert [failure.signature.kind for failure in row.failures] == ["dde", "dde", "internal-error"]
    assert row.failures[0].stages == ("export",)


def test_a_stage_that_shows_another_signature_confirms_nothing() -> None:
    other = failed(ROLL).confirmed
    assert row_of(swept("chunk", failed(CHUNK, confirmed=other))).failures[0].stages == ()


def test_a_guard_that_only_size_oblivious_semantics_cannot_decide_is_counted() -> None:
    assert (
        row_of(swept("add", rescued=("aten/src/ATen/ExpandUtils.cpp:34",))).site == "aten/src/ATen/ExpandUtils.cpp:34"
    )


def test_failing_ops_come_first() -> None:
    rows = rows_of([swept("a"), swept("z", failed(), explicit="dde"), swept("b", failed(INTERNAL), explicit="other")])
    assert [row.op for row in rows] == ["z", "b", "a"]


def test_the_totals_count_places_once() -> None:
    both = ("aten/src/ATen/ExpandUtils.cpp:34", "torch/_refs/__init__.py:448")
    totals = totals_of(
        [
            swept("a", failed(CHUNK), sites=both, explicit="dde"),
            swept(
                "b",
                failed(CHUNK, cause="result-depends-on-data"),
                failed(ROLL),
                failed(INTERNAL),
                sites=both[:1],
                explicit="dde",
            ),
            swept("c", source="catalogue"),
        ]
    )
    assert (totals.ops, totals.opinfo, totals.catalogue, totals.samples, totals.runs) == (3, 2, 1, 6, 27)
    assert (totals.fallback_sites, totals.fallback_sites_cxx, totals.dde_sites, totals.dde_sites_cxx) == (2, 1, 2, 1)
    assert totals.explicit == {"dde": 2, "ok": 1}


def test_upstreams_list_is_reproduced_or_explained() -> None:
    upstream = compared(
        [
            swept("chunk", failed(), explicit="dde"),
            swept("stale"),
            swept("otherwise", failed(INTERNAL), explicit="other"),
            swept("compiled"),
            swept("empty"),
            swept("unknown"),
            swept("lost"),
            swept("new", failed(ROLL, forms=("backward",)), explicit="dde"),
            swept("skipped", failed(ROLL), explicit="dde"),
        ],
        ["chunk", "stale", "otherwise", "compiled", "empty", "unknown", "lost", "not in OpInfo"],
        ["skipped"],
        {
            "stale": UpstreamResult("stale", "ok", samples=7),
            "otherwise": UpstreamResult("otherwise", "fail", "unsupported", "unsupported at x [y]", "m"),
            "compiled": UpstreamResult("compiled", "fail", "dde", str(CHUNK), "m"),
            "empty": UpstreamResult("empty", "no-sample"),
            "lost": UpstreamResult("lost", "lost"),
        },
    )
    assert (upstream.entries, upstream.reproduced, upstream.accounted) == (7, 1, 5)
    assert upstream.unaccounted == ("unknown", "lost")
    assert {one.op: one.reason.split(":")[0] for one in upstream.only_upstream} == {
        "stale": "stale",
        "otherwise": "fails for another reason than a data-dependent error",
        "compiled": "only under compile(eager), with upstream's sample",
        "empty": "nothing to try",
    }
    assert {one.op: one.reason for one in upstream.only_here} == {
        "new": "in the forms backward, which upstream does not try",
        "skipped": "upstream skips it",
    }


def reason_of(one: OpFailure) -> str:
    (difference,) = compared([swept("new", one, explicit="dde")], [], [], {}).only_here
    return difference.reason


def test_why_an_op_fails_only_here() -> None:
    assert reason_of(failed(dtypes=("int64",))) == "with int64, which upstream does not try"
    assert reason_of(failed(forms=("mask", "out"))) == "in the forms mask, out, which upstream does not try"
    assert reason_of(failed()) == "other samples, or another stage than compile(eager)"


def test_the_document_is_read_back() -> None:
    census = Census(
        "2.13.0", "sweep=1", ("chunk*",), 1.5, totals_of([swept("a", failed())]), rows_of([swept("a", failed())])
    )
    assert msgspec.json.decode(msgspec.json.encode(census), type=Census) == census
    assert b'"schema":"ddefuzz.sweep/2"' in msgspec.json.encode(census)


def test_what_fails_at_static_sizes_too_is_listed_apart() -> None:
    made = swept("a"), swept("b", runs=0, dropped={STATIC: 2}), swept("c", runs=0, dropped={"0 calls": 1})
    ops = [with_status(one) for one in made]
    census = Census("2.13.0", "sweep=1", (), 1.5, totals_of(ops), rows_of(ops), placed=True)
    lines = markdown(census_document(census)).splitlines()
    assert lines[0] == "# Census of data-dependent errors of DTensors: torch 2.13.0"
    titles = [
        "Ops whose samples all trace (OpInfo)",
        "Ops of which no sample counts, because some fail at static sizes, too",
    ]
    assert [lines[lines.index(f"## {title}") + 2] for title in titles] == ["`a`", "`b`"]
    assert lines[-1] == "`c`"
