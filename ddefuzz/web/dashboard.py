"""What every request needs: the database, who may do what, and how a record becomes an answer."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from ddefuzz.errors import DatabaseError
from ddefuzz.escape import block, json_text
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import said_of
from ddefuzz.show.html import environment as html_environment
from ddefuzz.show.html import highlighted, style_sheet
from ddefuzz.web.security import Access

HTMX = {
    "allowEval": False,
    "allowScriptTags": False,
    "historyCacheSize": 0,
    "includeIndicatorStyles": False,
    "refreshOnHistoryMiss": True,
    "selfRequestsOnly": True,
    "responseHandling": [{"code": "204", "swap": False}, {"code": "[2345]..", "swap": True}],
}
"""htmx without anything that the content security policy forbids. Pages of errors are shown, too."""


LOG = logging.getLogger("ddefuzz.web")

MOST_LOGGED = 1_000
MOST_SHOWN = 5
"""How many of the rows that cannot be read are in the log, and on a page."""

SECRETS = frozenset({"token", "form_token"})
"""Fields whose values no page may show."""


Line = Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$", description="one line of text")]
"""What people type into a field."""


AS_LIST = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
"""One value of a field that may have several."""


def among(*values: str) -> tuple[AfterValidator, Any]:
    """Accepts these values and no other."""

    def check(value: str) -> str:
        if value and value not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return value

    return AfterValidator(check), Field(json_schema_extra={"enum": ["", *values]})


class PageQuery(BaseModel):
    """The query of every page."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["html", "json"] = Field(default="html", description="json: the same data as one document")


class Unreadable(msgspec.Struct, frozen=True):
    """How many rows of the database the page left out because they cannot be read, and what is wrong with the first."""

    rows: int = 0
    first: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """Why a request has no answer, in one line."""

    status: int
    error: str
    schema: str = "ddefuzz.page.problem/1"


@dataclass(slots=True)
class Dashboard:
    """An open database, what the server allows, the pages of the menu, and the saved filters: queries by name.

    `streams` are the open ones of events. `ends` says whether the server is about to end.
    """

    database: Database
    access: Access
    menu: tuple[Any, ...]
    filters: Mapping[str, str] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    streams: set[object] = field(default_factory=set)
    ends: Callable[[], bool] = lambda: False

    def log(self, left_out: Iterable[str]) -> Unreadable:
        """Write what a page left out to the log, each row once. Pages load themselves again."""
        rows = tuple(left_out)
        for line in rows:
            if line not in self.logged and len(self.logged) < MOST_LOGGED:
                self.logged.add(line)
                LOG.warning("left out: %s", line)
        return Unreadable(len(rows), rows[:MOST_SHOWN])


def dashboard_of(request: Request) -> Dashboard:
    """That of the application."""
    dashboard: Dashboard = request.app.state.dashboard
    return dashboard


def answer(
    request: Request,
    record: msgspec.Struct | None,
    page: str,
    format_: Literal["html", "json"] = "html",
    *,
    status: int = 200,
    **more: object,
) -> Response:
    """The record as a page or as JSON. `more` are names for the template that say nothing about findings."""
    if format_ == "json":
        return Response(json_text(record), status, media_type="application/json")
    dashboard = dashboard_of(request)
    access, session = dashboard.access, dashboard.access.session_of(request)
    try:
        writer = access.writer(session)
    except DatabaseError:
        writer = None  # the page that says so has no forms
    token = access.form_token(session)
    names = {"record": record, "menu": dashboard.menu, "page": page, "form_token": token, "writer": writer} | more
    template = environment().get_template(f"{page}.html")
    text = template.render(access=access, filters=dashboard.filters, **names)
    response = Response(text, status, media_type="text/html; charset=utf-8")
    known = request.cookies.get(access.cookie) == session
    return response if known else access.with_session(response, session)


def problem(request: Request, status: int, error: str) -> Response:
    """A page, or JSON if that was asked for, that says in one line what is wrong."""
    wants_json = request.query_params.get("format") == "json" or request.url.path == "/openapi.json"
    record = Problem(status, " ".join(error.split()))
    return answer(request, record, "problem", "json" if wants_json else "html", status=status)


@cache
def environment() -> Environment:
    """The templates. Everything that is put into one is escaped."""
    made = html_environment("ddefuzz.web")
    path = partial(quote, safe="")
    made.filters.update(python=highlighted, when=when, breakable=breakable, path=path, said_of=said_of, zip=zip)
    made.globals.update(htmx=json.dumps(HTMX))
    return made


def when(time: str | None) -> Markup:
    """`2025-01-31 12:00`, in UTC."""
    if not time:
        return Markup("")
    time = block(time)
    return Markup('<time datetime="{}">{}</time>').format(time, time[:16].replace("T", " "))


def breakable(name: object) -> Markup:
    """A long name that may break after slashes, colons and dots."""
    return Markup(re.sub(r"(::|[/:._])(?=\w)", r"\1<wbr>", str(escape(block(str(name))))))


@cache
def static_files() -> Mapping[str, tuple[str, bytes]]:
    """The files below /static, by name: their type and content. No other path is ever opened."""
    folder = files("ddefuzz.web").joinpath("static")
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "LICENSE": "text/plain"}
    contents = {one.name: (types.get(one.name.rpartition(".")[2]), one.read_bytes()) for one in folder.iterdir()}
    known = {name: (type_, content) for name, (type_, content) in contents.items() if type_ is not None}
    return {**known, "style.css": ("text/css", style_sheet().encode())}


def bad_values(errors: Any) -> str:
    """What a validation of FastAPI found, in one line. Tokens are not repeated."""
    problems = []
    for error in errors:
        place = ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0])
        if error["type"] == "missing":
            value = "nothing"
        elif error["type"] == "extra_forbidden" or place in SECRETS:
            value = "a value"
        else:
            value = repr(str(error.get("input"))[:60])
        problems.append(f"{place}: found {value}: {error['msg']}")
    return "; ".join(problems[:3])
