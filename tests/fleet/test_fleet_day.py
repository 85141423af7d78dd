"""Days of the service, with commands that are stubs."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ddefuzz.errors import InputError
from ddefuzz.findings.textform import read_finding
from ddefuzz.fleet.day import Tools, due_days, limit_of, run_day, steps_of
from ddefuzz.fleet.model import MOST_TRIES, Day, FirstVersion, StepEnd
from ddefuzz.fleet.work import run
from tests.fleet.stub_day import FILE, Quiet, Service, kill, killed
from tests.versions.interpreters import DIFF, ROLL

ROOT = Path(__file__).parents[2]

FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A service whose database has two findings."""
    made = Service(tmp_path)
    made.places.folder.mkdir()
    with made.database() as database:
        database.put([read_finding(ROOT / "findings" / name) for name in (DIFF, ROLL)])
    return made


def kinds(service: Service, day: str) -> dict[str, str]:
    return {row.id: row.kind for row in service.report(day).findings}


@pytest.mark.slow
def test_three_days(service: Service) -> None:
    service.add_wheel("2.13.0", **{"diff": "shows", "roll": "passes"})
    service.run(FIRST)
    first = service.report(FIRST)
    assert (first.torch, first.base, first.new_wheels, first.programs) == ("2.13.0", "", ("2.13.0",), ())
    assert [row.kind for row in first.findings] == ["new"]
    assert {name: end.status for name, end in first.steps.items()} == {
        "wheels": "done",
        "environments": "done",
        "sweep": "done",
        "fuzz default": "done",
        "diff": "skipped",
        "replay": "done",
        "bisect": "skipped",
        "tidy": "done",
    }
    # On the second day one finding is gone, and another is back. Two versions lie between.
    service.add_wheel("2.14.0.dev20260101", diff="shows", roll="passes")
    service.add_wheel("2.14.0", diff="passes", roll="passes")
    service.add_wheel("2.14.1", diff="passes", roll="shows")
    service.run(SECOND)
    second = service.report(SECOND)
    assert (second.torch, second.base, second.compared) == ("2.14.1", "2.13.0", 30)
    assert {row.id: (row.kind, row.first) for row in second.findings} == {
        DIFF: ("gone", FirstVersion("2.14.0.dev20260101", "2.14.0")),
        ROLL: ("regressed", FirstVersion("2.14.0", "2.14.1")),
    }
    assert [row.kind for row in second.programs] == ["changed answer"]
    # On the third day the first finding passes in a second version in a row, and is closed.
    service.add_wheel("2.15.0", diff="passes", roll="shows")
    service.run(THIRD)
    third = service.report(THIRD)
    assert (third.torch, third.base, third.closed, third.counts.gone) == ("2.15.0", "2.14.1", (DIFF,), 0)
    page = service.places.of_day(THIRD, "report.md").read_text()
    assert page.startswith("# 2026-01-03: torch 2.15.0 (before: 2.14.1): no finding changed")
    # The feed has all days, the newest first.
    root = ET.fromstring(service.places.feed.read_text())
    titles = [one.text for one in root.iter("{http://www.w3.org/2005/Atom}title")][1:]
    assert titles[0] == "2026-01-03: torch 2.15.0 (before: 2.14.1): no finding changed"
    assert titles[1] == "2026-01-02: torch 2.14.1 (before: 2.13.0): 1 regressed, 1 gone"
    # It fails again, and is opened.
    service.add_wheel("2.16.0", diff="shows", roll="shows")
    service.run("2026-01-04")
    fourth = service.report("2026-01-04")
    assert (fourth.reopened, kinds(service, "2026-01-04")) == ((DIFF,), {DIFF: "regressed"})


