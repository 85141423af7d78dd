"""A day of the service: the table of its steps. The state is saved before and after each, so a day that was killed goes
on at the step in which it was.
"""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from ddefuzz.errors import (
    EXIT_FOUND,
    EXIT_NOTHING_RAN,
    DdefuzzError,
    InputError,
    UnsupportedError,
    refusals,
)
from ddefuzz.escape import json_text, shell_words
from ddefuzz.files import entries, is_file, is_there, parse_json, read_bytes, write_atomically
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import version_key
from ddefuzz.findings.listing import campaigns, progress
from ddefuzz.findings.model import stamp
from ddefuzz.fleet import work
from ddefuzz.fleet.model import LAST_STEP, MOST_TRIES, Day, FirstVersion, Fleet, Places, Status, StepEnd
from ddefuzz.fleet.report import campaigns_of, changes, feed, read_history, report_of, seed_of, state_of, view
from ddefuzz.show.blocks import counted
from ddefuzz.show.markdown import markdown
from ddefuzz.versions.bisect import bisected
from ddefuzz.versions.diff import MOST_CAMPAIGNS
from ddefuzz.versions.model import Cell, Interpreter
from ddefuzz.versions.run import Live, Settings, matrix
from ddefuzz.versions.wheels import ISOLATED, Index, Wheel, wheels_in
from ddefuzz.versions.wheels import places as pip_places

MOST_TRIED: Final = 5
"""How many versions are tried until one can be used. Each takes minutes to install."""

LEAST_SECONDS: Final = 20.0
"""The least CPU time that a command gets: torch is imported by each of its workers."""

HOOK_SECONDS: Final = 600.0

DOWNLOAD_SECONDS: Final = 3600.0


class Tools(NamedTuple):
    """How environments are made and commands run, where progress goes, and what is told before and after each step."""

    live: Live
    install: Callable[[Wheel, Path, Index], Interpreter] = work.install
    run: Callable[[work.Command, Callable[[str], None]], work.CommandEnd] = work.run
    at_step: Callable[[str, str], None] = lambda name, moment: None


class Work(NamedTuple):
    """What a step gets: the file, the places, the state of the day and of the days before it (the latest first), how
    many CPU seconds the step may take, and the tools.
    """

    fleet: Fleet
    places: Places
    day: Day
    earlier: tuple[Day, ...]
    cpu_seconds: float
    tools: Tools

    def of_day(self, name: str) -> Path:
        """A file of this day."""
        return self.places.of_day(self.day.day, name)

    def opened(self) -> Database:
        """The database, which is made if there is none."""
        return Database.open(self.places.db)

    def wheels(self) -> tuple[list[Wheel], tuple[str, ...]]:
        """The wheels that the file selects, oldest first, one of each version; and a line for each unfit name."""
        with refusals() as unfit:
            by_version = {one.torch: one for one in wheels_in(self.places.wheels, "")}
        selected = sorted(filter(self.fleet.selects, by_version), key=version_key)
        return [by_version[version] for version in selected], tuple(unfit)

    def needed(self) -> set[str]:
        """The versions whose environments stay: those of the day, or of the last one before as long as it has none."""
        last = next((one for one in (self.day, *self.earlier) if one.torch), self.day)
        return {last.torch, last.base}

    def interpreter(self, version: str) -> Interpreter:
        """The interpreter with this torch. Raises `UnsupportedError` if none can be made, and `InputError`."""
        environments = self.places.environments
        made = work.ready(environments)
        if version not in made:
            work.make_room(environments, self.fleet.keep.environments - 1, self.needed())
            self.tools.live.say(f"making an environment with torch {version}")
        wheels = [] if version in made else self.wheels()[0]
        return work.environment_of(version, environments, wheels, self._install)

    def _install(self, wheel: Wheel, folder: Path) -> Interpreter:
        return self.tools.install(wheel, folder, self.fleet.index)


class Outcome(NamedTuple):
    """How a step has ended, and the fields of the day that it has set. `lines` are added to those of the day."""

    note: str = ""
    status: Status = "done"
    cpu_seconds: float = 0.0
    lines: tuple[str, ...] = ()
    fields: Mapping[str, Any] = {}


