"""The records of the study: a model, the result of plain torch for it, and the result of check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.checking.changes import ChangeKind
from ddefuzz.escape import markdown_code, markdown_table, markdown_text

SCHEMA = "ddefuzz.study/3"

Sizes: TypeAlias = Literal["unbacked", "backed"]
"""How the dims are dynamic that a model's owner says are: `mark_unbacked`, or `Dim.AUTO`."""


class Group(msgspec.Struct, frozen=True):
    """Models of one module: its name or path, and the package that has them."""

    title: str
    module: str
    package: str


GROUPS = (
    Group("ExportDB", "ddefuzz.checking.exportdb", "torch"),
    Group("transformers", "ddefuzz.checking.model_families", "transformers"),
)


class Settings(msgspec.Struct, frozen=True):
    """What a row depends on besides the model's name. A kept row is used again only under equal settings.

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


class Offered(msgspec.Struct, frozen=True):
    """A change that check offers: its kind, and on how many held-out sets of inputs it agrees, and does not."""

    kind: ChangeKind
    does: str
    agrees: int = 0
    differs: int = 0


class Studied(msgspec.Struct, frozen=True):
    """One model. `check` is the outcome of its export under ddefuzz; `problems` are those that check lists."""

    group: str
    name: str
    settings: Settings
    check: str
    plain: Plain
    draft: Plain
    problems: int = 0
    offered: tuple[Offered, ...] = ()
    tried: int = 0
    check_seconds: float = 0.0

    @property
    def same_outcome(self) -> bool:
        """Whether check and a plain capture end alike."""
        return (self.check == "ok") == (not self.plain.error)

    @property
    def ratio(self) -> float | None:
        """CPU seconds of the export under ddefuzz for each of a plain one. None if both are too short to compare."""
        return self.check_seconds / self.plain.cpu_seconds if self.plain.cpu_seconds > 0.02 else None


class Section(NamedTuple):
    """The rows of one table: a version of torch, a kind of sizes, and the limits of a model."""

    title: str
    rows: tuple[Studied, ...]


def sections(rows: Iterable[Studied]) -> tuple[Section, ...]:
    """The rows by table. Of rows for one model, the last counts."""
    tables: dict[tuple[str, bool, float, float], dict[tuple[str, str], Studied]] = {}
    for row in rows:
        one = row.settings
        table = tables.setdefault((one.torch, one.sizes != "unbacked", one.budget, one.timeout), {})
        table[row.group, row.name] = row
    return tuple(
        Section(
            f"torch {torch}, {'backed' if backed else 'unbacked'} sizes, {budget:g} s of changes for each model, "
            f"{timeout:g} s for each capture",
            tuple(table.values()),
        )
        for (torch, backed, budget, timeout), table in sorted(tables.items(), key=lambda one: one[0])
    )


TITLES = ("group", "model", "check", "plain", "draft", "problems", "change", "passing", "held out", "ratio")


def page(rows: Iterable[Studied], command: str, day: str) -> str:
    """The tables in Markdown, one for each torch and kind of sizes, with their totals."""
    lines = [
        "# Models",
        "",
        f"What `ddefuzz check` makes of models. This page is what {markdown_code(command)} printed on {day}.",
        "*plain* is `torch.export.export` without ddefuzz, *draft* is `torch.export.draft_export`: the issues that it",
        "reports. *problems* are those that check lists. *change* is the kind of the best change offered, *passing*",
        "how many changes pass, *held out* on how many other sets of inputs the best one agrees with eager.",
        "*ratio* is the CPU time of the export under ddefuzz for each second of a plain one, in the same process.",
    ]
    for section in sections(rows):
        lines += [
            "",
            f"## {markdown_text(section.title)}",
            "",
            *totals(section.rows),
            "",
            markdown_table(TITLES, map(_row, section.rows)),
        ]
    return "\n".join(lines) + "\n"


def totals(rows: tuple[Studied, ...]) -> tuple[str, ...]:
    """The numbers over all models."""
    failing = [row for row in rows if row.check == "fail"]
    best = [row.offered[0] for row in failing if row.offered]
    kinds = {kind: sum(one.kind == kind for one in best) for kind in dict.fromkeys(one.kind for one in best)}
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
    rewrites = [one for row in rows for one in row.offered if one.kind == "rewrite"]
    ratios = sorted(row.ratio for row in rows if row.ratio is not None)
    median = f"{ratios[len(ratios) // 2]:.2f}" if ratios else "not known"
    return (
        f"- outcome as a plain capture: {sum(row.same_outcome for row in rows)} of {len(rows)}",
        f"- not captured: {len(failing)}; with a change that passes: {len(best)} ({said})",
        f"- rewrites offered: {len(rewrites)}; that differ on held-out inputs: {sum(o.differs > 0 for o in rewrites)}",
        f"- problems: {sum(row.problems for row in rows)} by check, {sum(row.draft.reported for row in rows)} by "
        f"draft_export, which fails on {sum(bool(row.draft.error) for row in rows)}",
        f"- CPU ratio: {median} (median of {len(ratios)})",
    )


def _row(row: Studied) -> tuple[str, ...]:
    best = row.offered[0] if row.offered else None
    change = best.kind if best is not None else (f"none of {row.tried}" if row.tried else "")
    held = f"{best.agrees} of {best.agrees + best.differs}" if best is not None else ""
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    draft = "fails" if row.draft.error else str(row.draft.reported)
    plain = "fails" if row.plain.error else "ok"
    passing = str(len(row.offered)) if row.offered else ""
    cells = (row.group, row.name, row.check, plain, draft, str(row.problems), change, passing, held, ratio)
    return tuple(map(markdown_text, cells))
