"""Looks up known findings by the keys of signatures, in a folder of findings as text. Reads only what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import ddefuzz
from ddefuzz.errors import InputError
from ddefuzz.files import read_toml
from ddefuzz.findings.known import read_known
from ddefuzz.findings.textform import FINDING, KNOWN


class KnownFinding(msgspec.Struct, frozen=True):
    """A finding that is known: the torch versions in which it is fixed, and links to its report.

    `op` is the op of the program that showed it first. The site may be reached by other ops as well.
    """

    id: str
    title: str
    state: str
    fixed_in: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    op: str = ""

    def __str__(self) -> str:
        fixed = f", fixed in {', '.join(self.fixed_in)}" if self.fixed_in else ""
        links = f", {' '.join(self.links)}" if self.links else ""
        first = f"the same site, first seen with {self.op}" if self.op else self.title
        return f"{self.id}, {self.state}{fixed}{links}: {first}"


def default_folder() -> Path | None:
    """The findings of the current folder, else those of the source tree that ddefuzz runs from."""
    for folder in (Path("findings"), Path(ddefuzz.__file__).parents[1] / "findings"):
        if (folder / KNOWN).is_file():
            return folder
    return None


def known_findings(folder: Path, keys: Iterable[str]) -> tuple[KnownFinding, ...]:
    """The findings with these keys, each once. A decision in the folder's known.toml makes a finding known by itself.

    Raises InputError if the folder has neither findings nor a known.toml: then it is another kind of folder.
    """
    has_decisions = (folder / KNOWN).is_file()
    if not has_decisions and not any(folder.glob(f"*/{FINDING}")):
        expected = f"a folder of them, as `ddefuzz findings export` writes, or one with a {KNOWN}"
        raise InputError(f"{folder}: found no findings, expected {expected}")
    decisions = read_known(folder / KNOWN) if has_decisions else {}
    found = []
    for key in dict.fromkeys(keys):
        path, decision = folder / key / FINDING, decisions.get(key)
        if path.is_file() or decision is not None:
            fields = _shown_in(path) if path.is_file() else {"title": decision.title if decision is not None else ""}
            found.append(
                KnownFinding(
                    key,
                    str(fields.get("title", "")),
                    decision.state if decision is not None else str(fields.get("state", "new")),
                    decision.fixed_in if decision is not None else tuple(map(str, fields.get("fixed_in", ()))),
                    (decision.url,) if decision and decision.url else tuple(map(str, fields.get("links", ()))),
                    next(iter(map(str, fields.get("ops", ()))), ""),
                )
            )
    return tuple(found)


def _shown_in(path: Path) -> dict[str, Any]:
    """A finding.toml, of which the lists are checked that are used here."""
    fields = read_toml(path)
    for name in ("fixed_in", "links", "ops"):
        if not isinstance(value := fields.get(name, []), list):
            raise InputError(f"{path}: found {name} = {value!r}, expected a list")
    return fields
