"""The application: a route for each page and each form, and the answers to errors; and the server of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, TypeAlias

import h11
import msgspec
import uvicorn
from fastapi import FastAPI, Path, Query
from fastapi import Form as FormFields
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ddefuzz import __version__
from ddefuzz.errors import (
    DatabaseError,
    DdefuzzError,
    InputError,
    RowError,
    StaleError,
    UnsupportedError,
    refusals,
    unsupported_by,
)
from ddefuzz.escape import json_text
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By
from ddefuzz.repro.finding import finding_script
from ddefuzz.show.feed import MEDIA_TYPE
from ddefuzz.web import decision_forms, events
from ddefuzz.web.dashboard import Dashboard, Line, Problem, answer, bad_values, dashboard_of, problem, static_files
from ddefuzz.web.feed import feed
from ddefuzz.web.findings import FindingsQuery
from ddefuzz.web.pages import PAGES, Page
from ddefuzz.web.security import HEADERS, IS_HEAD, TOO_MANY, Access, RequestGuard, add_headers

Responses: TypeAlias = dict[int | str, dict[str, Any]]
ID: TypeAlias = Annotated[str, Path(max_length=80, pattern=r"^[A-Za-z0-9-]+$", description="The id of a finding.")]

_TEXT: Final = {"text/html": {"schema": {"type": "string"}}}


class LogoutForm(BaseModel):
    """The form of the button that logs out."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""


class LoginForm(LogoutForm):
    """The token that `ddefuzz tokens add` printed."""

    token: Line = ""


def make_app(database: Database, access: Access, filters: Mapping[str, str] | None = None) -> FastAPI:
    """The application on an open database."""
    app = FastAPI(
        title="ddefuzz dashboard",
        version=__version__,
        description="Findings of ddefuzz. Each page is also a JSON document: `?format=json`.",
        docs_url=None,
        redoc_url=None,
        default_response_class=Response,
        responses=_problems(),
    )
    app.state.dashboard = Dashboard(database, access, tuple(page for page in PAGES if page.in_menu), filters or {})
    for page in PAGES:
        app.add_api_route(page.path, _reader(page), summary=page.summary, responses=_of(page.record))
    script: Responses = {200: {"description": "A script", "content": {"text/x-python": {"schema": {"type": "string"}}}}}
    app.add_api_route("/findings/{finding_id}/script.py", _script, summary="The stand-alone script", responses=script)
    atom: Responses = {200: {"description": "A feed", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}}
    app.add_api_route("/feed.atom", _feed, summary="The latest findings that a query selects", responses=atom)
    bulk = _of(decision_forms.BulkResult)
    post = partial(app.add_api_route, methods=["POST"])
    post("/findings/bulk", _bulk, summary="Decide on several findings", responses=bulk)
    done: Responses = {303: {"description": "Done; the page of the finding follows"}}
    decided = partial(post, status_code=303, responses=done)
    for name, action in decision_forms.ACTIONS.items():
        decided(f"/findings/{{finding_id}}/{name}", _writer(action), summary=action.form.__doc__)
    app.add_api_route("/login", _login_page, summary="Where to type the token")
    often: Responses = {429: {"description": "Too many attempts", "content": _TEXT}}
    decided("/login", _log_in, summary="Allow this session to decide", responses={**done, **often})
    decided("/logout", _log_out, summary="End this session")
    app.add_api_route("/events", _events, include_in_schema=False)  # it has no end, as all that the document names
    app.add_api_route("/static/{name}", _static, include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DdefuzzError, _failed)
    app.add_exception_handler(Exception, _internal)
    app.add_middleware(RequestGuard, access=access)
    _with_schemas(app)
    return app


