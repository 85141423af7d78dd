"""`ddefuzz minimize`: find the smallest program with the same signature, for a finding or a program in a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import rich_click as click

from ddefuzz.answers.model import NOT_JUDGED, Control
from ddefuzz.campaign.renew import Renewed
from ddefuzz.campaign.tasks import ControlTask, run_control
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.op import failing_ops
from ddefuzz.classify.signature import Signature
from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.layout import counted
from ddefuzz.cli.minimize_all import minimize_all
from ddefuzz.cli.options import db_option, jobs_option, trust_option
from ddefuzz.cli.output import Writer, deliver, output_options
from ddefuzz.errors import EXIT_FOUND, InputError
from ddefuzz.escape import json_text, visible
from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import CAPTURE_STAGES, EXPLICIT, CallableSubject, ProgramSubject, Run, Runner, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Confirmation, Finding
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.keys.case import check_trust, is_key
from ddefuzz.minimize.minimizer import Minimized, minimize
from ddefuzz.minimize.order import operations, sort_key
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.program import Suspect, judge_program, kept, shows, suspect_of
from ddefuzz.oracles.program import observe as observe_any
from ddefuzz.oracles.table import NAMES
from ddefuzz.program.model import Program
from ddefuzz.program.text import print_program

SCHEMA = "ddefuzz.minimize/1"

COLD_REPLAYS = 3


class Start(NamedTuple):
    """The program to minimize. `path` names it in messages, `ops` are the functions that fail."""

    suspect: Suspect
    path: str
    ops: tuple[str, ...] = ()


class Smallest(NamedTuple):
    """The text of the smallest program so far, its number of operations, and the number of captures."""

    text: str
    steps: int
    attempts: int
    exhausted: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """The output of `--format json`."""

    id: str | None
    key: str
    stage: Stage
    steps: int
    attempts: int
    exhausted: bool
    confirmed: Confirmation
    program: str
    schema: str = SCHEMA


@click.command("minimize")
@click.argument("target", metavar="ID|FILE|FILE:NAME", required=False)
@click.option("--all", "everything", is_flag=True, help="Shrink all findings of the database, in order of id.")
@click.option("--after", default="", metavar="ID", help="For --all: begin after this id.")
@jobs_option
@click.option(
    "--stage",
    type=click.Choice(CAPTURE_STAGES),
    metavar="STAGE",
    help="For a FILE: the stage in which it fails. Default: the first of export, export-strict and compile that fails.",
)
@click.option(
    "--from-original",
    is_flag=True,
    help="For an ID: start from the original program instead of the smallest one so far.",
)
@click.option("--max-attempts", default=500, show_default=True, metavar="N", help="Stop after N captures of a finding.")
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit of one capture (with --all: of one finding): CPU seconds of its process, and five times as many "
    "seconds by the clock.",
)
@trust_option
@db_option
@output_options("text", "json")
def command(
    target: str | None,
    everything: bool,
    after: str,
    jobs: int,
    stage: Stage | None,
    from_original: bool,
    max_attempts: int,
    timeout: float,
    trust: bool,
    db: DatabaseUrl,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Shrink a program while it still fails in the same way.

    ID is a finding: its program is shrunk. FILE has a program. FILE:NAME is your own model, as for `ddefuzz check`: the
    calls of torch that lead to its failure are written as a program without your code, and this program is shrunk.

    A smaller program fails in the same way if its failure has the same signature: kind, site and anchor. For a finding,
    each smaller program is saved at once, also before Ctrl-C.

    With --all, each finding starts from its smallest program so far. It keeps that program if no smaller one fails in
    the same way in a fresh process. The output has one line for each finding.

    Exit code 1: the smallest program does not fail in the same way in fresh processes.

    \b
    Examples:
      ddefuzz minimize dde-08f7b02bbb
      ddefuzz minimize model.py:make_model
    """
    if everything:
        if target is not None or stage or from_original or trust:
            raise click.UsageError(
                "found --all with ID|FILE, --stage, --from-original or --trust, expected --all without them"
            )
        with Database.open(db, create=False) as database:
            report = _report_text if format_ == "text" else _report_json
            minimize_all(database, after, jobs, max_attempts, timeout, report)
        return
    if target is None or after:
        raise click.UsageError("found no ID|FILE, or --after without --all; expected ID, FILE or --all [--after ID]")
    with ExitStack() as stack:
        own = _own_code(target)
        if own is not None or Path(target).is_file():
            finding, save = None, None
        else:
            database = stack.enter_context(Database.open(db, create=False))
            finding = resolve(database, target)
            save = partial(_save, database, finding)
        pool = stack.enter_context(Pool(1))
        observe = partial(pool.observe, timeout=timeout, by=observe_any)
        if finding is not None:
            start = _of_finding(finding, from_original=from_original, trust=trust)
        elif own is not None:
            start = _of_code(own, stage, pool, timeout)
        else:
            start = _of_file(Path(target), stage, observe)
        suspect = start.suspect
        if is_key(suspect.program):
            found = _key_minimized(suspect, observe, max_attempts)
        else:
            best = _minimized(start, observe, max_attempts, save)
            found = Smallest(print_program(best.program), operations(best.program), best.attempts, best.exhausted)
        text = found.text
        confirmed, shown = _confirm(suspect, text, lambda run: pool.observe_cold(run, timeout, by=observe_any))
        if finding is not None and save is not None:
            save(found)
            if database.get(finding.id).minimal == text:  # the stored program may be smaller
                database.set_confirmed(finding.id, confirmed.k, confirmed.n, shown)
                if shown is not None:
                    task = ControlTask(text, shown, failing_ops(shown.observation, text))
                    database.set_control(finding.id, _control(pool, task, timeout))
    outcome = Outcome(
        id=finding.id if finding else None,
        key=suspect.signature.key,
        stage=suspect.stage,
        steps=found.steps,
        attempts=found.attempts,
        exhausted=found.exhausted,
        confirmed=confirmed,
        program=text,
    )
    more = "; stopped at --max-attempts" if found.exhausted else ""
    click.echo(
        f"{_where(suspect.signature)}: {counted(outcome.steps, 'operation')} "
        f"after {counted(found.attempts, 'capture')}, shown in {confirmed} fresh processes{more}",
        err=True,
    )
    line = json_text(outcome) + "\n"
    writers: dict[str, Writer] = {"text": lambda _page: text, "json": lambda _page: line}
    deliver(writers, format_, outputs)
    if confirmed.k < confirmed.n:
        raise SystemExit(EXIT_FOUND)


