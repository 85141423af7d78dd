"""`ddefuzz ci`: the commands of a CI job, each a list of steps, and those that write lists of what is known."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import rich_click as click

from ddefuzz.campaign.plan import parse_budget
from ddefuzz.checking.acceptance import ACCEPTED, Acceptance, check_reason, read_accepted, renewed, write_accepted
from ddefuzz.checking.check import Options, Progress, check_named
from ddefuzz.checking.report import acceptable, failed
from ddefuzz.cli.check import EXPECTED_TARGET
from ddefuzz.cli.command import argument, click_command, option
from ddefuzz.cli.init import BASELINE, baseline_text
from ddefuzz.cli.options import DB, JOBS, PYTHONS, seed_option, timeout_option
from ddefuzz.cli.output import LiveLine
from ddefuzz.cli.settings import read
from ddefuzz.cli.streams import say, write_stdout
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, InputError, UnsupportedError
from ddefuzz.escape import json_text, shell_words
from ddefuzz.files import check_folder, is_file, is_there, write_atomically, write_files
from ddefuzz.findings.url import DatabaseUrl, without_passwords
from ddefuzz.show.blocks import counted
from ddefuzz.show.table import rows_of

REPORTS: Final = Path("ddefuzz-report")
SCHEMA: Final = "ddefuzz.ci/1"

HOOK_SECONDS: Final = 60.0

COMMENT: Final = REPORTS / "comment.md"
"""The comment of a pull request, in Markdown."""

MARKER: Final = "<!-- ddefuzz ci -->"

MOST_IN_COMMENT: Final = 60_000
"""Characters. GitHub takes 65,536."""

FORMATS: Final = {"sarif": "sarif", "junit": "xml", "markdown": "md", "html": "html", "jsonl": "jsonl"}
"""The formats that are written to `REPORTS`, with the endings of their files."""

TABLES: Final = {"markdown": "md", "json": "json"}
"""The formats of a step that only shows what there is."""

GRACE_SECONDS: Final = 300.0
"""How long a step may run after its budget: torch is imported, and findings are confirmed. Then it is killed."""

STOP_SECONDS: Final = 30.0
"""How long a step may take to end after SIGINT."""

REPLAY_SECONDS: Final = 3600.0

MODELS: Final = "models"
MODELS_SECONDS: Final = 3600.0

FUZZ_DATABASE: Final = REPORTS / "fuzz.db"
"""The database of a campaign for a pull request."""

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
    """Run the steps of a CI job: pull-request, fuzz, batch, prune, coverage, versions.

    `accept` and `baseline` are for people: they write lists of what is known.

    Each job writes its reports (SARIF, JUnit, Markdown, HTML, JSON lines) to ddefuzz-report/, also when nothing failed.
    On GitHub the Markdown is the step's summary, and failures are annotations.

    If a job is red, the command `ci.hook` of ddefuzz.toml runs. It gets what failed as JSON on stdin.
    """


def budget_option(default: str) -> Any:
    """The option for the budget of the campaign."""
    return option("Budget of the campaign.", default=default, metavar="TIME|Nx|Ncpu")


@click_command("pull-request", command)
def pull_request(
    base: str | None = option(
        "A commit, such as origin/main. Problems that a model has there, too, are not red. It is checked in a worktree "
        "that is deleted afterwards, and only if a model has a problem.",
        metavar="COMMIT",
    ),
) -> None:
    """Check the models of this repository, and replay its cases and findings.

    The models are `check.targets` in ddefuzz.toml. Exit code 1 only if one has a problem that neither
    findings/accepted.toml nor the commit of --base has, or a case does not do what is expected of it.
    """
    commit = None if base is None else commit_of(base)
    models, settings = list(_models()), read()
    steps = [*models, *_replay()]
    codes = _done(steps)
    if commit is not None and codes.get(MODELS) == EXIT_FOUND:
        say(f"ddefuzz ci: {MODELS} exit {EXIT_FOUND}; looking for the problems in {base}, too")
        path = Path(settings.get("accepted") or ACCEPTED)
        own, there = read_accepted(path), problems_at(commit, settings["targets"], f"not new: {base} has it, too")
        known = {(one.target, one.key) for one in own}
        more = [one for one in there if (one.target, one.key) not in known]
        say(f"ddefuzz ci: {counted(len(more), 'problem')} in {base}")
        if more:
            write_accepted(REPORTS / ACCEPTED.name, (*own, *more))
            words = (*models[0].words, "--accepted", str(REPORTS / ACCEPTED.name))
            codes |= _done([models[0]._replace(words=words)])
    _end(codes)


@click_command("accept", command)
def accept(
    reason: str = option("Why the problems are accepted.", required=True, metavar="TEXT"),
    expires: datetime | None = option(
        "The last day on which they are. From the next day on they fail again.",
        type_=click.DateTime(["%Y-%m-%d"]),
        metavar="YYYY-MM-DD",
    ),
    targets: tuple[str, ...] = argument("[TARGET]..."),
    timeout: float = timeout_option(60.0, "one capture"),
    jobs: int = JOBS,
) -> None:
    """Accept the problems that the models of this repository have now: they do not make `check` fail.

    TARGET (default: `check.targets` in ddefuzz.toml) is as for `ddefuzz check`. findings/accepted.toml gets
    each problem with the reason. Problems that a target no longer has are deleted from it. The file belongs in git.

    Exit code 1: a target fails in a way that cannot be accepted, such as in eager. Exit code 2: one cannot be built.
    """
    check_reason("--reason: ", reason)
    last, today = expires and expires.date(), datetime.now(UTC).date()
    if last is not None and last < today:
        raise InputError(f"--expires: found {last}, expected a day from {today} on")
    if not targets:
        raise InputError(f"found no TARGET, expected {EXPECTED_TARGET}")
    before = read_accepted(ACCEPTED)
    check_folder(Path(), [str(ACCEPTED)])
    with LiveLine("starting a worker (importing torch takes some seconds)") as live:
        options = Options(timeout=timeout, budget=None)
        report = check_named(targets, options, Progress(live.say, live.update), jobs=jobs, whole_names=True)
    judged = {one.case for one in report.captures} - {*report.refused}
    after = renewed(before, acceptable(report, reason, last), judged, today)
    write_accepted(ACCEPTED, after)
    problems = [one for one in after if one.target in judged]
    for problem in problems:
        say(f"{'still' if problem in before else 'now'} accepted: {problem.target}: {problem.key} {problem.title}")
    names = {(one.target, one.key) for one in after}
    for target, key in sorted({(one.target, one.key) for one in before} - names):
        say(f"not there any more: {target}: {key}")
    say(f"{counted(len(problems), 'problem')} accepted in {ACCEPTED}")
    left = failed(report.captures, [(one.target, one) for one in problems])
    raise SystemExit(EXIT_USAGE if report.refused else EXIT_FOUND if left else EXIT_OK)


@click_command("baseline", command)
def baseline() -> None:
    """Write findings/baseline.toml again, after an update of ddefuzz: the findings that it knows."""
    check_folder(Path(), [BASELINE])
    write_files(Path(), {BASELINE: baseline_text()})
    say(f"wrote {BASELINE}")


@click_command("fuzz", command)
def fuzz(
    budget: str = budget_option("8m"),
    seed: int = seed_option("campaign"),
) -> None:
    """Run a campaign that looks for problems of PyTorch itself. Exit code 1 if one is not known.

    Known are the findings in findings/, and those in the lists that `known` in ddefuzz.toml names. Each run has a new
    database, ddefuzz-report/fuzz.db: what is red is so in the next run, too, until someone decides.
    """
    check_folder(Path(), [str(FUZZ_DATABASE)])
    for name in ("", "-journal", "-wal", "-shm"):
        Path(f"{FUZZ_DATABASE}{name}").unlink(missing_ok=True)
    _run([*_load(FUZZ_DATABASE), _campaign(budget, seed, "--db", f"sqlite:///{FUZZ_DATABASE}")])


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

    They are those of corpora/, findings/ and the database, which keeps the results. A finding of the database that
    passes in two versions in a row is closed. Exit code 1: one fails that passes in an older version.
    """
    paths = [name for name in CASES if is_there(Path(name))]
    options = [word for python in (sys.executable, *pythons) for word in ("--python", python)]
    whole = {"DDEFUZZ_DB": db.for_sqlalchemy().render_as_string(hide_password=False)}  # others can read the words
    _run(
        [Step("versions", ("matrix", *paths, "--db", str(db), "--close", *options), REPLAY_SECONDS, environment=whole)]
    )