def _problems() -> Responses:
    content = {**_TEXT, "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    plain = {**content, "text/plain": {"schema": {"type": "string"}}}
    titles = {
        400: "Not possible",
        403: "Not allowed",
        404: "No such page",
        409: "Changed since",
        411: "No length",
        413: "Too long",
    }
    return {
        **{status: {"description": text, "content": plain} for status, text in titles.items()},
        421: {"description": "Wrong Host header", "content": plain},
        422: {"description": "A value that is not understood", "content": content},
        503: {"description": "The database cannot be used", "content": content},
    }


def _of(record: type[msgspec.Struct]) -> Responses:
    content = {**_TEXT, "application/json": {"schema": {"$ref": f"#/components/schemas/{record.__name__}"}}}
    moved = {"description": "The present id of the finding"}
    return {200: {"description": "The page", "content": content}, 307: moved}


def _with_parameters(function: Callable[..., Response], **types: Any) -> Callable[..., Response]:
    """The function, as FastAPI reads the names and types of its parameters."""
    kind = Parameter.KEYWORD_ONLY
    parameters = [Parameter(name, kind, annotation=annotation) for name, annotation in types.items()]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return function


def _reader(page: Page) -> Callable[..., Response]:
    """The function behind a page."""
    in_path = "{finding_id}" in page.path

    def read(request: Request, asked: Any, finding_id: str = "") -> Response:
        dashboard = dashboard_of(request)
        with refusals() as left_out:
            if in_path:
                whole = dashboard.database.resolve(finding_id).id
                if whole != finding_id:
                    return RedirectResponse(request.url.replace(path=page.path.format(finding_id=whole)), 307)
            record = page.make(dashboard.database, asked, *([finding_id] if in_path else []))
        record = msgspec.structs.replace(record, unreadable=dashboard.log(left_out))
        return answer(request, record, page.name, asked.format, asked=asked, **page.more)

    in_url = {"finding_id": ID} if in_path else {}
    return _with_parameters(read, request=Request, asked=Annotated[page.query, Query()], **in_url)


def _writer(action: decision_forms.Action) -> Callable[..., Response]:
    """The function behind a form of a finding."""

    def write(request: Request, finding_id: str, form: decision_forms.Form) -> Response:
        by = _by(request, form)
        decision_forms.decide(dashboard_of(request).database, finding_id, action, form, by)
        return RedirectResponse(f"/findings/{finding_id}", 303)

    return _with_parameters(write, request=Request, finding_id=ID, form=Annotated[action.form, FormFields()])


def _bulk(request: Request, form: Annotated[decision_forms.BulkForm, FormFields()]) -> Response:
    by = _by(request, form)
    done = decision_forms.decide_all(dashboard_of(request).database, form, by)
    return answer(request, done, "bulk")


def _login_page(request: Request) -> Response:
    return answer(request, None, "login")


def _log_in(request: Request, form: Annotated[LoginForm, FormFields()]) -> Response:
    """A new session, which may write. Raises an error for a wrong token, and for too many attempts."""
    access = dashboard_of(request).access
    _check_form(request, form.form_token)
    seconds = access.attempts.wait(request.client.host if request.client is not None else "")
    if seconds:
        raise HTTPException(429, f"{TOO_MANY}: try again in {seconds} s", {"Retry-After": str(seconds)})
    renewed = access.log_in(access.session_of(request), form.token.strip())
    if renewed is None:
        raise HTTPException(403, "token: found another one, expected one that `ddefuzz tokens add` printed")
    return access.with_session(RedirectResponse("/findings", 303), renewed)


def _log_out(request: Request, form: Annotated[LogoutForm, FormFields()]) -> Response:
    access = dashboard_of(request).access
    _check_form(request, form.form_token)
    return access.with_session(RedirectResponse("/login", 303), access.log_out(access.session_of(request)))


def _check_form(request: Request, form_token: str) -> None:
    access = dashboard_of(request).access
    if not access.knows(access.session_of(request), form_token):
        raise HTTPException(403, "found a form of an older session, expected one of this session: load the page again")


def _by(request: Request, form: decision_forms.Form) -> By:
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
    disposition = f'attachment; filename="{finding.id}.py"'
    return Response(finding_script(finding), media_type="text/x-python", headers={"Content-Disposition": disposition})


def _feed(request: Request, asked: Annotated[FindingsQuery, Query()]) -> Response:
    with refusals():
        text = feed(dashboard_of(request).database, asked, str(request.base_url))
    return Response(text, media_type=MEDIA_TYPE)


class _EventStream(StreamingResponse):
    """A stream that is one of `streams` until it ends, also if it never begins."""

    def __init__(self, lines: AsyncIterator[str], streams: set[object]) -> None:
        super().__init__(lines, media_type=events.MEDIA_TYPE)
        self._streams = streams
        self._streams.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.discard(self)


async def _events(request: Request) -> Response:
    dashboard = dashboard_of(request)
    if len(dashboard.streams) >= events.MOST_STREAMS:
        raise HTTPException(503, f"found {events.MOST_STREAMS} streams, expected fewer: close some pages")
    if request.scope.get(IS_HEAD):
        return Response(media_type=events.MEDIA_TYPE)

    def now() -> str:
        with refusals():
            return json_text(events.event_of(dashboard.database))

    async def lines() -> AsyncIterator[str]:
        try:
            async for line in events.stream(partial(run_in_threadpool, now), dashboard.ends):
                yield line
        except DatabaseError as error:
            yield f"event: problem\ndata: {json_text(Problem(503, ' '.join(str(error).split())))}\n\n"

    return _EventStream(lines(), dashboard.streams)


def _static(name: str) -> Response:
    file = static_files().get(name)
    if file is None:
        raise HTTPException(404, f"found no file {name[:60]!r}")
    return Response(file[1], media_type=file[0], headers={"Cache-Control": "max-age=600"})


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
        case StaleError():
            return problem(request, 409, str(error))
        case InputError():
            return problem(request, 404 if request.method == "GET" else 400, str(error))
    return problem(request, 500, f"an error of ddefuzz, please report it: {error}")


def _internal(request: Request, error: Exception) -> Response:
    """The server prints the traceback; the answer has none. Starlette sends it without calling `RequestGuard`."""
    response = problem(request, 500, f"an error of ddefuzz, please report it: {type(error).__name__}")
    add_headers(response.headers)
    return response


def _with_schemas(app: FastAPI) -> None:
    """Add the schemas of all records to the OpenAPI document."""
    records = [*(page.record for page in PAGES), decision_forms.BulkResult, Problem]
    _, components = msgspec.json.schema_components(records, ref_template="#/components/schemas/{name}")
    document = app.openapi()
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)


