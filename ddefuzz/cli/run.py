"""`ddefuzz run`: run a fuzzing campaign, with progress on stderr and a summary on stdout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import gettempdir
from typing import Literal, TypeAlias

import rich_click as click
from click import get_current_context
from click.core import ParameterSource
from rich.text import Text

from ddefuzz.campaign.campaign import Event, Listener
from ddefuzz.campaign.guide import ROUND, WHOLE, Shard
from ddefuzz.campaign.launch import new_plan, options_of, plan_of, resume, start, to_resume
from ddefuzz.campaign.page import (
    progress_line,
    run_report,
    summary_view,
)
from ddefuzz.campaign.plan import Plan, parse_shard
from ddefuzz.campaign.summary import Summary, Tally
from ddefuzz.cli.command import Output, click_command, formats, option, typed_words
from ddefuzz.cli.options import (
    ADDRESS,
    DB,
    ENGINE,
    IN_STAGES,
    JOBS,
    SEEDS,
    engine_of,
    oracles_option,
    profile_option,
    semantics_option,
)
from ddefuzz.cli.output import LiveLine, current_invocation, deliver, plain, stop_on_interrupt, writers_of
from ddefuzz.cli.streams import say
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, InputError, NothingRanError
from ddefuzz.execute.engine import EngineName
from ddefuzz.execute.protocol import Stage
from ddefuzz.execute.scratch import remove_abandoned
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import Now, decided, known_now, read_known
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.generate.profiles import PROFILES
from ddefuzz.instrument.events import Mechanism
from ddefuzz.show.blocks import Invocation, counted
from ddefuzz.show.table import NAMES as NAMES_OF_FORMATS


@contextmanager
def campaign_progress(plan: Plan, replay: str) -> Iterator[Listener]:
    """A listener for a campaign's events. `replay` is the command that draws the same cases again."""
    began = time.monotonic()
    started = "the workers of each node" if plan.engine.name == "ray" else counted(plan.jobs, "worker")
    with LiveLine(f"starting {started} (importing torch takes some seconds)") as live:
        live.say(Text.assemble(("$", "bold"), " ", plain(replay)))

        def listen(event: Event, tally: Tally) -> None:
            seconds = time.monotonic() - began
            match event:
                case "found", name if (seen := tally.findings[name]).is_new and seen.counts:
                    site = plain(f"{seconds:6.1f}s  new  {seen.cause:<12}  {seen.signature.site}  ")
                    live.say(site + plain(name, style="dim"))
                case "lost", line:
                    live.say(f"{seconds:6.1f}s  {line}")
            live.update(progress_line(plan, tally, seconds))

        yield listen


FailOn: TypeAlias = Literal["new", "regression", "any", "never"]


