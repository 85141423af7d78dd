"""`ddefuzz diff`: the same programs under two versions of torch, side by side."""

from __future__ import annotations

from pathlib import Path

from ddefuzz.campaign.plan import parse_budget
from ddefuzz.campaign.replay import kept_cases
from ddefuzz.cli.command import Output, PathType, argument, click_command, formats, option
from ddefuzz.cli.options import DB, IN_STAGES, JOBS, profile_option, seed_option
from ddefuzz.cli.output import LiveLine, deliver_report
from ddefuzz.errors import InputError, NothingRanError
from ddefuzz.execute.protocol import ProgramSubject, Stage
from ddefuzz.files import check_folder, write_files
from ddefuzz.findings.url import DatabaseUrl, without_passwords
from ddefuzz.generate.profiles import PROFILES
from ddefuzz.show.table import NAMES
from ddefuzz.versions.diff import (
    compared,
    diff_report,
    diff_view,
    is_stored,
    stored_differences,
    stored_side,
)
from ddefuzz.versions.side_by_side import Ask, run_both, saved_text, side_of


@click_command("diff")
def command(
    old: str = argument("OLD"),
    new: str = argument("NEW"),
    paths: tuple[Path, ...] = argument("[PATH]..."),
    db: DatabaseUrl = DB,
    budget: str = option("How long to run (TIME), or how many cases to draw (Nx).", default="300x", metavar="TIME|Nx"),
    seed: int = seed_option("drawn cases"),
    profile: str = profile_option(tuple(PROFILES)),
    stages: tuple[Stage, ...] = IN_STAGES,
    save: Path | None = option(
        "Write the results to OLD.jsonl and NEW.jsonl in this folder.",
        type_=PathType(file_okay=False),
        metavar="FOLDER",
    ),
    jobs: int = JOBS,
    output: Output = formats("text", *NAMES),
) -> None:
    """Compare what the same programs do under two versions of torch.

    OLD and NEW are each [NAME=]PATH of an interpreter that has torch and ddefuzz, or of a file that --save wrote. The
    programs are the case files below PATH. Without PATH they are the cases of a uniform campaign, drawn under OLD and
    given to NEW as text. Each case runs in one of the stages: the first case in the first stage, and so on in turn.

    The output lists findings that are new, gone, or moved (the same program fails at another site). It also lists guard
    sites that only one version reaches, and guards whose fallback answer differs in the same program.

    OLD and NEW can also be stored campaigns. Then nothing is run. Give the URL of a database such as sqlite:///PATH. If
    it has several versions of torch, add #VERSION or #CAMPAIGN. A number alone is a campaign of --db. A database keeps
    findings and guard sites, and not the result of each case. So compare campaigns that ran the same cases: those with
    the same seed, budget and options, and with --uniform.

    Ctrl-C ends the runs and shows the cases that ran under both versions. Exit code 1: there is a new finding.
    """
    if any(map(is_stored, (old, new))):
        shown = f"{without_passwords(old)} {without_passwords(new)}"
        if paths or not (is_stored(old) and is_stored(new)):
            raise InputError(f"{shown}: found stored campaigns and also something to run, expected two stored ones")
        before, after = stored_side(old, db), stored_side(new, db)
        if not all(one.findings or one.sites or one.campaigns for one in (before, after)):
            raise NothingRanError(f"{shown}: found a side without campaigns, findings and guard sites")
        differences = stored_differences(before, after)
        deliver_report(diff_report(differences, before, after), diff_view(differences, before, after), output)
        return
    limit = parse_budget(budget)
    if limit.cpu_seconds is not None:
        raise InputError(f"--budget: found {budget!r}, expected a time such as 10m, or a number of cases such as 300x")
    sides = side_of(old), side_of(new)
    if sides[0].name == sides[1].name:
        raise InputError(f"{old}, {new}: found two sides named {sides[0].name!r}, expected different names: NAME=PATH")
    if not sides[0].interpreter and (paths or limit.seconds):
        raise InputError(f"{old}: found saved results and also programs or a time, expected neither: its cases are run")
    if paths:
        texts = {case.subject.text: None for case in kept_cases(paths) if isinstance(case.subject, ProgramSubject)}
        asks = [Ask(index, stages[index % len(stages)], text) for index, text in enumerate(texts)]
    else:
        most = 20_000 if limit.cases is None else limit.cases
        asks = [Ask(index, stages[index % len(stages)], profile=profile, seed=seed) for index in range(most)]
    saved = [f"{side.name}.jsonl" for side in sides]
    if save is not None:
        check_folder(save, saved)
    with LiveLine(f"running under {sides[0].name} and {sides[1].name}") as live:
        was, now, finished = run_both(
            *sides,
            asks,
            max(1, jobs // 2) if sides[0].interpreter and sides[1].interpreter else jobs,
            limit.seconds,
            lambda one, other: live.update(f"{one} cases done under {sides[0].name}, {other} under {sides[1].name}"),
        )
    if save is not None:
        write_files(save, dict(zip(saved, map(saved_text, (was, now)), strict=True)))
    differences = compared(was, now)
    if not differences.cases:
        raise NothingRanError("found no program that both versions judged, expected some")
    interrupted = not finished and limit.seconds is None
    deliver_report(diff_report(differences, *sides), diff_view(differences, *sides), output, interrupted=interrupted)
