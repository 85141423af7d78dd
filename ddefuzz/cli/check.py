"""`ddefuzz check`: capture a program or the user's own code in several stages, and explain each problem."""

from __future__ import annotations

from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.checking.check import Captured, Document, Offered, Problem, captures_of, failed, failures_of, problems_of
from ddefuzz.checking.owner import torch_itself
from ddefuzz.cli.check_advice import Limits, advise_case, write_best
from ddefuzz.cli.check_page import check_page
from ddefuzz.cli.check_report import check_report
from ddefuzz.cli.check_runs import of_one, run_cases, targets_of
from ddefuzz.cli.options import jobs_option, semantics_option, stages_option
from ddefuzz.cli.output import OutputFile, Writer, deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import writers_of
from ddefuzz.errors import EXIT_FOUND, EXIT_USAGE, NothingRanError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CAPTURE_STAGES, STAGES, Semantics, Stage
from ddefuzz.execute.scratch import check_folders
from ddefuzz.findings.by_key import KnownFinding, default_folder, known_findings
from ddefuzz.instrument.events import Mechanism
from ddefuzz.internal import guarded
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.table import OF_PROGRAMS, ORACLES
from ddefuzz.show.table import NAMES

DEFAULT_SEMANTICS: tuple[Mechanism, ...] = ("explicit",)

APART_ORACLES = {
    oracle.name: "; ".join(row.meaning for row in oracle.kinds.values())
    for oracle in ORACLES
    if oracle.stages and oracle.name in OF_PROGRAMS
}
"""The oracles with stages of their own, and what they look for."""


@click.command("check")
@click.argument("target")
@click.option("--case", "case", metavar="ID", help="Check only this case of a file with a list CASES.")
@click.option(
    "--unbacked",
    default="",
    metavar="SPEC",
    help="Dims of the example arguments to make unbacked: `ids:0,1`, several joined by `;`, `ids:0=n;mask:0=n` to "
    "share a size, or `all`. Default: those that NAME_unbacked and marks on tensors say.",
)
@stages_option
@click.option(
    "--oracle",
    "oracles",
    type=click.Choice(tuple(APART_ORACLES)),
    metavar="NAME",
    multiple=True,
    help="Also judge by this oracle, which is not used by default because it costs more: "
    f"{', '.join(f'{name} ({said})' for name, said in APART_ORACLES.items())}. Can be repeated.",
)
@semantics_option(DEFAULT_SEMANTICS)
@click.option(
    "--key",
    metavar="KEY",
    help="Exit with code 0 if the failure with this key occurs and with 1 if not, as test-case reducers expect.",
)
@click.option(
    "--known",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Name the problems that are findings in this folder. Default: the folder `findings`, if there is one.",
)
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit of one capture: CPU seconds of its process, and five times as many seconds by the clock.",
)
@click.option(
    "--advice/--no-advice",
    "advising",
    default=True,
    show_default=True,
    help="Try changes of your code that may let capture succeed.",
)
@click.option(
    "--budget",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long changes of your code are tried for one case.",
)
@click.option("--apply", "applying", is_flag=True, help="Write the best change of each case to your files.")
@click.option(
    "--patch",
    type=OutputFile(),
    help="Write the best change of each case to FILE as a unified diff.",
)
@jobs_option
@output_options("text", *NAMES)
def command(
    target: str,
    case: str | None,
    unbacked: str,
    stages: tuple[Stage, ...],
    oracles: tuple[str, ...],
    mechanisms: tuple[Mechanism, ...],
    key: str | None,
    known: Path | None,
    timeout: float,
    advising: bool,
    budget: float,
    applying: bool,
    patch: Path | None,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Capture a program, or your own model, in several stages, and explain what fails.

    The first line says whether it exports. Then each problem is printed once: whose code it is, the calls that lead
    there, where the sizes come from, and the changes of your code with which capture succeeds. Capture continues after
    an undecided guard, so that all problems are listed at once.

    Exit code 1: a capture fails, or a captured program is wrong. Exit code 2: a case cannot be built. Problems of
    PyTorch with neither effect are listed last.

    TARGET is FILE:NAME or package.module:NAME, where NAME is a function, an nn.Module, or a factory that returns
    (callable, args), (callable, args, kwargs) or a dict of these. Example arguments are NAME_args and NAME_kwargs, or
    example_args, in the same file. NAME_unbacked or NAME_dynamic_shapes say what is dynamic. TARGET may also be a saved
    program (.pt2), the file of a ddefuzz program, or a file with a list CASES. Code in TARGET is executed.

    \b
    Examples:
      ddefuzz check model.py:make_model
      ddefuzz check model.py:Net --unbacked 'ids:0,1' --stage export
      ddefuzz check model.py:make_model --patch fix.diff
    """
    apart = (stage.name for oracle in ORACLES if oracle.name in oracles for stage in oracle.stages)
    wanted = (*(stage for stage in STAGES if stage in {"eager", *stages}), *apart)
    semantics = tuple(map(Semantics, mechanisms))
    workers = 1 if ":" in target or case is not None else jobs
    with (
        Pool(workers, samples=False) as pool,
        LiveLine("starting a worker (importing torch takes some seconds)") as live,
    ):
        targets = targets_of(pool, target, case, unbacked)
        runs, refused = run_cases(pool, targets, wanted, semantics, timeout, live)
        check_folders()
        advice = []
        capturing = tuple(stage for stage in wanted if stage in CAPTURE_STAGES)
        for one, of_case in zip(targets, runs, strict=True) if advising and key is None else ():
            with of_one(one.case, refused), guarded(one.case):
                failures = [named for named in failures_of(of_case.tried) if named.failure.kind in KINDS]
                failures = [named for named in failures if named.failure.observation.stage != "eager"]
                if failures:
                    live.update(f"{one.case}: trying changes of your code")
                    advice.append((one.case, advise_case(pool, one, failures, capturing, Limits(timeout, budget))))
    if not runs:
        raise NothingRanError(f"{target}: found an empty list CASES, expected at least one case")
    captures, problems = list[Captured](), list[Problem]()
    for of_case in runs:
        with guarded(of_case.case):
            captures += captures_of(of_case)
            problems += problems_of(of_case)
    document = Document(
        target,
        torch_itself().version,
        tuple(one for one in captures if one.stage != "eager" or "eager" in stages or one.outcome != "ok"),
        tuple(problems),
        changes=tuple(Offered(name, change) for name, found in advice for change in found.changes),
        advice=tuple((name, msgspec.structs.replace(found, changes=())) for name, found in advice),
        known=_known(problems, known),
    )
    write_best((found for _, found in advice), target, patch, applying=applying)
    deliver(_writers(document), format_, outputs)
    if refused:
        raise SystemExit(EXIT_USAGE)
    if key is not None:
        if not any(key in one.keys for one in captures):
            raise SystemExit(EXIT_FOUND)
    elif failed(captures):
        raise SystemExit(EXIT_FOUND)


def _writers(document: Document) -> dict[str, Writer]:
    return {"text": lambda page: check_page(document, page), **writers_of(check_report(document))}


def _known(problems: list[Problem], folder: Path | None) -> tuple[KnownFinding, ...]:
    used = folder or default_folder()
    keys = [key for problem in problems for key in problem.keys]
    return known_findings(used, keys) if used is not None else ()