class Step(NamedTuple):
    """A step: what it does, its share of what is left of the budget if it has one, and why a day may skip it."""

    name: str
    run: Callable[[Work], Outcome]
    share: float | None = None
    skips: Callable[[Day], str] = lambda day: ""

    def skipped_by(self, day: Day) -> str:
        """Why a day skips it, empty if it does not."""
        return "its share is 0" if self.share == 0 else self.skips(day)


def _without_torch(day: Day) -> str:
    return "" if day.torch else "no version of torch"


def _without_base(day: Day) -> str:
    return _without_torch(day) or ("" if day.base else "no other version to compare with")


def _known_version(day: Day) -> str:
    return _without_base(day) or ("" if day.is_first else f"torch {day.torch} is that of the day before")


def steps_of(fleet: Fleet) -> tuple[Step, ...]:
    """The steps of a day, in order."""
    shares, profiles = fleet.shares, {name: share for name, share in fleet.profiles.items() if share}
    whole = sum(profiles.values())
    fuzz = (
        Step(f"fuzz {name}", partial(_fuzz, name), shares.fuzz * share / whole, _without_torch)
        for name, share in profiles.items()
    )
    return (
        Step("wheels", _wheels),
        Step("environments", _environments),
        Step("sweep", _sweep, shares.sweep, _without_torch),
        *fuzz,
        Step("diff", _diff, shares.diff, _known_version),
        Step("replay", _replay, shares.replay, _without_torch),
        Step("bisect", _bisect, shares.bisect, _without_base),
        Step("tidy", _tidy),
        Step("report", _report),
        Step(LAST_STEP, _hook, skips=lambda day: "" if fleet.hook else "the file has none"),
    )


def limit_of(step: Step, steps: tuple[Step, ...], day: Day, fleet: Fleet) -> float:
    """The CPU seconds of a step: its part of what the steps before it have left."""
    ahead = [one for one in steps if one.name not in day.steps and not one.skipped_by(day)]
    shares = sum(one.share or 0.0 for one in ahead)
    left = fleet.cpu_seconds - sum(one.cpu_seconds for one in day.steps.values())
    return max(LEAST_SECONDS, left * step.share / shares) if step.share and shares else 0.0


# The state


def read_days(places: Places) -> tuple[Day, ...]:
    """The days that are kept, the latest first. Raises `InputError`."""
    folders = reversed(entries(places.days)) if is_there(places.days) else iter(())
    paths = (folder / "day.json" for folder in folders)
    return tuple(parse_json(read_bytes(path), Day, path, "the state of a day") for path in paths if is_file(path))


def _save(places: Places, day: Day) -> None:
    write_atomically(places.of_day(day.day), json_text(day, indent=True) + "\n")


def due_days(places: Places, today: date) -> tuple[str, ...]:
    """The days to run: the last one if it has not ended, then today. None if today has ended. Raises `InputError`."""
    name, last = today.isoformat(), next(iter(read_days(places)), None)
    if last is None or last.day == name:
        return () if last is not None and last.is_over else (name,)
    if name < last.day:
        raise InputError(f"--day: found {name}, expected {last.day}, which is the last one, or a later day")
    return (name,) if last.is_over else (last.day, name)


