"""The page of one finding, with everything that helps to decide on it; and that of all: filters, order, rows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, get_args
from urllib.parse import parse_qs, quote, urlencode

import msgspec
from pydantic import Field, ValidationError

from ddefuzz.errors import InputError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS
from ddefuzz.findings.inventory import installed_version
from ddefuzz.findings.lifecycle import STATES, State
from ddefuzz.findings.listing import AboutData, Query, Sort
from ddefuzz.findings.model import FindingSummary, Priority, as_document, stamp
from ddefuzz.fixes.group import of_same_change
from ddefuzz.oracles.table import NAMES, ORACLES, kinds
from ddefuzz.oracles.table import stages as every_stage
from ddefuzz.show.evidence import (
    VERDICTS,
    Lines,
    StackLines,
    facts_of,
    message_of,
    native_place,
    same_program,
    similar,
    site_lines,
    snippet_of,
    stack_to_site,
)
from ddefuzz.versions.model import program_key
from ddefuzz.web.dashboard import AS_LIST, Line, PageQuery, Unreadable, among, bad_values
from ddefuzz.web.decision_forms import FormOf, forms_of
from ddefuzz.web.versions import MatrixCell, matrix_cells

MOST_NEAR = 60
"""How many findings of the same place are compared to find similar ones."""


class FindingPage(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `finding` is its document as `findings show --format json` has it. `message` is torch's, empty for
    what was captured. `source_url` is the line of `source` at the tag of its release, empty for other builds, and
    `guard_url` the line of C++ that the guard recorded. `same_change` are other findings that a change for this one
    would mend.
    """

    finding: dict[str, Any]
    facts: dict[str, str]
    message: str
    source_url: str
    guard_url: str
    snippet: str
    source: Lines | None
    stack: StackLines | None
    forms: tuple[FormOf, ...]
    matrix: dict[str, MatrixCell]
    same_change: tuple[FindingSummary, ...]
    similar: tuple[FindingSummary, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.finding/4"


def finding_page(database: Database, asked: PageQuery, finding_id: str) -> FindingPage:
    """The page. Raises `InputError` if there is no such finding."""
    del asked
    finding = database.get(finding_id)
    others = database.read(lambda session: listing.near(session, finding, MOST_NEAR))
    alike = database.read(lambda session: listing.of_same_program(session, finding))
    same_change = of_same_change(finding, others)
    source, place = site_lines(finding), native_place(finding)
    stack = None if finding.evidence is None else stack_to_site(finding.evidence, finding.site)
    return FindingPage(
        finding=as_document(finding),
        facts={name: value for name, value in (*facts_of(finding), same_program(alike)) if value},
        snippet=snippet_of(finding),
        message=message_of(finding),
        source_url="" if source is None else url_of(source.path, source.line, installed_version()),
        guard_url="" if place is None else url_of(*place, (*finding.torch_versions, "")[0]),
        source=source,
        stack=stack if stack is not None and stack.lines else None,
        forms=forms_of(finding),
        matrix=matrix_cells(database.read(lambda session: listing.results(session, finding.id)), program_key(finding)),
        same_change=same_change,
        similar=tuple(similar(finding, [one for one in others if one not in same_change])),
    )


def url_of(path: str, line: int, torch: str) -> str:
    """A line in torch's repository. A build that is no release has no tag there."""
    release = torch.partition("+")[0]
    if not re.fullmatch(r"\d+\.\d+\.\d+", release, re.ASCII):
        return ""
    return f"https://github.com/pytorch/pytorch/blob/v{release}/{quote(path)}#L{line}"


_CAUSES = next(row.value.choices for row in DECISIONS if row.name == "cause" and row.value is not None)
_Kind = Annotated[str, *among(*kinds())]
_State = Annotated[str, *among(*STATES)]


class FindingsQuery(PageQuery):
    """Which findings, in which order, and which page of them. An empty value selects all."""

    q: Line = Field(
        default="",
        description="Words that must all occur in the id, site, code at the site, a person's title, owner, labels, "
        "ops, notes or links.",
    )
    state: Annotated[list[_State], AS_LIST] = Field(default=[], max_length=20)
    open: Literal["yes", "all"] = Field(
        default="yes", description="yes: only findings with something left to do, unless a state is asked for."
    )
    returned: Literal["", "1"] = Field(default="", description="1: only findings that returned after a fix.")
    oracle: Annotated[str, *among(*NAMES)] = ""
    kind: Annotated[list[_Kind], AS_LIST] = Field(default=[], max_length=40)
    cause: Annotated[list[Annotated[str, *among(*_CAUSES)]], AS_LIST] = Field(default=[], max_length=20)
    stage: Annotated[list[Annotated[str, *among(*every_stage())]], AS_LIST] = Field(default=[], max_length=20)
    verdict: Annotated[str, *among(*VERDICTS)] = Field(default="", description="The verdict of some stage.")
    torch: Line = Field(default="", description="Seen in this version of torch.")
    site: Line = Field(default="", description="The call site; * stands for anything.")
    op: Line = Field(default="", description="A function that reaches the site; * stands for anything.")
    priority: Priority = ""
    owner: Line = ""
    label: Line = ""
    campaign: str = Field(default="", pattern=r"^[0-9]{0,9}$", description="Seen by the campaign of this number.")
    data: AboutData = Field(default="yes", description="Whether the failure depends on data, by its control runs.")
    sort: Sort = "severity"
    order: Literal["", "asc", "desc"] = Field(default="", description="Default: desc for times and counts, else asc.")
    page: int = Field(default=1, ge=1, le=1_000_000)
    per: int = Field(default=50, ge=1, le=200, description="Rows on a page.")

    @property
    def descending(self) -> bool:
        """Whether the largest comes first."""
        return self.order == "desc" or (not self.order and self.sort in ("count", "first", "last"))

    def selected(self) -> Query:
        """The query for the database."""
        wanted = tuple(filter(None, self.kind))
        if self.oracle:
            of_oracle = next(tuple(one.kinds) for one in ORACLES if one.name == self.oracle)
            wanted = tuple(kind for kind in of_oracle if not wanted or kind in wanted) or ("none of them",)
        names = ("torch", "site", "op", "owner", "label")
        return Query(
            words=tuple(self.q.split()),
            states=msgspec.convert([state for state in self.state if state], tuple[State, ...]),
            open_only=self.open == "yes" and not any(self.state),
            kinds=wanted,
            causes=tuple(filter(None, self.cause)),
            stages=tuple(filter(None, self.stage)),
            verdict=self.verdict,
            returned=self.returned == "1",
            priority=self.priority,
            campaign=int(self.campaign or 0),
            about_data=self.data,
            **{name: getattr(self, name).strip() for name in names},
        )

    def linked(self, **changes: object) -> str:
        """The query string of this query with changes, without what is the default."""
        values = {**self.model_dump(exclude={"format"}), **changes}
        plain = {name: field.default for name, field in type(self).model_fields.items()}
        return urlencode({name: value for name, value in values.items() if value and value != plain[name]}, doseq=True)


def saved_filter(typed: str) -> tuple[str, str]:
    """The name and the query of `NAME?QUERY`. Raises `InputError`."""
    name, _, text = (part.strip() for part in typed.partition("?"))
    if not (name and text):
        raise InputError(f"--filter: found {typed[:80]!r}, expected NAME?QUERY, such as 'mine?owner=ada&sort=last'")
    fields: dict[str, Any] = dict(parse_qs(text, keep_blank_values=True))
    try:
        query = FindingsQuery.model_validate({key: one[0] if len(one) == 1 else one for key, one in fields.items()})
    except ValidationError as error:
        problems = ({**one, "loc": ("query", *one["loc"])} for one in error.errors())
        raise InputError(f"--filter {name}: {bad_values(problems)}") from None
    return name, query.linked(page=1)


class FindingsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the findings that a query selects. `left_out` is the number of those that fail in the same way with
    static or backed sizes, and `closed` of those with nothing left to do, if the query leaves them out. `loaded` is
    when the rows were read.
    """

    total: int
    left_out: int
    closed: int
    page: int
    pages: int
    sort: str
    descending: bool
    torch: tuple[str, ...]
    rows: tuple[FindingSummary, ...]
    loaded: str
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.findings/4"


def findings_page(database: Database, asked: FindingsQuery) -> FindingsPage:
    """The rows."""
    query, first, loaded = asked.selected(), (asked.page - 1) * asked.per, stamp(datetime.now(UTC))
    order = partial(listing.page, query=query, sort=asked.sort, descending=asked.descending)
    page = database.read(partial(order, first=first, most=asked.per))
    return FindingsPage(
        total=page.total,
        left_out=page.left_out if asked.data == "yes" else 0,
        closed=page.closed,
        page=asked.page,
        pages=max(1, -(-page.total // asked.per)),
        sort=asked.sort,
        descending=asked.descending,
        torch=database.read(listing.torch_versions),
        rows=page.findings,
        loaded=loaded,
    )


CHOICES: dict[str, tuple[str, ...]] = {
    "oracle": NAMES,
    "kind": tuple(kinds()),
    "cause": _CAUSES,
    "stage": every_stage(),
    "state": STATES,
    "verdict": tuple(VERDICTS),
    "priority": tuple(filter(None, get_args(Priority))),
}
"""The values of the filters that are chosen from a list."""