def _where(of: Signature) -> str:
    return f"{of.kind} in {of.site} [{of.anchor}]"


def _report_text(one: Renewed) -> None:
    captures = f" after {counted(one.result.attempts, 'capture')}" if one.result else ""
    click.echo(visible(f"{one.finding.id} {one.status}{captures}"))


def _report_json(one: Renewed) -> None:
    finding, result = one.finding, one.result
    outcome = Outcome(
        id=finding.id,
        key=finding.signature.key,
        stage=finding.stage or CAPTURE_STAGES[0],
        steps=(result.steps if result else finding.steps) or 0,
        attempts=result.attempts if result else 0,
        exhausted=result is None or result.exhausted,
        confirmed=Confirmation(int(one.shown is not None), 1),
        program=(result.program if result else finding.minimal or finding.original) or "",
    )
    click.echo(json_text(outcome))


def _of_finding(finding: Finding, *, from_original: bool, trust: bool) -> Start:
    text = finding.original if from_original or finding.minimal is None else finding.minimal
    if text is None:
        raise InputError(
            f"{finding.id}: found a finding of user code, expected one with a program: user code is not minimized"
        )
    failure = finding.evidence if text == finding.minimal else finding.failure
    if failure is None:
        raise InputError(
            f"{finding.id}: found no failure stored with this finding, expected one: it says what to minimize for"
        )
    check_trust(text, trust=trust)
    return Start(suspect_of(text, finding.signature, failure, trust=trust), f"{finding.id}.py", finding.ops)


def _of_file(path: Path, stage: Stage | None, observe: Runner) -> Start:
    """The program of a file, and its failure in the first stage that fails. Captured programs are called."""
    text = print_program(catalogue.read(path).program)
    stages = (stage,) if stage else CAPTURE_STAGES[:3]
    eager = observe(Run(ProgramSubject(text), "eager"))
    for judged in judge_program(text, stages, (EXPLICIT,), observe, oracles=NAMES, compare=False):
        for one in judged.failures if eager.outcome == "ok" else ():
            suspect = suspect_of(text, one.signature, kept(one.failure))
            return Start(suspect, str(path), failing_ops(one.failure.observation, text))
    raise InputError(f"{path}: found a program that does not fail in {', '.join(stages)}, expected one that does")


