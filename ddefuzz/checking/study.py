"""The study: many models, each checked, and compared with a plain export and with draft_export."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from ddefuzz.checking.check import START_SECONDS, Executor, Progress, Target, describe, run_cases, trial_in
from ddefuzz.checking.edits import ChangeKind
from ddefuzz.checking.problems import failures_of, package, problems_of
from ddefuzz.checking.search import Search, may_help
from ddefuzz.errors import InputError, refuse, refused
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.protocol import EXPLICIT, CallableSubject, Stage, Subject
from ddefuzz.execute.worker import Task, late
from ddefuzz.files import append, is_file, json_lines, read_text, to_install
from ddefuzz.findings.model import Finding, normalized
from ddefuzz.internal import guarded, noted
from ddefuzz.oracles.capture import KINDS
from ddefuzz.show.blocks import Block, Heading, Items, prose, table

SCHEMA = "ddefuzz.study/3"

STAGES: tuple[Stage, ...] = ("eager", "export")

ARGUMENTS = "_args"

MODELS = "ddefuzz.checking.models"

GROUPS = {"ExportDB": "torch", "transformers": "transformers"}
"""The groups of models in `MODELS`, each with the package that it is from."""

Sizes: TypeAlias = Literal["unbacked", "backed"]
"""How the dims are dynamic that a model's owner says are: `mark_unbacked`, or `Dim.AUTO`."""


class Settings(msgspec.Struct, frozen=True):
    """What a row depends on besides the model's name. A stored row is used again only under equal settings.

    `source` is the version of the package that has the model, or a digest of the file.
    """

    torch: str
    sizes: Sizes
    timeout: float
    budget: float
    source: str


class Plain(msgspec.Struct, frozen=True):
    """How a call of torch ended: its error (empty if it returned), CPU seconds, and what draft_export reports."""

    error: str = ""
    cpu_seconds: float = 0.0
    reported: int = 0


class HeldOut(msgspec.Struct, frozen=True):
    """A change that check offers: its kind, and on how many held-out sets of inputs it agrees, and does not."""

    kind: ChangeKind
    does: str
    agrees: int = 0
    differs: int = 0


class ModelResult(msgspec.Struct, frozen=True):
    """One model. `check` is the outcome of its export under ddefuzz; `problems` are those that check lists, and `keys`
    the keys of their signatures.
    """

    group: str
    name: str
    settings: Settings
    check: str
    plain: Plain
    draft: Plain
    problems: int = 0
    offered: tuple[HeldOut, ...] = ()
    tried: int = 0
    check_seconds: float = 0.0
    keys: tuple[str, ...] = ()

    @property
    def same_outcome(self) -> bool:
        """Whether check and a plain capture end alike."""
        return (self.check == "ok") == (not self.plain.error)

    @property
    def ratio(self) -> float | None:
        """CPU seconds of the export under ddefuzz for each of a plain one. None if both are too short to compare."""
        return self.check_seconds / self.plain.cpu_seconds if self.plain.cpu_seconds > 0.02 else None


def sections(rows: Iterable[ModelResult]) -> dict[str, tuple[ModelResult, ...]]:
    """The rows by the title of their table: torch, kind of sizes, limits. Of rows for one model, the last counts."""
    tables: dict[tuple[str, bool, float, float], dict[tuple[str, str], ModelResult]] = {}
    for row in rows:
        settings = row.settings
        table = tables.setdefault((settings.torch, settings.sizes == "backed", settings.budget, settings.timeout), {})
        table[row.group, row.name] = row
    return {
        f"torch {torch}, {'backed' if backed else 'unbacked'} sizes, {budget:g} s of changes for each model, "
        f"{timeout:g} s for each capture": tuple(table.values())
        for (torch, backed, budget, timeout), table in sorted(tables.items(), key=lambda item: item[0])
    }


class StudyModel(NamedTuple):
    """A model to study, and its settings."""

    group: str
    target: Target
    settings: Settings


class Study(NamedTuple):
    """The models so far. `is_done` is False after Ctrl-C."""

    rows: list[ModelResult]
    is_done: bool


