"""`ddefuzz fleet`: the day of the service."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import rich_click as click

from ddefuzz.cli.command import argument, click_command, option
from ddefuzz.cli.output import LiveLine
from ddefuzz.cli.streams import write_line
from ddefuzz.errors import InputError, UnsupportedError, refuse
from ddefuzz.files import is_file
from ddefuzz.findings.lifecycle import version_key
from ddefuzz.fleet.day import Tools, due_days, limit_of, read_days, run_day, steps_of
from ddefuzz.fleet.model import Day, Fleet, Places, read_fleet
from ddefuzz.fleet.work import only_one, ready
from ddefuzz.show.blocks import counted
from ddefuzz.versions.wheels import wheels_in


@click_command("fleet")
def command(
    file: Path = argument("FILE"),
    check: bool = option("Only read FILE, and say what the day would do."),
    day: datetime | None = option(
        "The day to run, in place of today (UTC). An earlier day that has not ended is run first.",
        type_=click.DateTime(["%Y-%m-%d"]),
        metavar="YYYY-MM-DD",
    ),
) -> None:
    """Run a day of the service: take new wheels of torch, search, compare, and report.

    FILE is a TOML file. `wheels` is the folder into which wheels of torch are put, and `budget` the CPU seconds of a
    day, such as "14400cpu". docs/fleet.md has the other keys.

    The newest wheel is the version of the day. Each wheel gets an environment. The steps are wheels, environments,
    sweep, fuzz (a campaign for each profile), diff, replay, bisect, tidy, report and hook. The report is
    FOLDER/days/DAY/report.md, with the same as JSON beside it; FOLDER/feed.atom has all days.

    A day that was interrupted or killed goes on at its step when the command runs again. A second command at the same
    time is refused. Exit code 4: something could not be done, such as a wheel that cannot be imported; all else was.
    """
    fleet, places = read_fleet(file)
    now = datetime.now(UTC).date()
    today = day.date() if day else now
    if today > now:
        raise InputError(f"--day: found {today}, expected {now}, which is today (UTC), or an earlier day")
    if check:
        for line in _plan(fleet, places, today):
            write_line(line)
        return
    with only_one(places.folder), LiveLine("reading the state") as live:
        lines: list[str] = []
        due = due_days(places, today)
        if not due:
            live.say(f"day {today} has ended: {places.of_day(str(today), 'report.md')}")
        for name in due:
            live.say(f"day {name}")
            lines += run_day(fleet, places, name, lambda: datetime.now(UTC), Tools(live)).lines
            if is_file(report := places.of_day(name, "report.md")):
                write_line(str(report))
    for line in lines:
        refuse(UnsupportedError(line))


def _plan(fleet: Fleet, places: Places, today: date) -> list[str]:
    """What the day would do."""
    days = read_days(places)
    wheels, lines = list[str](), list[str]()
    try:
        wheels = sorted((one.torch for one in wheels_in(places.wheels, "")), key=version_key)
    except InputError as error:  # the day may download one, or have environments
        lines.append(f"wheels: {error}")
    before = {version for one in days for version in one.wheels}
    lines += [
        f"{one}: {'selected' if fleet.selects(one) else 'left out by versions'}{'' if one in before else ', new'}"
        for one in wheels
    ]
    lines.append(f"environments: {', '.join(ready(places.environments)) or 'none yet'}")
    due = due_days(places, today)
    if not due:
        lines.append(f"day {today} has ended: {places.of_day(today.isoformat(), 'report.md')}")
    for name in due:
        state = next(
            (one for one in days if one.day == name), Day(day=name, begun="", torch="?", base="?", is_first=True)
        )
        steps = steps_of(fleet)
        left = [one for one in steps if one.name not in state.steps]
        lines.append(f"day {name}: {counted(len(left), 'step')} of {len(steps)} to do")
        for step in left:
            skipped, limit = step.skipped_by(state), limit_of(step, steps, state, fleet)
            about = (
                f"skipped, {skipped}" if skipped else f"at least {limit:.0f} CPU s, if it needs them" if limit else ""
            )
            lines.append(f"  {step.name}{': ' if about else ''}{about}")
    return lines
