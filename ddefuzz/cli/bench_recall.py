"""`ddefuzz bench recall`: the share of planted faults that a campaign finds and names."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import msgspec
import rich_click as click
from rich.console import Group

from ddefuzz.bench.called import Programs
from ddefuzz.bench.kept import Kept
from ddefuzz.bench.planted import PLANTS, Planted, Recall, draw, what_of
from ddefuzz.bench.recall import Planting, healthy_campaign, measure_recall
from ddefuzz.campaign.plan import Plan, parse_budget
from ddefuzz.cli.layout import Detailed, table
from ddefuzz.cli.options import db_option, jobs_option, stages_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.cli.run_progress import campaign_progress
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.execute.pool import Lost, Pool, lost_observation
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, STAGES, Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles.program import CAPTURE, Trial, Tried, judge_run, tried_of
from ddefuzz.oracles.table import BY_DEFAULT

RUN_SECONDS = 60.0

SCHEMA = "ddefuzz.bench.recall/3"


@click.command("recall")
@click.option(
    "--oracle",
    "oracles",
    type=click.Choice(tuple(PLANTS)),
    metavar="NAME",
    multiple=True,
    default=("capture",),
    show_default=True,
    help="Which faults: capture (the guard raises instead of taking its fallback), agreement (the fallback answer "
    "is inverted), specialization (an unbacked symbol becomes a number or another symbol), assertions (a run-time "
    "assertion is added or dropped), mechanism (the fallback answer is inverted in explicit semantics only). Can be "
    "repeated.",
)
@click.option(
    "--sites", type=click.IntRange(1), metavar="K", default=50, show_default=True, help="Number of faults to plant."
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="S", default=0, show_default=True, help="Seed of the choice of sites."
)
@click.option(
    "--budget",
    metavar="TIME|Nx|Ncpu",
    default="120cpu",
    show_default=True,
    help="Budget of the campaign, as for `ddefuzz run`.",
)
@click.option(
    "--campaign-seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the campaign. Use one that no campaign of the database had. Default: 1000 + S.",
)
@click.option(
    "--tries",
    type=click.IntRange(1),
    metavar="N",
    default=16,
    show_default=True,
    help="Run at most N of the campaign's cases with each fault. Not for capture, where only the first case counts.",
)
@click.option(
    "--keep",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep the cases of the campaign and each judged fault in FOLDER, so that the command can be interrupted. What "
    "FOLDER has is not run again: with a campaign in it, also an interrupted one, --budget, --campaign-seed and "
    "--guided have no effect.",
)
@click.option("--guided/--uniform", default=True, show_default=True, help="As for `ddefuzz run`.")
@click.option(
    "--torch",
    "version",
    metavar="VERSION",
    help="Choose among the sites of this version of torch, if the database has several.",
)
@stages_option
@jobs_option
@db_option
@output_options("text", "json")
def command(
    oracles: tuple[str, ...],
    sites: int,
    seed: int,
    budget: str,
    campaign_seed: int | None,
    tries: int,
    folder: Path | None,
    guided: bool,
    version: str | None,
    stages: tuple[Stage, ...],
    jobs: int,
    db: DatabaseUrl,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Plant faults at known guard sites, and measure how many a campaign finds and attributes correctly.

    The faults are planted at K sites of the database, one at a time. One campaign is run without faults. Its cases that
    reach a fault's site are then run again with the fault, in order. A fault that changes nothing in any of these cases
    is counted separately. A failure counts only if neither the program without the fault shows it nor the database has
    it as a finding. The campaign's findings are not saved.
    """
    with Database.open(db, create=False) as database:
        known = database.sites(_version(database, version))
        signatures = frozenset(one.signature for one in database.findings())
    planting = Planting(known, sites, seed, tries)
    for oracle in oracles:
        draw(oracle, known, (), sites, seed)  # before the campaign, because there may be too few
    calling = oracles != CAPTURE
    usable = tuple(stage for stage in STAGES if stage in stages and (not calling or stage in CHEAP_TO_CALL))
    if not usable:
        raise InputError(f"--stage: found {', '.join(stages)}, expected one of {', '.join(CHEAP_TO_CALL)}")
    plan = Plan(
        profile="default",
        seed=1000 + seed if campaign_seed is None else campaign_seed,
        budget=parse_budget(budget),
        jobs=jobs,
        stages=usable,
        semantics=(EXPLICIT,),
        minimize=False,
        in_turn=True,
        screen=True,
        guided=guided,
        oracles=BY_DEFAULT if calling else CAPTURE,
    )
    chosen = " ".join(f"--oracle {oracle}" for oracle in oracles)
    said = f"ddefuzz bench recall {chosen} --sites {sites} --seed {seed} --budget {plan.budget} --db {db}"
    with (
        stop_on_interrupt() as stopped,
        tempfile.TemporaryDirectory(prefix="bench-", dir=scratch_folder()) as scratch,
    ):
        kept = Kept(folder or Path(scratch))
        survey = kept.survey()
        if survey is None:
            with (
                campaign_progress(plan, said) as progress,
                Database.open(f"sqlite:///{scratch}/recall.db") as empty,
            ):
                survey = healthy_campaign(plan, kept, empty, stopped, progress)
        with Pool(jobs) as pool, LiveLine("planting faults") as live:
            programs = Programs(lambda trial: _tried(pool, trial), signatures)
            records = [
                measure_recall(plan, oracle, planting, survey, kept, programs, stopped, live.update)
                for oracle in oracles
            ]
        interrupted = stopped()
    document = msgspec.json.encode({"schema": SCHEMA, "records": records}).decode() + "\n"
    text = partial(recall_pages, records)
    deliver({"text": text, "json": lambda _page: document}, format_, outputs)
    if interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def recall_pages(records: list[Recall], page: Page) -> str:
    """The page of each oracle."""
    return "\n".join(recall_page(record, page) for record in records)