def listen(host: str, port: int) -> socket.socket:
    """A socket on which connections wait until the server answers.

    Raises `UnsupportedError` if the address cannot be used, `InputError` for what is none.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except ValueError as error:  # that of names too: an empty part, a null character
        raise InputError(f"--host: found {host[:80]!a}, expected an address or a name") from error
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise  # which says by itself what is expected
        raise UnsupportedError(f"{host}:{port}: {error.strerror}, expected an address that is free (--port)") from error
    return bound


def serve(
    database: Database,
    access: Access,
    bound: socket.socket,
    begun: Callable[[], None],
    filters: Mapping[str, str],
) -> None:
    """Answer requests. Errors are logged to stderr; `begun` is called once before the first."""
    begun()
    server_of(database, access, filters).run(sockets=[bound])


def server_of(database: Database, access: Access, filters: Mapping[str, str] | None = None) -> uvicorn.Server:
    """A server of HTTP/1.1 alone. It does not depend on which of uvicorn's extras are installed."""
    app = make_app(database, access, filters)
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # what is wrong with a body is in the answer
    logging.getLogger("asyncio").addFilter(_in_one_line)
    logging.getLogger("uvicorn.error").addFilter(_not_cancelled)
    server = uvicorn.Server(config)
    app.state.dashboard.ends = lambda: server.should_exit
    return server


@contextmanager
def answering(database: Database, access: Access) -> Iterator[int]:
    """The free port of this machine on which a thread of this process answers in the block."""
    with listen("127.0.0.1", 0) as bound:
        server = server_of(database, access)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


class Protocol(H11Protocol):
    """uvicorn's own, which also sends our headers with the answer to bytes that are no request."""

    def send_400_response(self, msg: str) -> None:
        """Answer and close the connection."""
        headers = {**HEADERS, "Cache-Control": "no-store", "Content-Type": "text/plain", "Connection": "close"}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        with suppress(h11.LocalProtocolError):  # an answer to the request before has begun
            for event in (
                h11.Response(status_code=400, headers=raw, reason=b"Bad Request"),
                h11.Data(data=f"{msg}\n".encode()),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle is not None:  # the application that reads the body finds that its client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()


def _in_one_line(record: logging.LogRecord) -> bool:
    """Log what the environment lacks without a traceback. asyncio tries again after a second."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and (limited := unsupported_by(error, "no connection can be accepted")):
        record.msg, record.args, record.exc_info = f"ddefuzz: {limited}", (), None
    return True


def _not_cancelled(record: logging.LogRecord) -> bool:
    """Log no request that the end of the server cancels: its client has not sent all of it."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "timeout graceful shutdown" not in record.getMessage()