def _load(database: Path | None = None) -> Iterator[Step]:
    """The findings of the repository are known before the campaign."""
    if any(Path("findings").glob("*/finding.toml")):
        into = () if database is None else ("--db", f"sqlite:///{database}")
        yield Step("import", ("findings", "import", *into), 600.0, {})


def _models() -> Iterator[Step]:
    if read().get("targets"):
        yield Step(MODELS, ("check",), MODELS_SECONDS)


def _replay() -> Iterator[Step]:
    paths = [name for name in CASES if any(Path(name).rglob("*.py"))]
    if paths:
        yield Step("replay", ("replay", *paths), REPLAY_SECONDS)


def _campaign(budget: str, seed: int, *more: str) -> Step:
    parsed = parse_budget(budget)
    seconds = (parsed.seconds or parsed.cpu_seconds or 3600.0) + GRACE_SECONDS
    return Step("run", ("run", "--budget", budget, "--seed", str(seed), "--fail-on", "new", *more), seconds)


def commit_of(base: str) -> str:
    """The hash of a commit. Raises `InputError` if this repository has none of this name, or is none."""
    try:
        command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"--base: found no commit {base[:80]!r}, expected one of this git repository. In a CI job, fetch it first"
        ) from error


def problems_at(commit: str, targets: Sequence[str], reason: str) -> tuple[Acceptance, ...]:
    """The problems that the targets have in a commit, as `ddefuzz ci accept` writes them there. What cannot be built
    there has none.
    """
    with tempfile.TemporaryDirectory(prefix="ddefuzz-base-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder, "tree")
        try:
            git = partial(subprocess.run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
            git(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit])
            try:
                here = tree / git(["git", "rev-parse", "--show-prefix"]).stdout.strip()
                words = ["ci", "accept", "--reason", reason, "--", *targets]
                path = os.pathsep.join(filter(None, (str(here), str(here / "src"), os.environ.get("PYTHONPATH"))))
                step = Step("base", (), MODELS_SECONDS)
                silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                code = _waited(_started(words, cwd=here, env=os.environ | {"PYTHONPATH": path}, **silent), step)
                if code == EXIT_INTERRUPTED:
                    raise SystemExit(code)
                return tuple(one for one in read_accepted(here / ACCEPTED) if one.reason == reason)
            finally:
                git(["git", "worktree", "remove", "--force", str(tree)])
        except (OSError, subprocess.CalledProcessError) as error:
            lines = (getattr(error, "stdout", None) or str(error)).strip().splitlines()
            raise UnsupportedError(f"--base: git cannot make a worktree of {commit[:12]}: {lines[-1]}") from error


def _run(steps: list[Step]) -> None:
    """Run all steps, also after one that failed. Exits with the worst code: 130, an error, 1, 0."""
    _end(_done(steps))


def _done(steps: Sequence[Step]) -> dict[str, int]:
    """Run all steps, also after one that failed. The exit code of each. Exits with 130 if one was interrupted."""
    endings = (*FORMATS.values(), "json", "annotations")
    outputs = [f"{REPORTS}/{step.name}.{ending}" for step in steps for ending in endings]
    check_folder(Path(), [*outputs, str(COMMENT)])
    REPORTS.mkdir(exist_ok=True)
    for path in (*outputs, str(COMMENT)):  # those of an earlier run, which a step that fails would not replace
        Path(path).unlink(missing_ok=True)
    codes = {}
    for step in steps:
        codes[step.name] = _step(step)
        if codes[step.name] == EXIT_INTERRUPTED:
            raise SystemExit(EXIT_INTERRUPTED)
    return codes


def _end(codes: Mapping[str, int]) -> NoReturn:
    """Write the comment, run the hook, and exit with the worst code."""
    failed = [name for name, code in codes.items() if code != EXIT_OK]
    write_atomically(COMMENT, comment(codes))
    say(f"ddefuzz ci: {', '.join(f'{name} exit {code}' for name, code in codes.items())}")
    errors = [codes[name] for name in failed if codes[name] != EXIT_FOUND]
    code = errors[0] if errors else EXIT_FOUND if failed else EXIT_OK
    if failed and (hook := read().get("hook")):
        _tell(hook, told(codes, code))
    raise SystemExit(code)


def told(codes: Mapping[str, int], code: int) -> dict[str, Any]:
    """What a hook gets as JSON: the steps with their exit codes and reports, and what failed in each."""
    rows = []
    for name in codes:
        log = REPORTS / f"{name}.sarif"
        rows += [{"step": name, **row} for row in rows_of(log.read_text(encoding="utf-8"))] if is_file(log) else []
    steps = [
        {"name": name, "exit": of_step, "report": str(report) if is_file(report := REPORTS / f"{name}.md") else ""}
        for name, of_step in codes.items()
    ]
    return {"schema": SCHEMA, "exit": code, "steps": steps, "failed": rows}


def _tell(hook: str, document: dict[str, Any]) -> None:
    """Run the hook, with the document as its input. How it ends changes no exit code."""
    try:
        ended = subprocess.run(
            shlex.split(hook), input=json_text(document) + "\n", text=True, check=False, timeout=HOOK_SECONDS
        )
        if ended.returncode:
            say(f"ddefuzz ci: the hook {hook} ended with {ended.returncode}")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        say(f"ddefuzz ci: the hook {hook} failed: {error}")


def comment(codes: Mapping[str, int]) -> str:
    """The reports of the steps as one comment of a pull request. Its first line is the same in each run, so that a job
    finds the comment of the run before. A step that does not fit into what GitHub takes is named only.
    """
    parts = [MARKER, *(f"**ddefuzz {name}**: exit {code}" for name, code in codes.items())]
    for name in sorted(codes, key=lambda name: codes[name] == EXIT_OK):
        path = REPORTS / f"{name}.md"
        text = path.read_text(encoding="utf-8") if is_file(path) else ""
        fits = len("\n\n".join([*parts, text])) < MOST_IN_COMMENT
        parts.append(text if fits else f"The report of {name} is too long for a comment: see {path}.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _step(step: Step) -> int:
    """Run one step in a process group of its own. A step beyond its limit is interrupted, then killed."""
    formats = dict(step.formats)
    if on_github := step.formats is FORMATS and bool(os.environ.get("GITHUB_ACTIONS")):
        formats["github"] = "annotations"
    files = (f"{name}={REPORTS / f'{step.name}.{ending}'}" for name, ending in formats.items())
    words = [*step.words, *(word for file in files for word in ("--output", file))]
    say(f"$ ddefuzz {shell_words(map(without_passwords, words))}")
    code = _waited(_started(words, env=os.environ | step.environment), step)
    if on_github:
        _to_github(step.name)
    return code


def _started(words: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
    """A command of ddefuzz in a process group of its own."""
    return subprocess.Popen([sys.executable, "-P", "-m", "ddefuzz", *words], start_new_session=True, **more)


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
        with Path(summary).open("ab") as file:
            file.write(markdown.read_bytes())
