"""A campaign's page: it fits its width, keeps names whole, and counts what was minimized."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ddefuzz.campaign.page import run_report, summary_view
from ddefuzz.campaign.summary import AcceptedCount, CallCounts, CampaignFinding, StrategyCount, Summary, minimized
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.run import _passed, command
from ddefuzz.errors import InputError
from ddefuzz.execute.scratch import PREFIX
from ddefuzz.findings.ledger import SiteCount
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import NONE, Now
from ddefuzz.program.sizes import SIZE_KINDS
from ddefuzz.show.blocks import Invocation
from ddefuzz.show.terminal import terminal

REPLAY = "ddefuzz run --seed 7 --budget 12x"

SITES = (
    Site("C++", None, "c10::SymbolicShapeMeta::compute_strides_like_channels_last_2d"),
    Site("Python", "torch/_decomp/decompositions_for_unbacked_symints.py", "one_hot_of_a_size"),
    Site("C++", None, "aten::histogram"),
)
FINDINGS = (
    CampaignFinding(
        "dde-99b9f15ff8", Signature("dde", SITES[0], "guard_bool operator=="), "avoidable", True, 2.0, 3, 1, "1/1"
    ),
    CampaignFinding(
        "dde-cda2def407", Signature("dde", SITES[1], "int(self.max().item())"), "int-required", True, 6.1, 1, 4, "0/1"
    ),
    CampaignFinding(
        "data-dependent-output-15ea0d4b19",
        Signature("data-dependent-output", SITES[2], "UnsupportedOperatorException"),
        "refused",
        is_new=False,
        first_seconds=8.0,
        cases=1,
    ),
)
SECONDS = {"confirm": 1.0, "export": 2.9, "minimize": 2.4}

SUMMARY = Summary(
    seed=7,
    profile="default",
    generator="generator=1",
    torch="2.13.0",
    budget="12x",
    shard="1/1",
    sites=SiteCount(fallback=31, fallback_cxx=12, dde=3, dde_cxx=1),
    growth=(),
    strategies={"draw": StrategyCount(9, 30), "sample": StrategyCount(3, 4)},
    jobs=2,
    cases=12,
    digests=(),
    outcomes={"export": {"explicit": {"fail": 5, "ok": 7}, "size-oblivious": {"fail": 3, "ok": 1}}},
    verdicts={"export": {"ok": 3, "rescued": 3, "fails": 5, "changed": 1}},
    calls={
        "export": CallCounts(7, 5, dict.fromkeys(SIZE_KINDS, 6)),
        "aot": CallCounts(2, 2, dict.fromkeys(SIZE_KINDS, 2)),
    },
    accepted={"random numbers": AcceptedCount(3, 5, "def program(): ..."), "dead code": AcceptedCount(1, 2, "")},
    findings=FINDINGS,
    cpu_seconds=SECONDS,
    seconds=10.2,
    start_seconds=3.0,
    peak_rss_mb=500.0,
    interrupted=False,
    minimized=minimized(FINDINGS, SECONDS),
    unminimized=0,
    lost=1,
    campaign=1,
)


@pytest.mark.parametrize("width", [74, 80, 119, 120, 130, 160, 200])
def test_the_page_fits_and_loses_nothing(width: int) -> None:
    page = terminal(summary_view(SUMMARY, REPLAY, Invocation()), width)
    told, commands = page.split("\nNext:\n")
    assert max(map(len, told.splitlines())) <= width
    assert "…" not in told
    assert "\n\n\n" not in page
    assert f"  {REPLAY}" in commands.splitlines()
    for seen in FINDINGS:
        assert seen.finding in told
    called = "programs called beside eager (at all 7 kinds of sizes): export 7 (5), aot 2 (2); by size: example 8, 0 8,"
    assert called in " ".join(told.split())
    accepted = "accepted differences from eager, in programs called (first case): random numbers 3 (case 5), dead code"
    assert accepted in " ".join(told.split())


@pytest.mark.parametrize("width", [70, 80])
def test_a_narrow_page_has_site_and_anchor_below(width: int) -> None:
    words = "".join(terminal(summary_view(SUMMARY, REPLAY, Invocation()), width).split())
    for seen in FINDINGS:
        assert f"{seen.signature.site}·{seen.signature.anchor}".replace(" ", "") in words


def test_a_wide_page_gives_a_finding_one_line() -> None:
    page = terminal(summary_view(SUMMARY, REPLAY, Invocation()), 200)
    (line,) = (line for line in page.splitlines() if FINDINGS[1].finding in line)
    assert line.split() == [
        *("dde-cda2def407", "int-required", "new", str(SITES[1]), "int(self.max().item())"),
        *("1", "4", "0/1"),
    ]


def test_new_and_known_are_told_apart() -> None:
    known = msgspec.structs.replace(FINDINGS[1], is_new=False)
    page = terminal(
        summary_view(
            msgspec.structs.replace(SUMMARY, findings=(FINDINGS[0], known, FINDINGS[2])), REPLAY, Invocation()
        ),
        160,
    )
    words = {line.split()[0]: line.split() for line in page.splitlines() if line.strip()}
    assert [words[seen.finding][2] for seen in FINDINGS] == ["new", "known", "known"]
    assert "1 new; 1 known: in the database before this campaign, or in --known FILE" in page


def test_reports_count_as_the_page_does() -> None:
    seen = (FINDINGS[0], msgspec.structs.replace(FINDINGS[1], is_new=False), FINDINGS[2])
    stored = [Finding(id=one.finding, signature=one.signature, cause=one.cause) for one in seen]
    report = run_report(msgspec.structs.replace(SUMMARY, findings=seen), stored)
    assert report.counts == {"failed": 1, "known": 1, "skipped": 1}


def test_commands_are_those_of_the_reader() -> None:
    call = Invocation(".venv/bin/ddefuzz", ".venv/bin/python", "sqlite:///other.db")
    stopped = msgspec.structs.replace(SUMMARY, interrupted=True)
    commands = terminal(summary_view(stopped, REPLAY, call), 80).split("\nNext:\n")[1]
    assert commands.splitlines()[:3] == [
        "  .venv/bin/ddefuzz run --resume --db sqlite:///other.db",
        "  .venv/bin/ddefuzz findings show dde-99b9f15ff8 --db sqlite:///other.db",
        "  .venv/bin/ddefuzz findings show dde-99b9f15ff8 --repro --db sqlite:///other.db > repro.py "
        "&& .venv/bin/python repro.py",
    ]


def test_what_minimizing_came_to_is_one_line() -> None:
    lines = terminal(summary_view(SUMMARY, REPLAY, Invocation()), 160).splitlines()
    line = "2 findings minimized: steps median 2.5, max 4; 1 of 2 confirmed cold; 1.7 CPU seconds a finding"
    assert line in lines
    assert "1 case ended the worker: a crash or timeout if in a capture or call, else not judged" in lines


def test_nothing_found_is_said_without_findings() -> None:
    nothing = msgspec.structs.replace(SUMMARY, findings=(), minimized=None, cases=1, lost=0)
    page = terminal(summary_view(nothing, REPLAY, Invocation()), 80)
    assert "1 case in 10 s on torch 2.13.0: 0 findings about PyTorch" in page
    assert "known" not in page
    assert "minimized" not in page
    assert page.endswith(f"Next:\n  {REPLAY}\n")


def test_a_campaign_without_a_case_suggests_a_longer_budget() -> None:
    nothing = msgspec.structs.replace(
        SUMMARY, cases=0, outcomes={}, verdicts={}, strategies={}, findings=(), minimized=None, lost=0
    )
    page = terminal(summary_view(nothing, REPLAY, Invocation()), 80)
    for part in ("cases by strategy", "guard sites", "CPU seconds", "stage"):
        assert part not in page
    assert page.endswith("Next:\n  ddefuzz run --seed 7 --budget 5m  # no case ended in 12x\n")


def test_decisions_that_have_expired_are_named_before_the_campaign() -> None:
    assert _passed(NONE) == ""
    said = _passed(Now(known=frozenset({"dde-3"}), expired=frozenset({"dde-2", "dde-1"})))
    assert said == "the date of the decision on these findings has passed: dde-1, dde-2"


def test_resuming_removes_the_folder_of_a_campaign_that_was_killed_before_it_was_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    done = CliRunner().invoke(command, ["--resume", "--db", f"sqlite:///{tmp_path}/empty.db"])
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("--resume: found no interrupted campaign in ")
    assert not left.exists()