@click_command("run")
def command(
    budget: str = option(
        "When to stop: after a time (90s, 10m, 1h30m), a number of cases (1000x) or CPU seconds of workers (600cpu).",
        default="60s",
        metavar="TIME|Nx|Ncpu",
    ),
    max_examples: int | None = option(
        "Stop after N cases. The same as --budget Nx.", type_=click.IntRange(min=1), metavar="N"
    ),
    seed: int | None = option(
        "Seed of the generator. The same seed gives the same cases. Default: a new seed, which is printed.",
        type_=SEEDS,
        metavar="N",
    ),
    jobs: int = JOBS,
    engine: EngineName = ENGINE,
    address: str = ADDRESS,
    profile: str = profile_option(tuple(sorted(PROFILES))),
    stages: tuple[Stage, ...] = IN_STAGES,
    in_turn: bool = option(
        "Capture each case in one stage, in turn, or in all stages.", "--in-turn/--every-stage", default=True
    ),
    screen: bool = option(
        "Run each case under FakeTensorMode first. Capture it only if it fails there with a new signature. Of all "
        "other cases, capture every 16th. --no-screen captures all cases.",
        "--screen/--no-screen",
        default=True,
    ),
    guided: bool = option(
        "Choose cases by what earlier ones reached: single ops first, then PyTorch's samples of ops, and mutations of "
        "programs that reached a new guard site. --uniform generates all cases independently, and so does --shard "
        "without --share.",
        "--guided/--uniform",
        default=True,
    ),
    round_size: int = option(
        "Number of cases that a guided campaign chooses at a time. With more workers than that, some are idle. Another "
        "number gives other cases.",
        "--round",
        default=ROUND,
        type_=click.IntRange(min=1),
        metavar="N",
    ),
    oracles: tuple[str, ...] = oracles_option("capture is always among them."),
    semantics: tuple[Mechanism, ...] = semantics_option(" Verdicts always compare explicit with size-oblivious."),
    shard: str = option("Run only the I-th of N parts of the cases.", default="1/1", metavar="I/N"),
    share: bool = option(
        "Tell the campaigns of the other shards what this one learns, and learn from them. They need the same --db and "
        "--seed, and run at the same time. The first that sees a finding minimizes it.",
        default=False,
    ),
    resuming: bool = option(
        "Continue the latest campaign that was interrupted, with its options. Only its budget can be another. With "
        "--shard it is the latest of that shard.",
        "--resume",
    ),
    minimize: bool = option(
        "Minimize new findings, and confirm them in fresh processes.", "--minimize/--no-minimize", default=True
    ),
    fail_on: FailOn = option(
        "Which findings make the exit code 1: new (neither the database nor --known had it), regression (explicit "
        "semantics fail and size-oblivious ones do not), any or never. Only findings about PyTorch count: "
        "docs/causes.md lists these causes.",
        default="new",
        metavar="WHAT",
    ),
    known_files: tuple[Path, ...] = option(
        "A list of known findings, such as findings/known.toml: they do not count as new. A decision in it, or in the "
        "database, that has expired does not hold.",
        "--known",
        metavar="FILE",
    ),
    db: DatabaseUrl = DB,
    output: Output = formats("text", *NAMES_OF_FORMATS),
) -> None:
    """Run a fuzzing campaign: generate programs, capture them, and save what fails.

    Failures with the same signature are one finding. New findings are minimized and confirmed.

    Progress goes to stderr. The summary goes to stdout; its last line is the command that generates the same cases
    again.

    \b
    Examples:
      ddefuzz run --budget 10m --seed 1
      ddefuzz run --budget 600cpu --stage export --stage aot --stage inductor
      ddefuzz run --resume
    """
    context = get_current_context()
    where, jobs = engine_of(engine, address, jobs)
    if share and not resuming:
        _check_share(parse_shard(shard), seed, guided=guided)
    plan = new_plan(
        profile=profile,
        seed=seed,
        budget=_budget(context, budget, max_examples),
        jobs=jobs,
        stages=stages,
        semantics=semantics,
        shard=shard,
        minimize=minimize,
        in_turn=in_turn,
        screen=screen,
        oracles=oracles,
        guided=guided,
        round_size=round_size,
        share=share,
    )
    plan = replace(plan, engine=where)
    listed = {name: one for file in known_files for name, one in read_known(file).items()}
    with Database.open(db) as database:
        if resuming:
            entry = to_resume(database, plan, _typed(context))
            if entry is None:
                remove_abandoned(Path(gettempdir()))  # the campaign may have been killed before it was entered
                raise InputError(f"--resume: found no interrupted campaign in {database.url}, expected one")
            plan = plan_of(entry, plan, _typed(context))
        torch, today = version("torch"), datetime.now(UTC).date()
        expired = known_now(decided(database.findings()) | listed, torch, today).expired
        plan = replace(plan, known=Now(known_now(listed, torch, today).known, expired))
        replay = _replay_command(plan, current_invocation())
        if passed := _passed(plan.known):
            say(passed, kept="\n")  # none is cut
        with campaign_progress(plan, replay) as progress, stop_on_interrupt() as stopped:
            if resuming and entry is not None:
                summary = resume(plan, entry, database, progress, stopped)
            else:
                summary = start(plan, database, progress, stopped)
        findings = database.findings()
    regressed = {finding.id for finding in findings if "regressed" in finding.verdicts.values()}
    view = summary_view(summary, replay, current_invocation())
    deliver(writers_of(run_report(summary, findings), view), output, {EXIT_INTERRUPTED: summary.interrupted})
    if not summary.cases and not summary.findings:
        raise NothingRanError(
            f"no case ended within {plan.budget}, expected a longer --budget: importing torch alone takes seconds"
        )
    if fails(summary, regressed, fail_on):
        raise SystemExit(EXIT_FOUND)


def _check_share(shard: Shard, seed: int | None, *, guided: bool) -> None:
    """Raise `InputError` if --share lacks what the drivers of one campaign have in common."""
    if shard.total == 1:
        raise InputError(f"--share: found --shard {shard}, expected one of several shards, such as 1/4")
    if seed is None:
        raise InputError("--share: found no --seed, expected the same seed for all shards")
    if not guided:
        raise InputError("--share: found --uniform, expected a guided campaign: a uniform one learns nothing")


def _typed(context: click.Context) -> set[str]:
    """The fields of a plan that were given. A budget that is set elsewhere is one too."""
    names = {"max_examples": "budget"}
    given = {name: context.get_parameter_source(name) for name in context.params}
    return {
        names.get(name, name)
        for name, source in given.items()
        if source is ParameterSource.COMMANDLINE
        or (names.get(name, name) == "budget" and source is not ParameterSource.DEFAULT)
    }


def _passed(known: Now) -> str:
    """A line about decisions whose date has passed, also those on findings that the campaign may not meet."""
    names = ", ".join(sorted(known.expired))
    return f"the date of the decision on these findings has passed: {names}" if names else ""


def fails(summary: Summary, regressed: set[str], fail_on: FailOn) -> bool:
    """Whether a campaign found what `--fail-on` names. Only findings that `CampaignFinding.counts` selects count."""
    bugs = [seen for seen in summary.findings if seen.counts]
    match fail_on:
        case "new":
            return any(seen.is_new for seen in bugs)
        case "regression":
            return any(seen.finding in regressed for seen in bugs)
        case "any":
            return bool(bugs)
        case "never":
            return False


def _budget(context: click.Context, budget: str, max_examples: int | None) -> str:
    """The budget. A typed option overrides one that is set elsewhere."""
    if max_examples is not None and context.get_parameter_source("budget") is ParameterSource.COMMANDLINE:
        raise InputError(f"found both --budget {budget} and --max-examples {max_examples}, expected one of them")
    return budget if max_examples is None else f"{max_examples}x"


def _replay_command(plan: Plan, call: Invocation) -> str:
    """The command that draws the same cases again."""
    options = options_of(plan) | {"guided": plan.guided or plan.shard != WHOLE}
    del options["budget"], options["minimize"]
    always = ("--seed", str(plan.seed), "--budget", str(plan.budget), "--profile", plan.profile)
    return call.command("run", *always, *typed_words(command, options))
