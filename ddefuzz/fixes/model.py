"""The record of a fix: one change of PyTorch with the findings that it mends, and its text form in `findings/fixes/`.

A folder each: fix.toml, and of a verified fix change.patch, test.py and pull_request.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
import tomli_w

from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError, refuse
from ddefuzz.files import (
    check_folder,
    entries,
    is_folder,
    is_there,
    read_text,
    read_toml,
    remove_files,
    write_files,
)
from ddefuzz.fixes.native import is_of_torch
from ddefuzz.records import record_of

SCHEMA: Final = "ddefuzz.fix/1"

Label: TypeAlias = Literal["verified", "backed by forced answers", "untested idea", "in doubt"]
"""How much is known of a change:

verified                  it was made in a copy of torch, and nothing that was run there speaks against it
backed by forced answers  an answer of the guard was forced, and the results agree with eager; the change is not made
untested idea             it follows from the cause, or from answers that leave it open; it was not tried
in doubt                  it was tried in a copy of torch, answered or read, and something speaks against it: its doubts
"""

LABELS: Final[tuple[Label, ...]] = ("verified", "backed by forced answers", "untested idea", "in doubt")

ID: Final = re.compile(r"fix-[0-9a-f]{10}")

TOML, PATCH, TEST, REQUEST = "fix.toml", "change.patch", "test.py", "pull_request.md"
_TEXTS: Final = {PATCH: "patch", TEST: "test", REQUEST: "pull_request"}


class Fix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change. `change` says in a sentence what becomes of the code at `site`, and `form` names its kind.

    `findings` are mended by it, the first is the one that it was made for. `later` are those of them that are reached
    only with the change: the next guards of the same programs. `guards` are the anchors, `ops` the functions that reach
    them. `evidence` has a sentence for each thing that was tried, `doubts` for each that failed. `patch`, `test` and
    `pull_request` are texts of their own, empty for a change that is not verified.
    """

    id: str
    label: Label
    form: str
    change: str
    site: Site
    severity: str
    findings: tuple[str, ...]
    later: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    torch: str = ""
    file: str = ""
    evidence: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    patch: str = ""
    test: str = ""
    pull_request: str = ""

    @property
    def is_tried(self) -> bool:
        """Whether the change was made in a copy of torch. All other facts follow from the findings."""
        return self.label == "verified" or bool(self.doubts)

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            raise ValueError(f"found the id {self.id[:40]!r}, expected one such as fix-0123456789")
        if not all(map(is_of_torch, self.file.split(", "))):
            raise ValueError(f"found the file {self.file[:80]!r}, expected one of PyTorch")
        if not self.findings:
            raise ValueError("found a fix without findings, expected at least one")


def write_fixes(fixes: Iterable[Fix], folder: Path) -> None:
    """Write each fix to its folder. Other folders are left alone."""
    for fix in fixes:
        fields: dict[str, Any] = msgspec.to_builtins(fix)
        texts = {name: str(fields.pop(field, "")) for name, field in _TEXTS.items()}
        toml = tomli_w.dumps({"schema": SCHEMA, **_without_none(fields)})
        check_folder(folder, [f"{fix.id}/{name}" for name in (TOML, *texts)])
        write_files(folder, {f"{fix.id}/{name}": text for name, text in {TOML: toml, **texts}.items() if text})
        remove_files(folder, [f"{fix.id}/{name}" for name, text in texts.items() if not text])


def _without_none(value: Any) -> Any:
    return (
        {key: _without_none(one) for key, one in value.items() if one is not None} if isinstance(value, dict) else value
    )


def remove_others(fixes: Iterable[Fix], folder: Path) -> None:
    """Remove the folders of fixes that are not among these. Other folders are left alone."""
    kept = {fix.id for fix in fixes}
    others = [one.name for one in entries(folder) if is_there(one / TOML)] if is_folder(folder) else []
    remove_files(
        folder,
        [f"{one}/{name}" for one in others if ID.fullmatch(one) and one not in kept for name in (TOML, *_TEXTS)],
    )


def read_fixes(folder: Path) -> tuple[Fix, ...]:
    """The fixes of a folder, by id; none if there is no such folder. One that cannot be read is refused."""
    fixes: list[Fix] = []
    for place in entries(folder) if is_folder(folder) else ():
        if is_there(place / TOML):
            try:
                fixes.append(_read(place))
            except InputError as error:
                refuse(error)
    return tuple(fixes)


def _read(place: Path) -> Fix:
    path = place / TOML
    fields = read_toml(path)
    if (schema := fields.pop("schema", None)) != SCHEMA:
        raise InputError(f"{path}: found schema {schema!r}, expected {SCHEMA!r}")
    texts = {field: read_text(place / name) for name, field in _TEXTS.items() if is_there(place / name)}
    if isinstance(site := fields.get("site"), dict):
        fields["site"] = {"module": None, "function": None, **site}
    fix = record_of({**fields, **texts}, Fix, path)
    if fix.id != place.name:
        raise InputError(f"{path}: found id {fix.id!r}, expected that of its folder")
    return fix


def named(typed: str, fixes: Iterable[Fix]) -> Fix:
    """The one fix whose id begins so, or that mends a finding of this id. Raises `InputError`."""
    fitting = [
        fix
        for fix in fixes
        if any(name.startswith(typed) for name in (fix.id, fix.id.removeprefix("fix-"), *fix.findings))
    ]
    if typed and len(fitting) == 1:
        return fitting[0]
    if typed and fitting:
        raise InputError(
            f"{typed!r}: found {len(fitting)} such fixes, expected one of {', '.join(one.id for one in fitting[:5])}"
        )
    raise InputError(f"{typed!r}: found no such fix, expected an id that `ddefuzz fixes` lists")
