"""The application: a route for each page and each form, and the answers to errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from fastapi import FastAPI, Path, Query
from fastapi import Form as FormFields
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ddefuzz import __version__
from ddefuzz.errors import DatabaseError, DdefuzzError, InputError, RowError
from ddefuzz.execute.protocol import CAPTURE_STAGES
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By
from ddefuzz.refusals import refusals
from ddefuzz.repro.finding import finding_script
from ddefuzz.web import forms
from ddefuzz.web.dashboard import Dashboard, Problem, answer, bad_values, dashboard_of, problem, static_files
from ddefuzz.web.pages import PAGES, Page
from ddefuzz.web.rows import Line, Unreadable
from ddefuzz.web.security import FROM_ALL_ADDRESSES, FROM_ONE_ADDRESS, WINDOW_SECONDS, Access, Guarded, add_headers

ID: TypeAlias = Annotated[str, Path(max_length=80, pattern=r"^[A-Za-z0-9-]+$", description="The id of a finding.")]

SHOWN: Final = 5
"""How many of the rows that cannot be read a page names."""

_TEXT: Final = {"text/html": {"schema": {"type": "string"}}}


class LoginForm(BaseModel):
    """The token that `ddefuzz tokens add` printed."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""
    token: Line = ""


class LogoutForm(BaseModel):
    """The form of the button that logs out."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""


class LoginPage(msgspec.Struct, frozen=True):
    """Whether a token is needed, and whether writing is possible at all."""

    needs_token: bool
    read_only: bool
    schema: str = "ddefuzz.page.login/1"


def make_app(database: Database, access: Access) -> FastAPI:
    """The application on an open database."""
    app = FastAPI(
        title="ddefuzz dashboard",
        version=__version__,
        description="Findings of ddefuzz. Each page is also a JSON document: `?format=json`.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.dashboard = Dashboard(database, access, tuple(page for page in PAGES if page.menu))
    for page in PAGES:
        app.add_api_route(page.path, _reader(page), summary=page.summary, responses=_of(page.record), **_HTML)
    app.add_api_route("/findings/{finding_id}/script.py", _script, summary="The stand-alone script", **_SCRIPT)
    app.add_api_route("/findings/bulk", _bulk, methods=["POST"], summary="Decide on several findings", **_BULK)
    for name, action in forms.ACTIONS.items():
        path = f"/findings/{{finding_id}}/{name}"
        app.add_api_route(path, _writer(action), methods=["POST"], summary=action.summary, **_WRITTEN)
    app.add_api_route("/login", _login_page, summary="Where to type the token", responses=_problems(), **_HTML)
    app.add_api_route("/login", _log_in, methods=["POST"], summary="Allow this session to decide", **_LOGGED_IN)
    app.add_api_route("/logout", _log_out, methods=["POST"], summary="End this session", **_WRITTEN)
    app.add_api_route("/static/{name}", _static, include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DdefuzzError, _failed)
    app.add_exception_handler(Exception, _internal)
    app.add_middleware(Guarded, access=access)
    _with_schemas(app)
    return app


def _problems() -> dict[int | str, dict[str, Any]]:
    content = {**_TEXT, "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    plain = {**content, "text/plain": {"schema": {"type": "string"}}}
    said = {400: "Not possible", 403: "Not allowed", 404: "No such page", 411: "No length", 413: "Too long"}
    return {
        **{status: {"description": text, "content": plain} for status, text in said.items()},
        421: {"description": "Wrong Host header", "content": plain},
        422: {"description": "A value that is not understood", "content": content},
        503: {"description": "The database cannot be used", "content": content},
    }


def _of(record: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    content = {**_TEXT, "application/json": {"schema": {"$ref": f"#/components/schemas/{record.__name__}"}}}
    moved = {"description": "The present id of the finding"}
    return {200: {"description": "The page", "content": content}, 307: moved, **_problems()}


_HTML: Final[dict[str, Any]] = {"response_class": Response}
_SCRIPT: Final[dict[str, Any]] = {
    "response_class": Response,
    "responses": {
        200: {"description": "A script", "content": {"text/x-python": {"schema": {"type": "string"}}}},
        **_problems(),
    },
}
_BULK: Final[dict[str, Any]] = {"response_class": Response, "responses": _of(forms.BulkResult)}
_WRITTEN: Final[dict[str, Any]] = {
    "status_code": 303,
    "response_class": Response,
    "responses": {303: {"description": "Done; the page of the finding follows"}, **_problems()},
}
_LOGGED_IN: Final[dict[str, Any]] = {
    **_WRITTEN,
    "responses": {**_WRITTEN["responses"], 429: {"description": "Too many attempts", "content": _TEXT}},
}


def _reader(page: Page) -> Callable[..., Response]:
    """The function behind a page."""
    in_path = "{finding_id}" in page.path

    def read(request: Request, asked: Any, finding_id: str = "") -> Response:
        dashboard = dashboard_of(request)
        with refusals() as left_out:
            if in_path:
                found = dashboard.database.resolve(finding_id).id
                if found != finding_id:
                    return RedirectResponse(request.url.replace(path=page.path.format(finding_id=found)), 307)
            record = page.make(dashboard.database, *([finding_id] if in_path else []), asked)
        dashboard.log(left_out)
        unreadable = Unreadable(len(left_out), tuple(left_out)[:SHOWN])
        record = msgspec.structs.replace(record, unreadable=unreadable)
        return answer(request, record, page.template, asked.format, asked=asked, **page.more)

    kind = Parameter.KEYWORD_ONLY
    parameters = [
        Parameter("request", kind, annotation=Request),
        Parameter("asked", kind, annotation=Annotated[page.query, Query()]),
        *([Parameter("finding_id", kind, annotation=ID)] if in_path else []),
    ]
    read.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return read


def _writer(action: forms.Action) -> Callable[..., Response]:
    """The function behind a form of a finding."""

    def write(request: Request, finding_id: str, form: forms.Form) -> Response:
        by = _by(request, form)
        forms.decide(dashboard_of(request).database, finding_id, action, form, by)
        return RedirectResponse(f"/findings/{finding_id}", 303)

    kind = Parameter.KEYWORD_ONLY
    write.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter("request", kind, annotation=Request),
            Parameter("finding_id", kind, annotation=ID),
            Parameter("form", kind, annotation=Annotated[action.form, FormFields()]),
        ]
    )
    return write


def _bulk(request: Request, form: Annotated[forms.BulkForm, FormFields()]) -> Response:
    by = _by(request, form)
    done = forms.decide_all(dashboard_of(request).database, form, by)
    return answer(request, done, "bulk.html", "html")


def _login_page(request: Request) -> Response:
    access = dashboard_of(request).access
    return answer(request, LoginPage(access.valid is not None, access.read_only), "login.html", "html")


def _log_in(request: Request, form: Annotated[LoginForm, FormFields()]) -> Response:
    access = dashboard_of(request).access
    _check_form(request, form.form_token)
    address = request.client.host if request.client is not None else ""
    renewed = _renewed(access, access.session_of(request), form, address)
    response = RedirectResponse("/findings", 303)
    access.send_session(response, renewed)
    return response


def _renewed(access: Access, session: str, form: LoginForm, address: str) -> str:
    """A new session, which may write. Raises an error for a wrong token, and for too many attempts."""
    seconds = access.attempts.wait(address)
    if seconds:
        raise HTTPException(
            429,
            f"found too many attempts to log in, expected at most {FROM_ONE_ADDRESS} from one address and "
            f"{FROM_ALL_ADDRESSES} in all within {WINDOW_SECONDS} s: try again in {seconds} s",
            {"Retry-After": str(seconds)},
        )
    renewed = access.log_in(session, form.token.strip())
    if renewed is None:
        raise HTTPException(403, "token: found another one, expected one that `ddefuzz tokens add` printed")
    return renewed


def _log_out(request: Request, form: Annotated[LogoutForm, FormFields()]) -> Response:
    access = dashboard_of(request).access
    _check_form(request, form.form_token)
    response = RedirectResponse("/login", 303)
    access.send_session(response, access.log_out(access.session_of(request)))
    return response


def _check_form(request: Request, form_token: str) -> None:
    access = dashboard_of(request).access
    if not access.knows(access.session_of(request), form_token):
        raise HTTPException(403, "found a form of an older session, expected one of this session: load the page again")


def _by(request: Request, form: forms.Form) -> By:
    """Who decides, when and why. Raises an error unless this session may write and the form is its own."""
    access = dashboard_of(request).access
    if access.read_only:
        raise HTTPException(403, "the server was started with --read-only: decisions are not possible")
    _check_form(request, form.form_token)
    writer = access.writer(access.session_of(request))
    if writer is None:
        raise HTTPException(403, "found no token for writing, expected one that `ddefuzz tokens add` printed: /login")
    typed = form.by.strip() if access.valid is None else ""
    return By(typed or writer, datetime.now(UTC), form.why.strip())


def _script(request: Request, finding_id: ID) -> Response:
    finding = dashboard_of(request).database.get(finding_id)
    if finding.stage not in CAPTURE_STAGES:
        raise InputError(f"{finding.id}: found the stage {finding.stage}, expected one with a script")
    disposition = f'attachment; filename="{finding.id}.py"'
    return Response(finding_script(finding), media_type="text/x-python", headers={"Content-Disposition": disposition})


def _static(name: str) -> Response:
    found = static_files().get(name)
    if found is None:
        raise HTTPException(404, f"found no file {name[:60]!r}")
    return Response(found[1], media_type=found[0], headers={"Cache-Control": "max-age=600"})


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem(request, 422, bad_values(error.errors()))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"found no page {request.url.path[:120]!r}" if error.status_code == 404 else str(error.detail)
    response = problem(request, error.status_code, detail)
    response.headers.update(error.headers or {})
    return response


def _failed(request: Request, error: Exception) -> Response:
    match error:
        case RowError():
            return problem(request, 404, str(error))
        case DatabaseError():
            return problem(request, 503, str(error))
        case InputError():
            return problem(request, 404 if request.method == "GET" else 400, str(error))
    return problem(request, 500, f"an error of ddefuzz, please report it: {error}")


def _internal(request: Request, error: Exception) -> Response:
    """The server prints the traceback; the answer has none. Starlette sends it without calling `Guarded`."""
    response = problem(request, 500, f"an error of ddefuzz, please report it: {type(error).__name__}")
    add_headers(response.headers)
    return response


def _with_schemas(app: FastAPI) -> None:
    """Add the schemas of all records to the OpenAPI document."""
    records = [*(page.record for page in PAGES), forms.BulkResult, Problem]
    _, components = msgspec.json.schema_components(records, ref_template="#/components/schemas/{name}")
    document = app.openapi()
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)