def study(folder: Path, groups: tuple[str, ...], settings: Settings, stored: Path | None, progress: Progress) -> Study:
    """Study the models of a folder and of the groups, all without a group.

    Each row is added to the file `stored`, and models that have a row there are not studied again. Raises InputError if
    there is no model, or none can be made.
    """
    rows = read_rows(stored) if stored is not None and is_file(stored) else []
    done = {(row.group, row.name, row.settings) for row in rows}
    is_done = False
    with Pool(1) as pool:
        every = models(pool, folder, groups, settings, progress)
        todo = [one for one in every if (one.group, one.target.case, one.settings) not in done]
        with suppress(KeyboardInterrupt):
            for number, model in enumerate(todo, 1):
                name = model.target.case
                progress.update(f"{number} of {len(todo)}: {name}")
                try:
                    with guarded(name) as guard:
                        rows.append(study_model(pool, model, progress))
                except InputError as error:
                    refuse(InputError(f"{name}: {error}"))
                    continue
                if guard.error is not None:
                    progress.say(str(guard.error))
                elif stored is not None:
                    append(stored, msgspec.json.encode(rows[-1]) + b"\n")
            is_done = True
    if not rows and not is_done:
        raise KeyboardInterrupt
    if not rows and not noted() and not refused():
        raise InputError(f"{folder}: found no models, expected files with NAME and NAME_args")
    return Study(rows, is_done)


def read_rows(path: Path) -> list[ModelResult]:
    """The rows of a file of an earlier run. Raises InputError for a line that is none."""
    return [row for _, row in json_lines(path, ModelResult, "a model as this version of `ddefuzz study` keeps it")]


def models(
    executor: Executor, folder: Path, groups: tuple[str, ...], settings: Settings, progress: Progress
) -> Iterator[StudyModel]:
    """The models of a folder (the group `own`) and of the groups of `MODELS`."""

    def model(group: str, name: str, path: str, source: str) -> StudyModel:
        subject = CallableSubject(path, name=name, backed=settings.sizes == "backed")
        return StudyModel(group, Target(name, subject), msgspec.structs.replace(settings, source=source))

    if not groups or "own" in groups:
        for file in sorted(folder.glob("*.py")):
            try:
                source, names = read_text(file), tuple(models_in(file))
            except InputError as error:
                refuse(error)
                continue
            digest = hashlib.sha256(source.encode()).hexdigest()[:12]
            yield from (model("own", name, str(file), digest) for name in names)
    for group, package_name in GROUPS.items():
        if groups and group not in groups:
            continue
        listed = executor.submit(names_of, group, START_SECONDS).result()
        if not listed or isinstance(listed, LostTask):
            expected = f"expected what `{to_install('study')}` installs"
            progress.say(f"{group}: found no models, {listed.reason if isinstance(listed, LostTask) else expected}")
            continue
        for name in listed:
            yield model(group, name, MODELS, str(package(package_name)))


def models_in(file: Path) -> Iterator[str]:
    """The names of a file that have example arguments. The file is parsed, not executed."""
    source = read_text(file)
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"{file}: found no Python ({reason}), expected a file with models") from error
    for node in parsed.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)]) if name.endswith(ARGUMENTS):
                yield name.removesuffix(ARGUMENTS)


names_of = Task(f"{MODELS}:names", str, tuple[str, ...])
"""The names of the models of a group."""


class PlainCapture(msgspec.Struct, frozen=True):
    """A capture by torch alone: `export` or `draft_export`."""

    subject: Subject
    function: Literal["export", "draft_export"]


def plain(capture: PlainCapture) -> Plain:
    """Capture by torch alone, as a task of a worker."""
    return cast("Plain", late(MODELS).plain(capture.subject, capture.function))


