"""`ddefuzz ci`: the commands of a CI job, each a list of steps that run as commands of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, TypeVar

import rich_click as click

from ddefuzz.campaign.plan import parse_budget
from ddefuzz.cli.interpreters import pythons_option
from ddefuzz.cli.options import db_option
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK
from ddefuzz.escape import shell_words
from ddefuzz.files import check_folder, is_file, is_there, write_atomically
from ddefuzz.findings.url import DatabaseUrl

REPORTS: Final = Path("ddefuzz-report")
FORMATS: Final = {"sarif": "sarif", "junit": "xml", "markdown": "md", "html": "html", "jsonl": "jsonl"}
"""The formats that are written to `REPORTS`, with the endings of their files."""

GRACE_SECONDS: Final = 300.0
"""How long a step may run after its budget: torch is imported, and findings are confirmed. Then it is killed."""

REPLAY_SECONDS: Final = 3600.0

CASES: Final = ("corpora", "findings")
"""The folders of a repository with cases and findings."""

Command = TypeVar("Command", bound=Callable[..., Any])


class Step(NamedTuple):
    """One command. `seconds` is its hard limit. With `reports` it writes reports under its name. `environment` is added
    to that of this process.
    """

    name: str
    words: tuple[str, ...]
    seconds: float
    reports: bool = True
    environment: Mapping[str, str] = {}


@click.group("ci")
def command() -> None:
    """Run the steps of a CI job: pull-request, batch, prune, coverage, versions.

    Each writes its reports (SARIF, JUnit, Markdown, HTML, JSON lines) to ddefuzz-report/, also when nothing failed. On
    GitHub the Markdown is the step's summary, and failures are annotations.
    """


def budget_option(default: str) -> Callable[[Command], Command]:
    """The option for the budget of the campaign."""
    return click.option(
        "--budget", default=default, show_default=True, metavar="TIME|Nx|Ncpu", help="Budget of the campaign."
    )


@command.command("pull-request")
@budget_option("8m")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Seed of the campaign."
)
def pull_request(budget: str, seed: int) -> None:
    """Replay the cases and findings, then run a campaign.

    Exit code 1 only if a case does not do what is expected of it, or the campaign has a finding that is neither in
    findings/ nor in findings/known.toml.
    """
    _run([*_load(), *_replay(), _campaign(budget, seed)])


@command.command("batch")
@budget_option("60m")
@click.option("--shard", default="1/1", metavar="I/N", show_default=True, help="Run only the I-th of N parts.")
def batch(budget: str, shard: str) -> None:
    """Run a long campaign, with a new seed every day. Exit code 1 if it has a new finding."""
    seed = int(datetime.now(UTC).strftime("%Y%m%d"))
    _run([*_load(), _campaign(budget, seed, "--shard", shard)])


@command.command("prune")
def prune() -> None:
    """Delete case files in corpora/ that are not needed, and report them. A person commits the change."""
    words = ("corpus", "prune", "corpora")
    outputs = ("--output", f"markdown={REPORTS / 'prune.md'}", "--output", f"json={REPORTS / 'prune.json'}")
    _run([Step("prune", words + outputs, REPLAY_SECONDS, reports=False)])


@command.command("coverage")
def coverage() -> None:
    """Write which guard sites of torch the campaigns of this database reached."""
    words = (
        "sites",
        "--output",
        f"markdown={REPORTS / 'coverage.md'}",
        "--output",
        f"json={REPORTS / 'coverage.json'}",
    )
    _run([Step("coverage", words, REPLAY_SECONDS, reports=False)])


@command.command("versions")
@pythons_option
@db_option
def versions(pythons: tuple[str, ...], db: DatabaseUrl) -> None:
    """Run cases and findings under this torch and others, and say in which versions each fails.

    They are those of corpora/, findings/ and the database, which keeps the results. Exit code 1: one fails that passes
    in an older version.
    """
    paths = [name for name in CASES if is_there(Path(name))]
    options = [word for python in (sys.executable, *pythons) for word in ("--python", python)]
    whole = {"DDEFUZZ_DB": db.for_sqlalchemy().render_as_string(hide_password=False)}  # others can read the words
    _run([Step("versions", ("matrix", *paths, "--db", str(db), *options), REPLAY_SECONDS, environment=whole)])


def _load() -> Iterator[Step]:
    """The findings of the repository are known before the campaign."""
    if any(Path("findings").glob("*/finding.toml")):
        yield Step("import", ("findings", "import"), 600.0, reports=False)


def _replay() -> Iterator[Step]:
    paths = [name for name in CASES if any(Path(name).rglob("*.py"))]
    if paths:
        yield Step("replay", ("replay", *paths), REPLAY_SECONDS)


def _campaign(budget: str, seed: int, *more: str) -> Step:
    parsed = parse_budget(budget)
    seconds = (parsed.seconds or parsed.cpu_seconds or 3600.0) + GRACE_SECONDS
    return Step("run", ("run", "--budget", budget, "--seed", str(seed), "--fail-on", "new", *more), seconds)


def _run(steps: list[Step]) -> None:
    """Run all steps, also after one that failed. Exits with the worst code: 130, an error, 1, 0."""
    endings = (*FORMATS.values(), "json", "annotations")
    check_folder(Path(), [f"{REPORTS}/{step.name}.{ending}" for step in steps for ending in endings])
    REPORTS.mkdir(exist_ok=True)
    codes = {}
    with _terminated() as stop:
        for step in steps:
            codes[step.name] = _step(step, stop)
            if codes[step.name] == EXIT_INTERRUPTED:
                raise SystemExit(EXIT_INTERRUPTED)
    failed = [name for name, code in codes.items() if code != EXIT_OK]
    click.echo(f"ddefuzz ci: {', '.join(f'{name} exit {code}' for name, code in codes.items())}", err=True)
    errors = [codes[name] for name in failed if codes[name] != EXIT_FOUND]
    raise SystemExit(errors[0] if errors else EXIT_FOUND if failed else EXIT_OK)


def _step(step: Step, stop: threading.Event) -> int:
    """Run one step in a process group of its own. A step beyond its limit is interrupted, then killed."""
    words = [*step.words]
    for format_, ending in FORMATS.items() if step.reports else ():
        words += ["--output", f"{format_}={REPORTS / f'{step.name}.{ending}'}"]
    on_github = bool(os.environ.get("GITHUB_ACTIONS"))
    if step.reports and on_github:
        words += ["--output", f"github={REPORTS / f'{step.name}.annotations'}"]
    click.echo(f"$ ddefuzz {shell_words(words)}", err=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ddefuzz", *words], start_new_session=True, env=os.environ | step.environment
    )
    code = _waited(process, step, stop)
    if step.reports and on_github:
        _to_github(step.name)
    return code


def _waited(process: subprocess.Popen[bytes], step: Step, stop: threading.Event) -> int:
    """The exit code of the step."""
    waited = 0.0
    interrupted_at: float | None = None
    while True:
        try:
            code = process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            waited += 0.2
        else:
            return EXIT_INTERRUPTED if stop.is_set() else code
        if interrupted_at is None and (stop.is_set() or waited > step.seconds):
            if not stop.is_set():
                click.echo(f"ddefuzz ci: {step.name} has gone on for {step.seconds:.0f} s: it is ended", err=True)
            interrupted_at = waited
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        elif interrupted_at is not None and waited > interrupted_at + 30.0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _terminated() -> Iterator[threading.Event]:
    """SIGTERM (a cancelled job) and Ctrl-C end the running step as Ctrl-C does."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _to_github(name: str) -> None:
    """Print the annotations, and add the Markdown to the step's summary."""
    annotations, markdown = REPORTS / f"{name}.annotations", REPORTS / f"{name}.md"
    if is_there(annotations):
        click.echo(annotations.read_text(encoding="utf-8"), nl=False)
        annotations.unlink()
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and is_there(markdown):
        before = Path(summary).read_text(encoding="utf-8") if is_file(Path(summary)) else ""
        write_atomically(Path(summary), before + markdown.read_text(encoding="utf-8"))
