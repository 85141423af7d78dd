"""`ddefuzz run`: a campaign, with its progress on stderr and its summary on stdout."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec
import rich_click as click

from ddefuzz.campaign.budget import Budget, parse_budget, parse_shard
from ddefuzz.campaign.campaign import Plan
from ddefuzz.campaign.launch import plan_of, resume, start
from ddefuzz.campaign.summary import BUG_CAUSES, Summary
from ddefuzz.cli.findings import db_option
from ddefuzz.cli.jobs import jobs_option
from ddefuzz.cli.output import Writer, deliver, output_options
from ddefuzz.cli.progress import Progress, stop_on_interrupt
from ddefuzz.cli.run_page import summary_page
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, InputError, NothingRanError
from ddefuzz.execute.protocol import STAGES, Mechanism, Semantics, Stage
from ddefuzz.findings.database import Database
from ddefuzz.generate.profiles import PROFILES

FailOn: TypeAlias = Literal["new", "regression", "any", "never"]

DEFAULT_STAGES: tuple[Stage, ...] = ("export", "export-strict", "compile")


@click.command("run")
@click.option("--budget", metavar="TIME|CASESx", help="90s, 10m, 1h30m, or a number of cases: 1000x. Default: 60s.")
@click.option("--max-examples", type=click.IntRange(min=1), metavar="N", help="The same as --budget Nx.")
@click.option("--seed", type=click.IntRange(min=0), help="Which cases are drawn. Default: a new one, which is printed.")
@jobs_option
@click.option("--profile", type=click.Choice(sorted(PROFILES)), default="default", show_default=True)
@click.option(
    "--stage", "stages", type=click.Choice(STAGES), multiple=True, help="Can be repeated. Default: all three captures."
)
@click.option(
    "--semantics",
    "mechanisms",
    type=click.Choice(get_args(Mechanism)),
    multiple=True,
    help="Can be repeated. Default: explicit, with its verdict against size-oblivious.",
)
@click.option("--shard", default="1/1", metavar="I/N", help="Do the I-th of N parts of the cases.")
@click.option("--resume", "resuming", is_flag=True, help="Go on with the latest campaign that was cut short.")
@click.option("--minimize/--no-minimize", default=True, show_default=True, help="Minimize and confirm new findings.")
@click.option(
    "--fail-on",
    type=click.Choice(get_args(FailOn)),
    default="new",
    show_default=True,
    help="What makes the exit code 1: a finding that the database did not have, one where only explicit "
    "semantics fail, any at all, or none.",
)
@db_option
@output_options("text", "json")
def command(
    budget: str | None,
    max_examples: int | None,
    seed: int | None,
    jobs: int,
    profile: str,
    stages: tuple[Stage, ...],
    mechanisms: tuple[Mechanism, ...],
    shard: str,
    resuming: bool,
    minimize: bool,
    fail_on: FailOn,
    db: str,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Run a campaign: draw programs, capture them, judge, minimize and remember what fails."""
    plan = Plan(
        profile=profile,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        budget=_budget(budget, max_examples),
        jobs=jobs,
        stages=tuple(stage for stage in STAGES if stage in (stages or DEFAULT_STAGES)),
        semantics=tuple(Semantics(name) for name in mechanisms or ("explicit",)),
        shard=parse_shard(shard),
        minimize=minimize,
    )
    with Database.open(db) as database:
        if resuming:
            entry = next(iter(database.unfinished()), None)
            if entry is None:
                raise InputError(f"--resume: found no campaign in {database.url} that was cut short, expected one")
            plan = plan_of(entry, plan)
        with Progress(plan, _replay_command(plan, db)) as progress, stop_on_interrupt() as stopped:
            if resuming and entry is not None:
                summary = resume(plan, entry, database, progress, stopped)
            else:
                summary = start(plan, database, progress, stopped)
        regressed = {
            finding.id for finding in database.findings() if "regressed" in finding.verdicts.values()
        }  # as the database knows them now
    deliver(_writers(summary, _replay_command(plan, db)), format_, outputs)
    if summary.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if not summary.cases:
        raise NothingRanError(f"no case was done within {plan.budget}: importing torch alone takes seconds")
    if fails(summary, regressed, fail_on):
        raise SystemExit(EXIT_FOUND)


def fails(summary: Summary, regressed: set[str], fail_on: FailOn) -> bool:
    """Whether what a campaign found is what `--fail-on` names; failures of the programs' own code never are."""
    bugs = [seen for seen in summary.findings if seen.cause in BUG_CAUSES]
    match fail_on:
        case "new":
            return any(seen.is_new for seen in bugs)
        case "regression":
            return any(seen.finding in regressed for seen in bugs)
        case "any":
            return bool(bugs)
        case "never":
            return False


def _writers(summary: Summary, replay: str) -> dict[str, Writer]:
    document = msgspec.json.encode(summary).decode() + "\n"
    return {"text": lambda page: summary_page(summary, replay, page), "json": lambda _page: document}


def _budget(budget: str | None, max_examples: int | None) -> Budget:
    if budget is not None and max_examples is not None:
        raise InputError(f"found both --budget {budget} and --max-examples {max_examples}, expected one of them")
    if max_examples is not None:
        return Budget(cases=max_examples)
    return parse_budget(budget or "60s")


def _replay_command(plan: Plan, db: str) -> str:
    """The command that draws the same cases again."""
    words = ["ddefuzz", "run", "--seed", str(plan.seed), "--budget", str(plan.budget), "--profile", plan.profile]
    for stage in plan.stages if plan.stages != DEFAULT_STAGES else ():
        words += ["--stage", stage]
    for semantics in plan.semantics if plan.semantics != (Semantics(),) else ():
        words += ["--semantics", semantics.mechanism]
    if plan.shard.total > 1:
        words += ["--shard", str(plan.shard)]
    return shlex.join([*words, "--db", db])