def run_day(fleet: Fleet, places: Places, name: str, now: Callable[[], datetime], tools: Tools) -> Day:
    """Run the steps of a day that have not ended. The state after them."""
    days = {one.day: one for one in read_days(places)}
    earlier = tuple(one for one in days.values() if one.day < name)
    day = days.get(name) or Day(day=name, begun=stamp(now()))
    steps = steps_of(fleet)
    for step in steps:
        if step.name in day.steps:
            continue
        day = replace(day, tries=day.tries | {step.name: day.tries.get(step.name, 0) + 1})
        _save(places, day)
        tools.at_step(step.name, "begins")
        if skipped := step.skipped_by(day):
            outcome = Outcome(skipped, "skipped")
        elif day.tries[step.name] > MOST_TRIES:
            note = f"begun {MOST_TRIES} times, and the service was ended each time"
            outcome = Outcome(note, "failed", lines=(f"{step.name}: {note}",))
        else:
            limit = limit_of(step, steps, day, fleet)
            given = Work(fleet, places, day, earlier, limit, tools)
            try:
                outcome = step.run(given)
            except (DdefuzzError, OSError) as error:
                outcome = Outcome(str(error), "failed", lines=(f"{step.name}: {error}",))
            except KeyboardInterrupt:
                if step.name != LAST_STEP:  # the hook is begun only once
                    _save(places, replace(day, tries=day.tries | {step.name: day.tries[step.name] - 1}))
                raise
        tools.at_step(step.name, "ends")
        end = StepEnd(outcome.status, outcome.note, outcome.cpu_seconds)
        day = replace(day, steps=day.steps | {step.name: end}, lines=(*day.lines, *outcome.lines), **outcome.fields)
        _save(places, day)
        spent = f", {end.cpu_seconds:.0f} CPU s" if end.cpu_seconds else ""
        tools.live.say(f"{step.name}: {end.status}{spent}{': ' if end.note else ''}{end.note}")
    return day


# The steps


def _wheels(given: Work) -> Outcome:
    lines = [*_downloaded(given)] if given.fleet.index else []
    try:
        wheels, unfit = given.wheels()
    except InputError as error:
        return Outcome(str(error), "failed", lines=(*lines, f"wheels: {error}"))
    versions = tuple(one.torch for one in wheels)
    before = {version for day in given.earlier for version in day.wheels}
    new = tuple(version for version in versions if version not in before)
    note = f"{counted(len(versions), 'version')}, new: {', '.join(new) or 'none'}"
    return Outcome(note, lines=(*lines, *unfit), fields={"wheels": versions, "new": new})


