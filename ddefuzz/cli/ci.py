"""`ddefuzz ci`: the commands of a CI job, each a list of steps; `ddefuzz init` writes the files that call them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

import rich_click as click
from jinja2 import Environment, PackageLoader, StrictUndefined

from ddefuzz import __version__
from ddefuzz.campaign.plan import parse_budget
from ddefuzz.cli.command import argument, click_command, option
from ddefuzz.cli.options import DB, PYTHONS, seed_option
from ddefuzz.cli.streams import say, write_stdout
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK, InputError
from ddefuzz.escape import shell_word, shell_words
from ddefuzz.files import check_folder, is_file, is_folder, is_there, write_atomically, write_files
from ddefuzz.findings.url import DatabaseUrl

CORPUS: Final = "corpora"

WORKFLOWS: Final[dict[str, tuple[str, str]]] = {
    "github": ("github.yml", ".github/workflows/ddefuzz.yml"),
    "gitlab": ("gitlab.yml", ".gitlab-ci.yml"),
}
"""The template and the place of the workflow of each CI."""

FILES: Final[dict[str, str]] = {"ddefuzz.toml": "ddefuzz.toml", "smoke.txt": f"{CORPUS}/smoke/relu.py"}
"""The other files: template and place."""

TORCHES: Final = ("2.13.0", "2.14.1", "2.15.0")
"""The versions of torch under which the workflow runs cases and findings, besides the one that it installs."""

EMPTY: Final[dict[str, str]] = {
    "findings/known.toml": "# Known findings, by id: state, reason, url, expires, versions.\n",
    "findings/rules.toml": "# Rules for signatures: [[alias]] and [[split]], each with reason and source.\n",
    ".ddefuzz/.gitignore": "*\n",
}


@click_command("init")
def init(
    folder: Path = argument(default=Path()),
    ci: str = option(
        "The workflow to write: github, gitlab or none.", default="github", type_=(*WORKFLOWS, "none"), metavar="NAME"
    ),
    force: bool = option("Replace files that exist."),
) -> None:
    """Write the files with which a repository runs ddefuzz in its CI.

    FOLDER (default: the current one) gets ddefuzz.toml, a corpus with one case, an empty list of known findings, and a
    workflow that calls `ddefuzz ci`. It needs nothing but the package. Files that exist are not replaced.
    """
    if not is_folder(folder):
        raise InputError(f"{folder}: found no such folder, expected that of a repository")
    written = contents(ci)
    check_folder(folder, written)
    exist = [name for name in written if is_there(folder / name)]
    if exist and not force:
        raise InputError(f"{folder / exist[0]}: found this file, expected none there (--force replaces it)")
    write_files(folder, written)
    for name in written:
        say(f"wrote {folder / name}")
    there = "" if folder == Path() else f"cd {shell_word(str(folder))} && "
    say(f"\nNext:\n  {there}ddefuzz ci pull-request --budget 1m", kept="\n")


def contents(ci: str) -> dict[str, str]:
    """The text of each file, by its place in the repository."""
    environment = Environment(
        loader=PackageLoader("ddefuzz.cli", "templates/init"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    torch = _torch()
    others = [one for one in TORCHES if one != torch]
    values = {"version": __version__, "torch": torch, "others": others, "corpus": CORPUS}
    templates = dict([*FILES.items(), *([WORKFLOWS[ci]] if ci in WORKFLOWS else [])])
    return {place: environment.get_template(name).render(values) for name, place in templates.items()} | EMPTY


def _torch() -> str:
    """The release of torch in this environment, else the oldest that ddefuzz supports."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return "2.13.0"


REPORTS: Final = Path("ddefuzz-report")
FORMATS: Final = {"sarif": "sarif", "junit": "xml", "markdown": "md", "html": "html", "jsonl": "jsonl"}
"""The formats that are written to `REPORTS`, with the endings of their files."""

TABLES: Final = {"markdown": "md", "json": "json"}
"""The formats of a step that only shows what there is."""

GRACE_SECONDS: Final = 300.0
"""How long a step may run after its budget: torch is imported, and findings are confirmed. Then it is killed."""

STOP_SECONDS: Final = 30.0
"""How long a step may take to end after SIGINT."""

REPLAY_SECONDS: Final = 3600.0

CASES: Final = ("corpora", "findings")
"""The folders of a repository with cases and findings."""


class Step(NamedTuple):
    """One command. `seconds` is its hard limit. It writes reports in these formats, with the endings of their files,
    under its name. `environment` is added to that of this process.
    """

    name: str
    words: tuple[str, ...]
    seconds: float
    formats: Mapping[str, str] = FORMATS
    environment: Mapping[str, str] = {}


