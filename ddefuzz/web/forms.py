"""The forms that change findings: one table of what they decide, by the functions of `findings.decisions`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ddefuzz.classify.signature import Cause
from ddefuzz.errors import InputError
from ddefuzz.findings import decisions
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, changed, parse_date
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.model import Finding, Priority
from ddefuzz.findings.typed import LABEL, VERSION, checked_url, labelled
from ddefuzz.web.rows import Line

MOST_AT_ONCE = 500
"""The limit for findings in one request."""


class Form(BaseModel):
    """Fields of every form. `form_token` is in the page that has the form, `by` is the name for the history,
    which the token gives where decisions need one."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""
    by: Line = ""
    why: Line = ""


class StateForm(Form):
    """A new state. Versions are separated by spaces or commas."""

    state: State
    fixed_in: Line = ""
    known_in: Line = ""
    expires: Line = ""


class DetailsForm(Form):
    """What else people decide. Each value replaces the one before it."""

    priority: Priority = ""
    owner: Line = ""
    labels: Line = ""
    cause: Cause
    title: Line = ""


class NoteForm(Form):
    """A note of several lines."""

    text: Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*$")]


class LinkForm(Form):
    """The URL of an issue, a pull request or a commit."""

    url: Line


class DupForm(Form):
    """The id of the original, or its beginning."""

    of: Line


class BulkForm(Form):
    """A decision on several findings. What is empty stays as it is. `labels` adds labels, or removes them (-label)."""

    ids: Annotated[list[Line], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = Field(
        default=[], max_length=MOST_AT_ONCE
    )
    state: State | Literal[""] = ""
    priority: Priority | Literal["none"] = ""
    owner: Line = ""
    labels: Line = ""
    undo: Literal["", "1"] = ""
    back: Line = ""


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The findings that a form changed, with their states."""

    changed: dict[str, str]
    undone: bool
    back: str
    schema: str = "ddefuzz.page.bulk/1"


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"[\s,]+", text.strip())) if text.strip(" ,") else ()


def _versions(text: str, field: str) -> tuple[str, ...]:
    for one in _words(text):
        if not VERSION.fullmatch(one):
            raise InputError(f"{field}: found {one!r}, expected versions of torch such as 2.14.0")
    return _words(text)


def _labels(text: str) -> tuple[str, ...]:
    for one in _words(text):
        if not LABEL.fullmatch(one):
            raise InputError(f"labels: found {one!r}, expected words such as backward or -backward")
    return _words(text)


def _state(database: Database, finding_id: str, form: StateForm, by: By) -> Finding:
    fixed_in = _versions(form.fixed_in, "fixed in")
    if fixed_in and form.state != "fixed":
        raise InputError(f"fixed in: found {form.fixed_in!r} with the state {form.state}, expected the state fixed")
    known_in = _versions(form.known_in, "decision for")
    expires = parse_date(form.expires, "decision until: ").isoformat() if form.expires else ""

    def decision(finding: Finding) -> Finding:
        if form.state != finding.state or fixed_in:
            finding = decisions.set_state(finding, form.state, by, fixed_in)
        return changed(finding, by, expires=expires, known_in=tuple(sorted(known_in)))

    return database.decide(finding_id, decision)


def _details(database: Database, finding_id: str, form: DetailsForm, by: By) -> Finding:
    fields = {
        "priority": form.priority,
        "owner": form.owner.strip(),
        "labels": tuple(sorted(set(_labels(form.labels)))),
        "cause": form.cause,
        "given_title": form.title.strip(),
    }
    return database.decide(finding_id, lambda finding: changed(finding, by, **fields))


def _note(database: Database, finding_id: str, form: NoteForm, by: By) -> Finding:
    text = form.text.replace("\r\n", "\n").strip()
    if not text:
        raise InputError("note: found no text, expected some")
    return database.decide(finding_id, lambda finding: decisions.note(finding, text, by))


def _link(database: Database, finding_id: str, form: LinkForm, by: By) -> Finding:
    url = checked_url(form.url.strip())
    return database.decide(finding_id, lambda finding: decisions.link(finding, url, by))


def _dup(database: Database, finding_id: str, form: DupForm, by: By) -> Finding:
    return database.dup(finding_id, database.resolve(form.of.strip()).id, by)


def _undup(database: Database, finding_id: str, _form: Form, by: By) -> Finding:
    return database.decide(finding_id, lambda finding: decisions.undup(finding, by))


def _undo(database: Database, finding_id: str, _form: Form, by: By) -> Finding:
    return database.decide(finding_id, lambda finding: decisions.undo(finding, by))


class Action(NamedTuple):
    """One form of a finding: its fields, and what it decides."""

    form: type[Form]
    decide: Callable[[Database, str, Any, By], Finding]
    summary: str


ACTIONS: dict[str, Action] = {
    "state": Action(StateForm, _state, "Change the state"),
    "details": Action(DetailsForm, _details, "Change priority, owner, labels, cause and title"),
    "note": Action(NoteForm, _note, "Add a note"),
    "link": Action(LinkForm, _link, "Add a link"),
    "dup": Action(DupForm, _dup, "Mark as a duplicate"),
    "undup": Action(Form, _undup, "Undo `dup`"),
    "undo": Action(Form, _undo, "Reverse the latest decision"),
}
"""The forms, by the last part of their path."""


def decide(database: Database, finding_id: str, action: Action, form: Form, by: By) -> Finding:
    """Change one finding in one transaction."""
    with database.transaction():
        return action.decide(database, finding_id, form, by)


def decide_all(database: Database, form: BulkForm, by: By) -> BulkResult:
    """Change all findings of a form, or none if one cannot be changed."""
    ids = tuple(dict.fromkeys(form.ids))
    if not ids:
        raise InputError("findings: found none chosen, expected at least one")
    labels = _labels(form.labels)
    if not (form.undo or form.state or form.priority or form.owner.strip() or labels):
        raise InputError("found nothing to set, expected a state, a priority, an owner or a label")

    def decision(finding: Finding) -> Finding:
        if form.undo:
            return decisions.undo(finding, by)
        if form.state and form.state != finding.state:
            finding = decisions.set_state(finding, form.state, by)
        fields: dict[str, Any] = {"labels": labelled(finding.labels, labels)}
        if form.priority:
            fields["priority"] = "" if form.priority == "none" else form.priority
        if form.owner.strip():
            fields["owner"] = form.owner.strip()
        return changed(finding, by, **fields)

    with database.transaction():
        done = {name: database.decide(name, decision).state for name in ids}
    return BulkResult(changed=dict(done), undone=bool(form.undo), back=form.back)
