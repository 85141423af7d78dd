"""`ddefuzz bench recall`: the share of planted faults that a campaign finds and names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import rich_click as click
from rich.console import Group

from ddefuzz.bench.recall import Planted, Recall, measure_recall
from ddefuzz.campaign.budget import parse_budget
from ddefuzz.campaign.plan import Plan
from ddefuzz.cli.layout import Detailed, table
from ddefuzz.cli.options import db_option, jobs_option, stages_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import stop_on_interrupt
from ddefuzz.cli.run_progress import campaign_progress
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import EXPLICIT, STAGES, Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database

RUN_SECONDS = 60.0


@click.command("recall")
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
    sites: int,
    seed: int,
    budget: str,
    campaign_seed: int | None,
    guided: bool,
    version: str | None,
    stages: tuple[Stage, ...],
    jobs: int,
    db: str,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Plant faults at known guard sites, and measure how many a campaign finds and attributes correctly.

    At K sites of the database the guard raises instead of taking its fallback answer. One campaign has to find all of
    these faults. Its findings are not saved.
    """
    with Database.open(db, create=False) as database:
        known = database.sites(_version(database, version))
    plan = Plan(
        profile="default",
        seed=1000 + seed if campaign_seed is None else campaign_seed,
        budget=parse_budget(budget),
        jobs=jobs,
        stages=tuple(stage for stage in STAGES if stage in stages),
        semantics=(EXPLICIT,),
        minimize=False,
        in_turn=True,
        screen=True,
        guided=guided,
    )
    said = f"ddefuzz bench recall --sites {sites} --seed {seed} --budget {plan.budget} --db {db}"
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=scratch_folder()) as folder,
        Pool(1) as pool,
        campaign_progress(plan, said) as progress,
        stop_on_interrupt() as stopped,
    ):
        record = measure_recall(
            plan, seed, known, sites, Path(folder), lambda run: pool.observe(run, RUN_SECONDS), stopped, progress
        )
    document = msgspec.json.encode(record).decode() + "\n"
    deliver({"text": lambda page: recall_page(record, page), "json": lambda _page: document}, format_, outputs)
    if record.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def recall_page(record: Recall, page: Page) -> str:
    """The rates, then each fault that was not found or not named exactly, with the reason."""
    planted = len(record.planted)
    seconds = (
        f"; CPU seconds to find: median {record.cpu_seconds_median:.1f}, 90th percentile {record.cpu_seconds_90th:.1f}"
        if record.cpu_seconds_median is not None and record.cpu_seconds_90th is not None
        else ""
    )
    head = (
        f"{planted} of {record.known_sites} known sites, seed {record.seed}, torch {record.torch}; "
        f"campaign of seed {record.campaign_seed}, {record.campaign_cpu_seconds:.0f} CPU seconds of {record.budget}\n"
        f"{record.found:4}  found, {_share(record.found, planted)}{seconds}\n"
        f"{record.exact:4}  of these named exactly, {_share(record.exact, record.found)}"
    )
    wrong = [one for one in record.planted if not (one.found and one.exact)]
    if not wrong:
        return f"{head}\n"
    rows = [
        Detailed([plain(cell) for cell in (_fault(one), f"{one.place.file}:{one.place.line}", one.function, _why(one))])
        for one in wrong
    ]
    titles = ("", "planted at", "function", "why")
    return rendered(Group(plain(head), "", table(titles, rows, page.width, folding=titles[1:])), page)


def _fault(one: Planted) -> str:
    return "misnamed" if one.found else "not found"


def _why(one: Planted) -> str:
    return f"named {one.named}, {one.why}" if one.found else one.why


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
