"""The forms that change findings, made from the table of decisions (`findings.decisions.DECISIONS`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field, create_model

from ddefuzz.errors import InputError, StaleError
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, By, Decision, text_of, words
from ddefuzz.findings.model import Finding, Priority
from ddefuzz.web.dashboard import AS_LIST, Line, among

MOST_AT_ONCE = 500
"""The limit for findings in one request."""

STATES = tuple(row.name for row in DECISIONS if row.group == "state")

Typed = list[tuple[Decision, str | None]]


class Form(BaseModel):
    """Fields of every form. `form_token` is in the page that has the form, `by` is the name for the history,
    which the token gives where decisions need one. `version` is that of the finding on the page (`version_of`)."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""
    by: Line = ""
    why: Line = ""
    version: Line = ""


class BulkForm(Form):
    """A decision on several findings. What is empty stays as it is. `labels` adds labels, or removes them (-label).
    `loaded` is when the list was read.
    """

    ids: Annotated[list[Line], AS_LIST] = Field(default=[], max_length=MOST_AT_ONCE)
    state: Annotated[str, *among(*STATES)] = ""
    priority: Annotated[str, *among(*filter(None, get_args(Priority)), "none")] = ""
    owner: Line = ""
    labels: Line = ""
    undo: Literal["", "1"] = ""
    back: Line = ""
    loaded: Line = ""


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The findings that a form changed, with their states."""

    changed: dict[str, str]
    undone: bool
    back: str
    schema: str = "ddefuzz.page.bulk/1"


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One field: its name, label, type, present value, an example, and what to choose from with its meaning."""

    name: str
    label: str
    input: str
    value: str = ""
    hint: str = ""
    choices: dict[str, str] = {}
    required: bool = False


class FormOf(msgspec.Struct, frozen=True, kw_only=True):
    """A form of one finding. It is below its title, which is empty if the form is always shown. `filled`: a field that
    has no value at first has one. `version` goes with what is typed; a form that only adds something has none.
    """

    name: str
    title: str
    button: str
    fields: tuple[FormField, ...]
    possible: bool
    has_reason: bool
    filled: bool
    version: str = ""


class Action(NamedTuple):
    """What one form decides, by the rows of the table, and what it sends."""

    rows: tuple[Decision, ...]
    form: type[Form]


def actions_of(rows: Sequence[Decision]) -> dict[str, Action]:
    """The forms, by the last part of their path."""
    groups: dict[str, list[Decision]] = {}
    for row in rows:
        groups.setdefault(row.form or row.name, []).append(row)
    return {name: Action(tuple(group), _model(name, group)) for name, group in groups.items()}


def _model(name: str, rows: Sequence[Decision]) -> type[Form]:
    fields: dict[str, Any] = {}
    for row in rows:
        if row.group == "state":
            fields["state"] = (Annotated[str, *among(*STATES)], ...)
        if (value := row.value) is not None:
            lines = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*$")]
            chosen = Annotated[str, *among(*value.choices)]
            type_: Any = chosen if value.choices else lines if value.input == "lines" else Line
            fields[value.name] = (type_, ...) if row.group == "command" else (type_ | None, None)
    labels = [row.value.label for row in rows if row.group == "field" and row.value is not None]
    states = ["the state"] if rows[0].group == "state" else []
    is_command = rows[0].group == "command"
    summary = rows[0].help.partition("\n")[0] if is_command else f"Change {', '.join([*states, *labels])}"
    return create_model(f"{name.title()}Form", __base__=Form, __doc__=summary, **fields)


ACTIONS: dict[str, Action] = actions_of(DECISIONS)


ADDING = frozenset({"note", "link"})
"""The forms that add to a finding, and replace nothing that another person decided."""


def version_of(finding: Finding) -> str:
    """What another decision changes: their number."""
    return str(len(finding.history))


def forms_of(finding: Finding, actions: dict[str, Action] = ACTIONS) -> tuple[FormOf, ...]:
    """The forms of a finding, with its present values. Those that do not fit are left out, except `undo`."""
    forms = (_form_of(name, action.rows, finding) for name, action in actions.items())
    return tuple(form for form in forms if form.possible or form.name == "undo")


