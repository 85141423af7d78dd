"""The summary of a campaign: counts of minimized findings."""

from __future__ import annotations

import msgspec

from ddefuzz.campaign.summary import AcceptedCount, CampaignFinding, MinimizeCounts, Tally, minimized
from ddefuzz.campaign.tasks import CaseResult, StageOutcome
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.program.sizes import CALL_SIZES, SIZE_KINDS, CallSize

CHUNK = Signature("dde", Site("C++", None, "at::native::chunk"), "guard_bool operator==")


def seen(name: str, steps: int | None, confirmed: str) -> CampaignFinding:
    return CampaignFinding(name, CHUNK, "avoidable", True, 1.0, 1, steps, confirmed)


def test_findings_that_were_minimized_are_counted_and_no_others() -> None:
    findings = [seen("a", 1, "1/1"), seen("b", 4, "0/1"), seen("c", None, "1/1"), seen("d", 2, "1/1"), seen("e", 1, "")]
    seconds = {"minimize": 5.0, "confirm": 1.0, "export": 9.0}
    assert minimized(findings, seconds) == MinimizeCounts(4, 1.5, 4, 2, 1.5)


def test_without_minimized_findings_there_is_no_count() -> None:
    assert minimized([], {}) is None
    assert minimized([seen("c", None, "1/1")], {"confirm": 1.0}) is None


def test_called_programs_are_counted_by_stage_and_size() -> None:
    tally = Tally()
    few: tuple[CallSize, ...] = ("example", "1", "0")
    runs = [
        StageOutcome("aot", "explicit", "ok", "ok", 1.0, (*CALL_SIZES[:-2], "u0=5,x=3")),
        StageOutcome("aot", "explicit", "ok", "ok", 1.0, CALL_SIZES[::-1]),
        StageOutcome("aot", "explicit", "ok", "ok", 1.0, few),
        StageOutcome("aot", "size-oblivious", "ok", "", 1.0, CALL_SIZES),
        StageOutcome("export", "explicit", "fail", "fails", 1.0),
        StageOutcome("recompile", "explicit", "ok", "", 1.0, ("5", "7")),
    ]
    for index, run in enumerate(runs):
        tally.add(CaseResult(index, "", (run,)))
    called = tally.calls()
    assert list(called) == ["aot"]
    assert (called["aot"].programs, called["aot"].at_all_sizes) == (3, 2)
    assert called["aot"].sizes == {size: 3 if size in few else 2 for size in SIZE_KINDS}


def test_accepted_differences_are_counted_with_the_first_case() -> None:
    tally = Tally()
    run = StageOutcome("aot", "explicit", "ok", "ok", 1.0, CALL_SIZES)
    for index, accepted in ((5, ("ties",)), (3, ("ties", "dead code")), (4, ("ties",))):
        run = msgspec.structs.replace(run, accepted=accepted)
        tally.add(CaseResult(index, "", (run,), program=f"program {index}"))
    assert tally.accepted == {
        "ties": AcceptedCount(3, 3, "program 3"),
        "dead code": AcceptedCount(1, 3, "program 3"),
    }


def test_what_is_not_about_data_does_not_count() -> None:
    one = seen("a", 1, "1/1")
    assert [msgspec.structs.replace(one, data_dependent=is_so).counts for is_so in (True, None, False)] == [
        True,
        True,
        False,
    ]
    assert not msgspec.structs.replace(one, cause="user").counts