def _own_code(target: str) -> CallableSubject | None:
    """The user's model, if the target is FILE:NAME or package.module:NAME."""
    file, colon, name = target.rpartition(":")
    return CallableSubject(file, name=name) if colon and name and not Path(target).is_file() else None


def record(subject: CallableSubject) -> str:
    """The program that may show the failure of a model. It runs as a task of a worker."""
    # Imported here, because this command must not import torch.
    from ddefuzz.minimize.recorded import recorded  # noqa: PLC0415

    return recorded(subject)


def _of_code(subject: CallableSubject, stage: Stage | None, pool: Pool, timeout: float) -> Start:
    """The calls of torch that lead to the failure of a model, as a program with the same signature."""
    named = f"{subject.path}:{subject.name}"
    stages = (stage,) if stage else CAPTURE_STAGES[:3]
    observe = partial(pool.observe, timeout=timeout, by=observe_any)
    observations = [observe(Run(subject, one)) for one in ("eager", *stages)]
    wanted = [classify(failure).signature for failure in judge(observations)]
    if observations[0].outcome != "ok" or not wanted:
        raise InputError(f"{named}: found a model that does not fail in {', '.join(stages)}, expected one that does")
    text = pool.submit(record, subject, timeout).result()
    if isinstance(text, Lost) or not text:
        raise InputError(
            f"{named}: found no call of torch that fails when sizes are propagated ({wanted[0]}), expected one: "
            "a branch of your own code cannot be made a program"
        )
    catalogue.parse(text, named)
    for judged in judge_program(text, stages, (EXPLICIT,), observe, compare=False):
        for one in judged.failures:
            if one.signature in wanted:
                suspect = suspect_of(text, one.signature, kept(one.failure))
                return Start(suspect, named, failing_ops(one.failure.observation, text))
    raise InputError(
        f"{named}: found calls of torch that do not show {wanted[0]} without your code, expected some that do"
    )


def _minimized(
    start: Start,
    observe: Runner,
    max_attempts: int,
    save: Callable[[Smallest], None] | None,
) -> Minimized:
    # Imported here, because commands that run no program must not import torch.
    from ddefuzz.minimize.eager import deprecated, inspector  # noqa: PLC0415

    attempts = 0

    def accepts(candidate: Program) -> bool:
        nonlocal attempts
        attempts += 1
        return shows(start.suspect, print_program(candidate), observe) is not None

    def improved(best: Program) -> None:
        if save is not None:
            save(Smallest(print_program(best), operations(best), attempts))
        click.echo(f"{counted(attempts, 'capture')}: {counted(operations(best), 'operation')}", err=True)

    program = catalogue.parse(start.suspect.program, start.path).program
    return minimize(
        program,
        accepts,
        max_attempts=max_attempts,
        inspect=inspector(program),
        deprecated=deprecated,
        failing_functions=start.ops,
        on_improvement=improved,
    )


def _key_minimized(suspect: Suspect, observe: Runner, max_attempts: int) -> Smallest:
    from ddefuzz.minimize.keys import smallest_case  # noqa: PLC0415 it imports torch

    return Smallest(
        *smallest_case(suspect.program, lambda text: shows(suspect, text, observe) is not None, max_attempts)
    )


def _confirm(suspect: Suspect, text: str, observe_cold: Runner) -> tuple[Confirmation, Failure | None]:
    """How many cold replays show the signature, and the failure of the first that does."""
    seen = [shows(suspect, text, observe_cold) for _ in range(COLD_REPLAYS)]
    shown = [failure for failure in seen if failure is not None]
    return Confirmation(len(shown), COLD_REPLAYS), shown[0] if shown else None


def _control(pool: Pool, task: ControlTask, timeout: float) -> Control:
    result = pool.submit(run_control, task, timeout).result()
    return NOT_JUDGED if isinstance(result, Lost) else result.control


def _save(database: Database, finding: Finding, best: Smallest) -> None:
    """Save a program that is smaller than the finding's smallest one."""
    if (
        finding.minimal is None
        or is_key(best.text)
        or _order(best.text, finding.id) <= _order(finding.minimal, finding.id)
    ):
        database.set_minimal(finding.id, best.text, steps=best.steps, attempts=best.attempts)


def _order(text: str, name: str) -> tuple[object, ...]:
    return sort_key(catalogue.parse(text, name).program)