def _form_of(name: str, rows: Sequence[Decision], finding: Finding) -> FormOf:
    first, states = rows[0], rows[0].group == "state"
    fields = [
        FormField(
            name=value.name,
            label=value.label,
            input="choice" if value.choices else value.input,
            value=text_of(getattr(finding, row.name)) if row.group == "field" else "",
            hint=value.hint,
            choices={choice: choice or "none" for choice in value.choices},
            required=row.group == "command",
        )
        for row in rows
        if (value := row.value) is not None
    ]
    if states:
        moves = {row.name: f"{row.name}: {row.help}" for row in rows if row.group == "state" and row.fits(finding)}
        choices = {finding.state: finding.state, **moves}
        fields.insert(0, FormField(name="state", label="state", input="choice", choices=choices))
    labels = ", ".join(field.label for field in fields)
    return FormOf(
        name=name,
        title=first.title or ("" if states else labels),
        button=first.button or ("Save state" if states else "Save"),
        fields=tuple(fields),
        possible=any(row.fits(finding) for row in rows) and not (states and finding.duplicate_of is not None),
        has_reason=first.has_reason,
        filled=any(field.value for field in fields if field.name != "cause") or (finding.state == "fixed" and states),
        version="" if name in ADDING else version_of(finding),
    )


def decide(database: Database, finding_id: str, action: Action, form: Form, by: By) -> Finding:
    """Change one finding in one transaction. Raises `StaleError` if others have decided since the form was made."""
    with database.transaction():
        finding = database.get(finding_id)
        if form.version and form.version != version_of(finding):
            raise _stale(finding)
        return database.apply(finding_id, _typed(finding, action, form), by)


def _stale(finding: Finding) -> StaleError:
    """The error of a form that is older than another decision: who, when and what."""
    latest = max(finding.history, key=lambda entry: (entry.when, entry.who), default=None)
    what = "another form"
    if latest is not None:
        entries = [one for one in finding.history if (one.when, one.who) == (latest.when, latest.who)]
        fields = "; ".join(f"{one.field} {one.before or '-'} → {one.after or '-'}" for one in entries)
        what = f"a form that is older than another decision ({latest.who} at {latest.when}: {fields})"
    return StaleError(f"{finding.id}: found {what}, expected one of the page as it is now: load it again")


def _typed(finding: Finding, action: Action, form: Form) -> Typed:
    values = form.model_dump()
    chosen: Typed = []
    for row in action.rows:
        text: str | None = None if row.value is None else values[row.value.name]
        if row.group == "state":
            state = values["state"]
            if text and row.value is not None and state != row.name:
                label = row.value.label
                raise InputError(f"{label}: found {text!r} with the state {state}, expected the state {row.name}")
            if state == row.name and (text or state != finding.state):
                chosen.append((row, text or None))
        elif row.group == "command" or text is not None:
            if row.value is not None and row.value.signed:  # the field shows its words; those that are gone are removed
                typed = words(text or "")
                text = " ".join([*typed, *(f"-{word}" for word in getattr(finding, row.name) if word not in typed)])
            chosen.append((row, text))
    return chosen


def decide_all(database: Database, form: BulkForm, by: By) -> BulkResult:
    """Change all findings of a form, or none if one cannot be changed.

    Raises `StaleError` if others have decided on one since the list was read.
    """
    ids = tuple(dict.fromkeys(form.ids))
    if not ids:
        raise InputError("findings: found none chosen, expected at least one")
    rows = {row.name: row for row in DECISIONS}
    given = {"priority": form.priority, "owner": form.owner.strip(), "labels": form.labels.strip()}
    typed: Typed = [(rows[name], "" if text == "none" else text) for name, text in given.items() if text]
    if not (form.undo or form.state or typed):
        raise InputError("found nothing to set, expected a state, a priority, an owner or a label")
    done = {}
    with database.transaction():
        for name in ids:
            finding = database.get(name)
            if form.loaded and any(entry.when > form.loaded for entry in finding.history):
                raise _stale(finding)
            moved = form.state and form.state != finding.state
            chosen = [(rows["undo"], None)] if form.undo else [*([(rows[form.state], None)] if moved else []), *typed]
            done[name] = str(database.apply(name, chosen, by).state)
    return BulkResult(changed=done, undone=bool(form.undo), back=form.back)