def study_model(executor: Executor, model: StudyModel, progress: Progress) -> ModelResult:
    """Check a model, and compare."""
    target, timeout = model.target, model.settings.timeout
    exporting = PlainCapture(target.subject, "export")
    exported = executor.submit(plain, exporting, timeout).result()
    drafted = executor.submit(plain, PlainCapture(target.subject, "draft_export"), timeout).result()
    (runs,), *_ = run_cases(executor, [target], STAGES, (EXPLICIT,), timeout, progress)
    again = executor.submit(plain, exporting, timeout).result()  # warm, as the run of check is
    by_stage = {tried.observation.stage: tried.observation for tried in runs.tried}
    problems = problems_of(runs)
    row = ModelResult(
        model.group,
        target.case,
        model.settings,
        by_stage["export"].outcome if by_stage["eager"].outcome == "ok" else "not-judged",
        _plain(exported if isinstance(again, LostTask) else again),
        _plain(drafted),
        problems=len(problems),
        check_seconds=by_stage["export"].cpu_seconds,
        keys=tuple(key for problem in problems for key in problem.keys),
    )
    failures = [failure for failure in failures_of(runs.tried) if failure.failure.kind in KINDS and may_help(failure)]
    if not failures or row.check != "fail":
        return row
    described = executor.submit(describe, target.subject, timeout).result()
    if isinstance(described, LostTask):
        return row
    trial = trial_in(executor, timeout)
    search = Search(target.subject, described, ("export",), trial, model.settings.budget)
    search.run(failures[0])
    offered = []
    for offer in search.offers:
        change = offer.change
        held = trial(msgspec.structs.replace(offer.candidate, held_out=True, may_refuse=True)).compared[1:]
        differs = sum(bool(inputs.differs) or (change.kind == "rewrite" and inputs.refused) for inputs in held)
        agrees = sum(not inputs.original and not inputs.refused and not inputs.differs for inputs in held)
        offered.append(HeldOut(change.kind, change.does, agrees, differs))
    return msgspec.structs.replace(row, offered=tuple(offered), tried=len(search.tried))


def with_models(findings: Iterable[Finding], rows: Iterable[ModelResult]) -> Iterator[Finding]:
    """The findings that the models of these rows meet, with the names of the models. Others are left out."""
    names: dict[str, list[str]] = {}
    for row in rows:
        for key in row.keys:
            names.setdefault(key, []).append(row.name)
    for finding in findings:
        if met := names.get(finding.signature.key):
            yield normalized(msgspec.structs.replace(finding, models=(*finding.models, *met)))


def _plain(ended: Plain | LostTask) -> Plain:
    return Plain(ended.reason) if isinstance(ended, LostTask) else ended


TITLES = ("group", "model", "check", "plain", "draft", "problems", "change", "passing", "held out", "ratio")


def study_view(rows: Iterable[ModelResult], command: str, day: str) -> Iterator[Block]:
    """A table for each torch and kind of sizes, with its totals."""
    yield Heading("Models", 1)
    yield prose(
        "What `ddefuzz check` makes of models. This page is what `{}` printed on {}. "
        "**plain** is `torch.export.export` without ddefuzz, **draft** is `torch.export.draft_export`: the issues that "
        "it reports. **problems** are those that check lists. **change** is the kind of the best change offered, "
        "**passing** how many changes pass, **held out** on how many other sets of inputs the best one agrees with "
        "eager. **ratio** is the CPU time of the export under ddefuzz for each second of a plain one, in one process.",
        command,
        day,
    )
    for title, of_table in sections(rows).items():
        yield Heading(title)
        yield Items(totals(of_table))
        yield table(TITLES, map(_cells, of_table), right=TITLES[5:])


def totals(rows: tuple[ModelResult, ...]) -> tuple[str, ...]:
    """The numbers over all models."""
    failing = [row for row in rows if row.check == "fail"]
    kinds = Counter(row.offered[0].kind for row in failing if row.offered)
    best = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "none"
    rewrites = [one for row in rows for one in row.offered if one.kind == "rewrite"]
    ratios = sorted(row.ratio for row in rows if row.ratio is not None)
    return (
        f"outcome as a plain capture: {sum(row.same_outcome for row in rows)} of {len(rows)}",
        f"not captured: {len(failing)}; with a change that passes: {kinds.total()} ({best})",
        f"rewrites offered: {len(rewrites)}; that differ on held-out inputs: {sum(o.differs > 0 for o in rewrites)}",
        f"problems: {sum(row.problems for row in rows)} by check, {sum(row.draft.reported for row in rows)} by "
        f"draft_export, which fails on {sum(bool(row.draft.error) for row in rows)}",
        f"CPU ratio: {f'{ratios[len(ratios) // 2]:.2f}' if ratios else 'not known'} (median of {len(ratios)})",
    )


def _cells(row: ModelResult) -> tuple[str, ...]:
    change, held = f"none of {row.tried}" if row.tried else "", ""
    if row.offered:
        best = row.offered[0]
        change, held = best.kind, f"{best.agrees} of {best.agrees + best.differs}"
    draft = "fails" if row.draft.error else str(row.draft.reported)
    torch = ("fails" if row.plain.error else "ok", draft)
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    passing = str(len(row.offered)) if row.offered else ""
    return (row.group, row.name, row.check, *torch, str(row.problems), change, passing, held, ratio)