@click.group("ci")
def command() -> None:
    """Run the steps of a CI job: pull-request, batch, prune, coverage, versions.

    Each writes its reports (SARIF, JUnit, Markdown, HTML, JSON lines) to ddefuzz-report/, also when nothing failed. On
    GitHub the Markdown is the step's summary, and failures are annotations.
    """


def budget_option(default: str) -> Any:
    """The option for the budget of the campaign."""
    return option("Budget of the campaign.", default=default, metavar="TIME|Nx|Ncpu")


@click_command("pull-request", command)
def pull_request(
    budget: str = budget_option("8m"),
    seed: int = seed_option("campaign"),
) -> None:
    """Replay the cases and findings, then run a campaign.

    Exit code 1 only if a case does not do what is expected of it, or the campaign has a finding that is neither in
    findings/ nor in findings/known.toml.
    """
    _run([*_load(), *_replay(), _campaign(budget, seed)])


@click_command("batch", command)
def batch(
    budget: str = budget_option("60m"),
    shard: str = option("Run only the I-th of N parts.", default="1/1", metavar="I/N"),
) -> None:
    """Run a long campaign, with a new seed every day. Exit code 1 if it has a new finding."""
    seed = int(datetime.now(UTC).strftime("%Y%m%d"))
    _run([*_load(), _campaign(budget, seed, "--shard", shard)])


@click_command("prune", command)
def prune() -> None:
    """Delete case files in corpora/ that are not needed, and report them. A person commits the change."""
    _run([Step("prune", ("corpus", "prune", "corpora"), REPLAY_SECONDS, TABLES)])


@click_command("coverage", command)
def coverage() -> None:
    """Write which guard sites of torch the campaigns of this database reached."""
    _run([Step("coverage", ("sites",), REPLAY_SECONDS, TABLES)])


@click_command("versions", command)
def versions(
    pythons: tuple[str, ...] = PYTHONS,
    db: DatabaseUrl = DB,
) -> None:
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
        yield Step("import", ("findings", "import"), 600.0, {})


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
    for step in steps:
        codes[step.name] = _step(step)
        if codes[step.name] == EXIT_INTERRUPTED:
            raise SystemExit(EXIT_INTERRUPTED)
    failed = [name for name, code in codes.items() if code != EXIT_OK]
    say(f"ddefuzz ci: {', '.join(f'{name} exit {code}' for name, code in codes.items())}")
    errors = [codes[name] for name in failed if codes[name] != EXIT_FOUND]
    raise SystemExit(errors[0] if errors else EXIT_FOUND if failed else EXIT_OK)


def _step(step: Step) -> int:
    """Run one step in a process group of its own. A step beyond its limit is interrupted, then killed."""
    formats = dict(step.formats)
    if on_github := step.formats is FORMATS and bool(os.environ.get("GITHUB_ACTIONS")):
        formats["github"] = "annotations"
    files = (f"{name}={REPORTS / f'{step.name}.{ending}'}" for name, ending in formats.items())
    words = [*step.words, *(word for file in files for word in ("--output", file))]
    say(f"$ ddefuzz {shell_words(words)}")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ddefuzz", *words], start_new_session=True, env=os.environ | step.environment
    )
    code = _waited(process, step)
    if on_github:
        _to_github(step.name)
    return code


def _waited(process: subprocess.Popen[bytes], step: Step) -> int:
    """The exit code of the step. Ctrl-C, SIGTERM (a cancelled job) and its time limit end it as Ctrl-C does."""
    code = None
    try:
        return process.wait(step.seconds)
    except subprocess.TimeoutExpired:
        say(f"ddefuzz ci: {step.name} has gone on for {step.seconds:.0f} s: it is ended")
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    _signal(process, signal.SIGINT)
    ends = time.monotonic() + STOP_SECONDS
    while process.returncode is None:
        try:
            process.wait(max(0.1, ends - time.monotonic()))
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED  # a cancelled job gets several signals
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
    return process.returncode if code is None else code


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _to_github(name: str) -> None:
    """Print the annotations, and add the Markdown to the step's summary."""
    annotations, markdown = REPORTS / f"{name}.annotations", REPORTS / f"{name}.md"
    if is_there(annotations):
        write_stdout(annotations.read_text(encoding="utf-8"), is_document=True)
        annotations.unlink()
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and is_there(markdown):
        before = Path(summary).read_text(encoding="utf-8") if is_file(Path(summary)) else ""
        write_atomically(Path(summary), before + markdown.read_text(encoding="utf-8"))