def _tried(pool: Pool, trial: Trial) -> Tried:
    found = pool.submit(judge_run, trial, RUN_SECONDS).result()
    return tried_of(lost_observation(trial.run, found)) if isinstance(found, Lost) else found


def recall_page(record: Recall, page: Page) -> str:
    """The rates, then each fault that was not found or not named exactly, with the reason."""
    seconds = (
        f"; CPU seconds to find: median {record.cpu_seconds_median:.1f}, 90th percentile {record.cpu_seconds_90th:.1f}"
        if record.cpu_seconds_median is not None and record.cpu_seconds_90th is not None
        else ""
    )
    lines: tuple[str, ...] = (
        f"{record.planted} faults for the oracle {record.oracle}, at as many of {record.known_sites} known sites, seed "
        f"{record.seed}, torch {record.torch}; campaign of seed {record.campaign_seed}, "
        f"{record.campaign_cpu_seconds:.0f} CPU seconds of {record.budget}",
        f"{record.unreached:4}  reached by no program that is captured",
        f"{record.equivalent:4}  equivalent: the same graphs and assumptions",
        f"{record.harmless:4}  harmless: another graph, but every call ends as without the fault",
        f"{record.stopping:4}  stop a capture, and change no call",
        f"{record.changing:4}  change a result",
        f"{record.found:4}  of these found by the campaign, {_share(record.found, record.changing)}{seconds}",
        f"{record.exact:4}  of the found named exactly, {_share(record.exact, record.found)}",
        f"{sum(one.exact and one.elsewhere > 0 for one in record.faults):4}  of these also reported at another place",
    )
    if record.oracle != "capture":
        known = f"found by the campaign or by the site's known program, {_share(record.with_examples, record.changing)}"
        lines += (
            f"{record.with_examples:4}  {known}",
            f"{record.exact_with_examples:4}  of these named exactly, "
            f"{_share(record.exact_with_examples, record.with_examples)}",
        )
    head = plain("\n".join(lines))
    shown = [one for one in record.faults if _word(one)]
    if not shown:
        return rendered(Group(head), page)
    rows = [Detailed([plain(cell) for cell in _cells(record.oracle, one)]) for one in shown]
    titles = ("", "planted at", "fault", "why")
    return rendered(Group(head, "", table(titles, rows, page.width, folding=titles[1:])), page)


def _cells(oracle: str, one: Planted) -> tuple[str, ...]:
    place = f"{one.place.file}:{one.place.line}{f' {one.function}' if one.function else ''}"
    return _word(one), place, what_of(oracle, one.semantics), _why(one)


def _word(one: Planted) -> str:
    """What is wrong with the result; empty if nothing is."""
    match one.effect:
        case "unreached":
            return "not reached"
        case "stops":
            return "stops"
        case "harmless" if one.why:
            return "not found"
        case "changes":
            if one.found or one.found_by_example:
                exact = one.exact if one.found else one.exact_by_example
                return "misnamed" if not exact else "" if one.found else "by example"
            return "not found"
        case _:
            return ""


def _why(one: Planted) -> str:
    return f"{one.kind}: named {one.named}; {one.why}" if one.named else one.why


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def _version(database: Database, wanted: str | None) -> str:
    versions = database.torch_versions()
    if wanted is None and len(versions) == 1:
        return versions[0]
    if wanted in versions:
        return str(wanted)
    expected = f"one of {', '.join(versions)}" if versions else "a database with sites: `ddefuzz run` fills it"
    raise InputError(f"--torch: found {wanted or 'none'}, expected {expected} ({database.url})")
