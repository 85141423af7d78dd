"""The forms that change findings, made from the table of decisions (`findings.decisions.DECISIONS`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field, create_model

from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, By, Decision, Value, text_of, words
from ddefuzz.findings.model import Finding, Priority
from ddefuzz.web.dashboard import AS_LIST, Line, among

MOST_AT_ONCE = 500
"""The limit for findings in one request."""

STATES = tuple(row.name for row in DECISIONS if row.group == "state")

Typed = list[tuple[Decision, str | None]]


class Form(BaseModel):
    """Fields of every form. `form_token` is in the page that has the form, `by` is the name for the history,
    which the token gives where decisions need one."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""
    by: Line = ""
    why: Line = ""


class BulkForm(Form):
    """A decision on several findings. What is empty stays as it is. `labels` adds labels, or removes them (-label)."""

    ids: Annotated[list[Line], AS_LIST] = Field(default=[], max_length=MOST_AT_ONCE)
    state: Annotated[str, *among(*STATES)] = ""
    priority: Annotated[str, *among(*filter(None, get_args(Priority)), "none")] = ""
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
    has no value at first has one.
    """

    name: str
    title: str
    button: str
    fields: tuple[FormField, ...]
    possible: bool
    has_reason: bool
    filled: bool


class Action(NamedTuple):
    """What one form decides, by the rows of the table, and what it sends."""

    rows: tuple[Decision, ...]
    form: type[Form]
    summary: str


def actions_of(rows: Sequence[Decision]) -> dict[str, Action]:
    """The forms, by the last part of their path."""
    groups: dict[str, list[Decision]] = {}
    for row in rows:
        groups.setdefault(row.form or row.name, []).append(row)
    return {name: Action(tuple(group), _model(name, group), _summary(group)) for name, group in groups.items()}


def _summary(rows: Sequence[Decision]) -> str:
    if rows[0].group == "command":
        return rows[0].help.partition("\n")[0]
    labels = [row.value.label for row in rows if row.group == "field" and row.value is not None]
    return f"Change {', '.join([*(['the state'] if rows[0].group == 'state' else []), *labels])}"


def _model(name: str, rows: Sequence[Decision]) -> type[Form]:
    fields: dict[str, Any] = {}
    for row in rows:
        if row.group == "state":
            fields["state"] = (Annotated[str, *among(*STATES)], ...)
        if row.value is not None:
            type_ = _type(row.value)
            fields[row.value.name] = (type_, ...) if row.group == "command" else (type_ | None, None)
    return create_model(f"{name.title()}Form", __base__=Form, __doc__=_summary(rows), **fields)


def _type(value: Value) -> Any:
    if value.choices:
        return Annotated[str, *among(*value.choices)]
    lines = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*$")]
    return lines if value.input == "lines" else Line


ACTIONS: dict[str, Action] = actions_of(DECISIONS)


def forms_of(finding: Finding, actions: dict[str, Action] = ACTIONS) -> tuple[FormOf, ...]:
    """The forms of a finding, with its present values. Those that do not fit are left out, except `undo`."""
    forms = (_form_of(name, action.rows, finding) for name, action in actions.items())
    return tuple(form for form in forms if form.possible or form.name == "undo")


def _form_of(name: str, rows: Sequence[Decision], finding: Finding) -> FormOf:
    fields, states = list(_fields(rows, finding)), rows[0].group == "state"
    if states:
        moves = {row.name: f"{row.name}: {row.help}" for row in rows if row.group == "state" and row.fits(finding)}
        fields.insert(
            0, FormField(name="state", label="state", input="choice", choices={finding.state: finding.state, **moves})
        )
    labels = ", ".join(field.label for field in fields)
    return FormOf(
        name=name,
        title=rows[0].title or ("" if states or not fields else labels),
        button=rows[0].button or ("Save state" if states else "Save"),
        fields=tuple(fields),
        possible=any(row.fits(finding) for row in rows) and not (states and finding.duplicate_of is not None),
        has_reason=rows[0].has_reason,
        filled=any(field.value for field in fields if field.name != "cause") or (finding.state == "fixed" and states),
    )


def _fields(rows: Iterable[Decision], finding: Finding) -> Iterable[FormField]:
    for row in rows:
        if (value := row.value) is not None:
            present = text_of(getattr(finding, row.name)) if row.group == "field" else ""
            yield FormField(
                name=value.name,
                label=value.label,
                input="choice" if value.choices else value.input,
                value=present,
                hint=value.hint,
                choices={choice: choice or "none" for choice in value.choices},
                required=row.group == "command",
            )


def decide(database: Database, finding_id: str, action: Action, form: Form, by: By) -> Finding:
    """Change one finding in one transaction."""
    with database.transaction():
        return database.apply(finding_id, _typed(database.get(finding_id), action, form), by)


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
            chosen.append((row, _whole(finding, row, text)))
    return chosen


def _whole(finding: Finding, row: Decision, text: str | None) -> str | None:
    """What was typed for a field that shows its value. Words that are gone are removed."""
    if row.value is None or not row.value.signed or text is None:
        return text
    gone = [word for word in getattr(finding, row.name) if word not in words(text)]
    return " ".join([*words(text), *(f"-{word}" for word in gone)])


def decide_all(database: Database, form: BulkForm, by: By) -> BulkResult:
    """Change all findings of a form, or none if one cannot be changed."""
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
            moved = form.state and form.state != database.get(name).state
            chosen = [(rows["undo"], None)] if form.undo else [*([(rows[form.state], None)] if moved else []), *typed]
            done[name] = str(database.apply(name, chosen, by).state)
    return BulkResult(changed=done, undone=bool(form.undo), back=form.back)