def _downloaded(given: Work) -> Iterator[str]:
    """Download the newest wheel that the file selects. Says why none came."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [*pip_places(given.fleet.index), *["--pre"] * given.fleet.pre, "--dest", str(given.places.wheels)]
    words = (*command, f"torch{given.fleet.versions}")
    variables = _variables(given) | (ISOLATED if "--isolated" in words else {})
    limited = work.Command(words, given.of_day("wheels.log"), DOWNLOAD_SECONDS, variables)
    ended = given.tools.run(limited, given.tools.live.update)
    if fault := work.fault_of(ended):
        yield f"index: pip download ended with {fault}"


def _environments(given: Work) -> Outcome:
    """The newest version that can be used is that of the day. It is compared with the last other one before."""
    made = work.ready(given.places.environments)
    versions = sorted({*given.day.wheels, *filter(given.fleet.selects, made)}, key=version_key)
    lines: list[str] = []

    def usable(version: str) -> Interpreter | None:
        try:
            return given.interpreter(version)
        except (DdefuzzError, OSError) as error:
            lines.append(str(error))
            return None

    torches: dict[str, str] = {}
    for version in versions[: -MOST_TRIED - 1 : -1]:
        if interpreter := usable(version):
            torches[version] = interpreter.torch
            break
    if not torches:
        lines.append("found no version of torch that can be used, expected a wheel that can be imported")
        raise UnsupportedError("; ".join(lines))
    (torch,) = torches
    before = next((day.torch for day in given.earlier if day.torch not in ("", torch)), "")
    given = given._replace(day=replace(given.day, torch=torch))
    base = before if before and (interpreter := usable(before)) else ""
    if base and interpreter:
        torches[base] = interpreter.torch
    is_first = all(day.torch != torch for day in given.earlier)
    fields = {"torch": torch, "base": base, "torches": torches, "is_first": is_first}
    return Outcome(f"torch {torch}{f', compared with {base}' * bool(base)}", lines=tuple(lines), fields=fields)


def _variables(given: Work) -> dict[str, str]:
    """What the commands of the service have in their environment. Others can read the words of a command."""
    return {"DDEFUZZ_DB": given.places.db.for_sqlalchemy().render_as_string(hide_password=False)}


def _command(given: Work, name: str, words: list[str], *codes: int) -> Outcome:
    """Run a command of the ddefuzz of the day's environment, which writes a document. It is NAME.json when it is known
    how the command has ended: one that was interrupted with the service writes its document, too.
    """
    document, part = given.of_day(f"{name}.json"), given.of_day(f"{name}.part.json")
    if is_file(document):
        return Outcome("it had ended before the service did")
    words = [*words, "--jobs", str(given.fleet.jobs), "--output", f"json={part}"]
    python = given.interpreter(given.day.torch).python
    part.unlink(missing_ok=True)  # of a try that was killed
    given.tools.live.say(f"$ ddefuzz {shell_words(words)}")
    command = work.Command(
        [python, "-P", "-m", "ddefuzz", *words], given.of_day(f"{name}.log"), given.cpu_seconds, _variables(given)
    )
    ended = given.tools.run(command, lambda line: given.tools.live.update(f"{name}: {line}"))
    fault, is_whole = work.fault_of(ended, *codes), is_file(part)
    if not fault and not is_whole and not ended.is_cut and ended.code != EXIT_NOTHING_RAN:
        fault = f"no document: {ended.said}"  # Python itself ends with 1, too
    lines = (f"{name}: {fault}",) if fault else ()
    if is_whole:  # with a fault, it has left something out
        part.replace(document)
    is_broken = fault and (not is_whole or ended.code < 0)
    status: Status = "failed" if is_broken else "cut" if ended.is_cut else "done"
    return Outcome(fault, status, ended.cpu_seconds, lines)


def _sweep(given: Work) -> Outcome:
    return _command(given, "sweep", ["sweep", "--db", str(given.places.db), "--fail-on", "never"])


def _fuzz(profile: str, given: Work) -> Outcome:
    """A campaign with a seed of the day. One that was interrupted with the service goes on with what is left for it."""
    seed, seconds = seed_of(given.day.day), given.cpu_seconds
    with given.opened() as database:
        known = database.read(lambda session: campaigns(session, MOST_CAMPAIGNS))
        same = [one for one in campaigns_of(given.day, known) if one.profile == profile]
        points = database.read(lambda session: progress(session, [one.id for one in same], 1))
        latest = next(iter(database.unfinished()), None)
    spent = max((at.cpu_seconds for counts in points.values() for at in counts), default=0.0)
    if any(one.finished for one in same):
        return Outcome("it had ended before the service did", cpu_seconds=spent)
    resumes = latest is not None and latest in same
    budget = max(LEAST_SECONDS, seconds - spent) if resumes else seconds
    words = ["run", "--db", str(given.places.db), "--budget", f"{budget:.0f}cpu", "--fail-on", "never"]
    words += ["--resume"] if resumes else ["--seed", str(seed), "--profile", profile]
    # Its own budget ends it. The limit is for one that hangs.
    ended = _command(
        given._replace(cpu_seconds=2 * seconds + work.SPARE_SECONDS), f"fuzz-{profile}", words, EXIT_NOTHING_RAN
    )
    return ended._replace(cpu_seconds=ended.cpu_seconds + spent if resumes else ended.cpu_seconds)


def _diff(given: Work) -> Outcome:
    sides = [f"{version}={given.interpreter(version).python}" for version in (given.day.base, given.day.torch)]
    words = ["diff", *sides, "--budget", "20000x", "--seed", str(seed_of(given.day.day))]
    return _command(given, "diff", words, EXIT_FOUND, EXIT_NOTHING_RAN)


def _replay(given: Work) -> Outcome:
    """Run all findings under both versions. Those that are gone are closed, and those that are back are opened."""
    with given.opened() as database:
        if not database.findings():
            return Outcome("the database has no finding")
    versions = [version for version in (given.day.base, given.day.torch) if version]
    pythons = [w for version in versions for w in ("--python", f"{version}={given.interpreter(version).python}")]
    words = ["matrix", "--db", str(given.places.db), "--close", *pythons]
    return _command(given, "replay", words, EXIT_FOUND)


def _bisect(given: Work) -> Outcome:
    """Search between the versions for the first one in which a finding does what it does today."""
    day, firsts, lines = given.day, dict(given.day.firsts), list[str]()
    low, high = sorted((day.base, day.torch), key=version_key)
    between = [one.torch for one in given.wheels()[0] if version_key(low) < version_key(one.torch) < version_key(high)]
    versions = [day.base, *(between if low == day.base else reversed(between)), day.torch]
    began, unjudged = _children_seconds(), set[str]()
    with given.opened() as database:
        rows = [row for row in changes(database, day) if row.old and row.new and row.old != row.new]
        findings = {one.id: one for one in database.findings()}
        done = 0

        def cell(name: str, at: int) -> Cell:
            version = versions[at]
            if version in unjudged:
                return Cell("not judged", 0, 0)
            try:
                interpreter = given.interpreter(version)
                (line,) = matrix([interpreter], [findings[name]], [], database, Settings(), given.tools.live)
                return line.cells[interpreter.name]
            except UnsupportedError as error:
                unjudged.add(version)
                lines.append(f"bisect: {error}")
                return Cell("not judged", 0, 0)

        for row in rows:
            if _children_seconds() - began > given.cpu_seconds:
                break
            result = bisected(row.id, versions, partial(cell, row.id))
            if result.before is not None and result.after is not None:
                firsts[row.id] = FirstVersion(result.before, result.after)
            done += 1
    note = f"{done} of {counted(len(rows), 'finding')}, {counted(len(between), 'version')} between"
    status: Status = "done" if done == len(rows) else "cut"
    return Outcome(note, status, round(_children_seconds() - began, 1), tuple(lines), {"firsts": firsts})


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _tidy(given: Work) -> Outcome:
    """Remove what the file does not keep. The counts of the days stay in the history."""
    keep = given.fleet.keep
    environments = work.make_room(given.places.environments, keep.environments, given.needed())
    removed, lines = [f"environment {one}" for one in environments], []
    for old in given.earlier[keep.days - 1 :]:
        shutil.rmtree(given.places.days / old.day, ignore_errors=True)
        removed.append(f"day {old.day}")
    with suppress(InputError):
        for wheel in given.wheels()[0][: -keep.wheels] if keep.wheels else ():
            try:
                wheel.path.unlink(missing_ok=True)
                removed.append(f"wheel {wheel.torch}")
            except OSError as error:
                lines.append(f"tidy: {wheel.path}: cannot be removed: {error.strerror}")
    return Outcome(", ".join(removed), lines=tuple(lines), fields={"removed": tuple(removed)})


def _report(given: Work) -> Outcome:
    path, fault, day = given.places.history, "", given.day
    try:
        report = report_of(day, given.places)
    except DdefuzzError as error:
        fault = str(error)
        report = replace(state_of(replace(day, lines=(*day.lines, f"report: {fault}"))), is_counted=False)
    try:
        others = [one for one in read_history(path) if one.day != report.day]
    except InputError as error:  # the history stays as it is, for a person to mend
        others, fault = [], fault or str(error)
    history = sorted([*others, *[report.counts] * report.is_counted], key=lambda one: one.day)
    write_atomically(given.of_day("report.json"), json_text(report, indent=True) + "\n")
    write_atomically(given.of_day("report.md"), markdown(view(report, history)))
    write_atomically(given.places.feed, feed(history, given.places, given.fleet.address))
    if fault:
        return Outcome(fault, "failed", lines=(f"report: {fault}",))
    write_atomically(path, "".join(json_text(one) + "\n" for one in history))
    return Outcome(str(given.of_day("report.md")))


def _hook(given: Work) -> Outcome:
    """Run the hook once: a mail that may not have gone out is better than two."""
    if given.day.tries["hook"] > 1:
        note = "it was begun before the service was ended, and is not run again"
        return Outcome(note, "failed", lines=(f"hook: {note}",))
    paths = [str(given.of_day("report.md")), str(given.of_day("report.json")), str(given.places.feed)]
    words, log = (*given.fleet.hook, *paths), given.of_day("hook.log")
    command = work.Command(words, log, HOOK_SECONDS, _variables(given), given.places.home)
    try:
        fault = work.fault_of(given.tools.run(command, given.tools.live.update))
    except OSError as error:
        fault = error.strerror or str(error)
    return Outcome(fault, "failed", lines=(f"hook: {fault}",)) if fault else Outcome()