def test_a_day_without_a_new_wheel_goes_on_with_the_version(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows", roll="shows")
    for day in (FIRST, SECOND):
        service.run(day)
    second = service.report(SECOND)
    assert (second.torch, second.base, second.new_wheels) == ("2.13.0", "", ())
    assert second.findings == ()
    assert service.log().count("install 2.13.0") == 1
    assert second.counts.cases == 7
    page = service.places.of_day(SECOND, "report.md").read_text()
    assert "0 guard sites of torch 2.13.0 reached, 0 more than on 2026-01-01" in page


def test_what_cannot_be_used_is_a_line_and_the_rest_goes_on(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")
    service.add_wheel("2.14.0")
    service.broken["2.14.0"] = "OSError: no libcudart.so"
    (service.wheels / "torch-2.whl").touch()
    service.run(FIRST)
    report = service.report(FIRST)
    assert report.torch == "2.13.0"
    assert report.lines == (
        f"{service.wheels}/torch-2.whl: found no name of a wheel, expected torch-VERSION-PYTHON-ABI-PLATFORM.whl",
        "torch-2.14.0-py3-none-any.whl: cannot be imported: OSError: no libcudart.so",
    )
    assert report.steps["replay"].status == "done"


def test_a_day_without_a_wheel_has_a_report(service: Service) -> None:
    service.run(FIRST)
    report = service.report(FIRST)
    assert (report.torch, report.counts.lines) == ("", 2)
    assert "found no wheel of torch that fits" in report.lines[0]
    assert report.lines[1] == (
        "environments: found no version of torch that can be used, expected a wheel that can be imported"
    )
    assert report.steps["sweep"].note == "no version of torch"
    page = service.places.of_day(FIRST, "report.md").read_text()
    assert page.startswith("# 2026-01-01: no version of torch could be used")


@pytest.mark.slow
@pytest.mark.long
def test_a_day_that_is_killed_at_each_step_goes_on_and_does_nothing_twice(tmp_path: Path) -> None:
    """One day is killed before and after each step, and must end as one that is not killed."""

    def begun(name: str) -> Service:
        service = Service(tmp_path / name)
        service.places.folder.mkdir()
        with service.database() as database:
            database.put([read_finding(ROOT / "findings" / one) for one in (DIFF, ROLL)])
        service.add_wheel("2.13.0", diff="shows", roll="shows")
        assert not killed(partial(service.run, FIRST))
        service.add_wheel("2.14.0", diff="passes", roll="shows")
        service.add_wheel("2.14.1", diff="passes", roll="shows")
        return service

    whole, service = begun("whole"), begun("killed")
    assert not killed(partial(whole.run, SECOND))
    steps = [step.name for step in steps_of(service.fleet)]
    for moment in ((step, when) for step in steps for when in ("begins", "ends")):
        if moment == ("hook", "begins"):
            continue  # a hook that was begun is not begun again

        def at_step(step: str, when: str, moment: tuple[str, str] = moment) -> None:
            if (step, when) == moment:
                kill()

        assert killed(partial(service.run, SECOND, at_step)) == -9, moment
        assert [*due_days(service.places, date.fromisoformat(SECOND))] == [SECOND]
    assert not killed(partial(service.run, SECOND))
    assert [*due_days(service.places, date.fromisoformat(SECOND))] == []
    expected, report = whole.report(SECOND), service.report(SECOND)
    assert expected.counts.gone == 1
    assert (report.counts, report.findings, report.programs) == (expected.counts, expected.findings, expected.programs)
    assert (report.closed, report.removed, report.lines) == (expected.closed, expected.removed, expected.lines)
    assert service.log() == whole.log()
    assert service.log()[-1] == "notify --all report.md report.json feed.atom"


def test_a_hook_that_was_begun_is_not_begun_again(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")
    assert killed(partial(service.run, FIRST, lambda name, _: kill() if name == "hook" else None)) == -9
    assert service.run(FIRST).lines == ("hook: it was begun before the service was ended, and is not run again",)
    assert not any(line.startswith("notify") for line in service.log())


def test_a_campaign_that_was_killed_is_resumed(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")

    def start_and_die(name: str, moment: str) -> None:
        if (name, moment) == ("fuzz default", "begins"):
            with service.database() as database:
                now = datetime.now(UTC)
                database.start_campaign(
                    profile="default", seed=20260101, generator="ddefuzz torch=2.13.0", options={}, when=now
                )
            kill()

    assert killed(partial(service.run, FIRST, start_and_die)) == -9
    assert not killed(partial(service.run, FIRST))
    assert [line for line in service.log() if line.startswith("run")] == ["run 2.13.0 --resume"]
    assert len(service.report(FIRST).campaigns) == 1


@pytest.mark.slow
def test_a_step_that_ends_the_service_each_time_is_given_up(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")

    def die(name: str) -> None:
        if name == "sweep":
            kill()

    for _ in range(MOST_TRIES):
        assert killed(partial(service.run, FIRST, at_command=die)) == -9
    assert not killed(partial(service.run, FIRST, at_command=die))
    report = service.report(FIRST)
    assert report.lines == ("sweep: begun 5 times, and the service was ended each time",)
    assert report.steps["sweep"].status == "failed"
    assert report.steps["replay"].status == "done"


def test_a_damaged_history_stays_and_the_day_has_its_report(service: Service) -> None:
    service.places.history.write_text("{}\n")
    lines = service.run(FIRST).lines
    assert lines[-1].startswith(f"report: {service.places.history}:1: found Object missing required field `day`")
    assert service.places.history.read_text() == "{}\n"
    assert service.report(FIRST).day == FIRST


def test_ctrl_c_is_no_try(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")

    def interrupt(name: str) -> None:
        if name == "sweep":
            raise KeyboardInterrupt

    for _ in range(MOST_TRIES + 1):
        with pytest.raises(KeyboardInterrupt):
            service.run(FIRST, at_command=interrupt)
    assert service.run(FIRST).steps["sweep"].status == "done"


def test_what_a_command_leaves_out_is_a_line_and_the_rest_counts(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")
    service.codes = {"sweep": 2, "run": 3}
    day = service.run(FIRST)
    assert day.lines == ("sweep: exit code 2: left out (1 of 1): x", "fuzz-default: exit code 3: left out (1 of 1): x")
    assert {day.steps[name].status for name in ("sweep", "fuzz default")} == {"done"}
    assert service.report(FIRST).sweep == "12 ops so far under this torch: 2 dde, 10 ok"


def test_a_day_that_was_not_ended_comes_first(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")

    def due(day: str) -> list[str]:
        return [*due_days(service.places, date.fromisoformat(day))]

    assert due(FIRST) == [FIRST]
    assert killed(partial(service.run, FIRST, lambda name, _: kill() if name == "diff" else None)) == -9
    assert due(SECOND) == [FIRST, SECOND]
    service.run(FIRST)
    assert due(SECOND) == [SECOND]
    assert due(FIRST) == []
    with pytest.raises(InputError, match="--day: found 2025-12-31, expected 2026-01-01, which is the last one"):
        due("2025-12-31")


def test_a_share_that_is_left_over_is_for_the_steps_after_it(tmp_path: Path) -> None:
    fleet = Service(tmp_path, FILE + "shares = {sweep = 1, fuzz = 1, diff = 1, replay = 1, bisect = 0}\n").fleet
    steps = {step.name: step for step in steps_of(fleet)}
    order = tuple(steps.values())
    day = Day(day=FIRST, begun="", torch="2.14.0", base="2.13.0", is_first=True)
    assert limit_of(steps["sweep"], order, day, fleet) == 250
    day = Day(
        day=FIRST, begun="", torch="2.14.0", base="2.13.0", is_first=True, steps={"sweep": StepEnd("done", "", 100)}
    )
    assert limit_of(steps["fuzz default"], order, day, fleet) == 300
    known = Day(day=FIRST, begun="", torch="2.14.0", base="2.13.0", steps={"sweep": StepEnd("done", "", 100)})
    assert limit_of(steps["fuzz default"], order, known, fleet) == 450


def test_what_the_file_does_not_keep_is_removed_and_its_counts_stay(tmp_path: Path) -> None:
    service = Service(tmp_path, FILE + "keep = {environments = 2, days = 2, wheels = 3}\n")
    for number in range(1, 5):
        service.add_wheel(f"2.{number}.0")
        service.run(f"2026-01-0{number}")
    assert sorted(one.name for one in service.places.environments.iterdir()) == ["2.3.0", "2.4.0"]
    assert sorted(one.name for one in service.places.days.iterdir()) == [THIRD, "2026-01-04"]
    assert sorted(one.name for one in service.wheels.iterdir()) == [
        f"torch-2.{number}.0-py3-none-any.whl" for number in (2, 3, 4)
    ]
    history = [json.loads(line)["day"] for line in service.places.history.read_text().splitlines()]
    assert history == [FIRST, SECOND, THIRD, "2026-01-04"]
    assert service.report("2026-01-04").removed == ("environment 2.2.0", "day 2026-01-02", "wheel 2.1.0")


def test_an_error_of_the_system_in_a_step_is_a_line_and_the_rest_goes_on(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")

    def fail(name: str) -> None:
        if name == "sweep":
            raise PermissionError(13, "Permission denied", "sweep.log")

    day = service.run(FIRST, at_command=fail)
    assert day.lines == ("sweep: [Errno 13] Permission denied: 'sweep.log'",)
    assert (day.steps["sweep"].status, day.steps["replay"].status, day.is_over) == ("failed", "done", True)


def test_a_wheel_that_cannot_be_removed_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path, FILE + "keep = {wheels = 1}\n")
    for torch in ("2.1.0", "2.2.0", "2.3.0"):
        service.add_wheel(torch)
    held = service.wheels / "torch-2.1.0-py3-none-any.whl"
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == held:
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    day = service.run(FIRST)
    assert day.lines == (f"tidy: {held}: cannot be removed: Permission denied",)
    assert (day.steps["tidy"].status, day.removed) == ("done", ("wheel 2.2.0",))


def test_a_command_that_writes_no_document_has_failed(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")
    service.run(FIRST)
    service.add_wheel("2.14.0", diff="shows")
    service.silent = {"diff": 1, "matrix": 1}
    day = service.run(SECOND)
    said = "no document: No module named ddefuzz"
    assert day.lines == (f"diff: {said}", f"replay: {said}")
    assert {day.steps[name].status for name in ("diff", "replay")} == {"failed"}


def test_the_document_of_a_try_that_was_killed_is_not_that_of_the_next(service: Service) -> None:
    service.add_wheel("2.13.0", diff="shows")
    part = service.places.of_day(FIRST, "sweep.part.json")
    part.parent.mkdir(parents=True)
    part.write_text(json.dumps({"totals": {"ops": 99, "explicit": {}}, "interrupted": True}))
    service.silent = {"sweep": -11}
    day = service.run(FIRST)
    assert day.steps["sweep"].note == "signal 11: No module named ddefuzz"
    assert (day.steps["sweep"].status, service.report(FIRST).sweep) == ("failed", "")
    service.codes, service.silent = {"sweep": -11}, {}
    assert service.run(SECOND).steps["sweep"].status == "failed"  # its document is whole, and is used
    assert service.report(SECOND).sweep


def test_a_day_whose_database_cannot_be_read_has_a_report(service: Service) -> None:
    service.run(FIRST)
    service.add_wheel("2.13.0", diff="shows")
    service.places.db.path().write_text("no database" * 100)  # type: ignore[union-attr]
    day = service.run(SECOND)
    report = service.report(SECOND)
    assert (day.steps["report"].status, report.is_counted, report.torch) == ("failed", False, "2.13.0")
    assert report.lines == day.lines
    assert day.lines[-1].startswith(f"report: findings database {service.places.db}: the file is not")
    page = service.places.of_day(SECOND, "report.md").read_text()
    assert page.startswith("# 2026-01-02: nothing could be counted\n")
    assert "Not done" in page
    assert service.log()[-1] == "notify --all report.md report.json feed.atom"
    assert service.places.feed.is_file()
    assert [json.loads(line)["day"] for line in service.places.history.read_text().splitlines()] == [FIRST]


def test_the_hook_starts_in_the_folder_of_the_file(tmp_path: Path) -> None:
    service = Service(tmp_path, FILE.replace('["notify", "--all"]', '["./notify"]'))
    (tmp_path / "notify").write_text("#!/bin/sh\npwd > here\n")
    (tmp_path / "notify").chmod(0o755)
    real = Tools(Quiet(), service.install, run)
    day = run_day(service.fleet, service.places, FIRST, lambda: datetime.now(UTC), real)
    assert day.steps["hook"] == StepEnd("done")
    assert (tmp_path / "here").read_text() == f"{tmp_path}\n"


def test_a_broken_wheel_takes_no_environment_that_the_day_needs(tmp_path: Path) -> None:
    service = Service(tmp_path, FILE + "keep = {environments = 2}\n")
    for torch, day in (("2.1.0", FIRST), ("2.2.0", SECOND)):
        service.add_wheel(torch)
        service.run(day)
    service.add_wheel("2.3.0")
    service.broken["2.3.0"] = "no"
    assert (day_ := service.run(THIRD)).torch == "2.2.0"
    assert day_.base == "2.1.0"
    assert service.log().count("install 2.1.0") == service.log().count("install 2.2.0") == 1
