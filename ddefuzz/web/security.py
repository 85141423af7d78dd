"""Who may read and write: the Host header, sessions, tokens against forged requests, and headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES: Final = 256 * 1024
"""The limit for the body of a request."""

MOST_WRITERS: Final = 1_000
"""How many sessions may be logged in at a time. The oldest is forgotten."""

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "clipboard-write=(self)",
}
"""Sent with every answer. Nothing but the server's own files is loaded, and no page may frame ours."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a server allows.

    `hosts` are the names by which it may be called; addresses are always allowed, because no name server can make a
    browser believe that a foreign page has the origin of an address. `token` is needed for writing, empty if nobody
    needs one. `by` is the default name in the history. `secret` is new in each process.
    """

    hosts: frozenset[str] = frozenset({"localhost"})
    read_only: bool = False
    token: str = ""
    by: str = "unknown"
    cookie: str = "ddefuzz-session"
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    writers: dict[str, None] = field(default_factory=dict)

    def session_of(self, request: Request) -> str:
        """The session of a request, a new one if it has none."""
        session = request.cookies.get(self.cookie, "")
        return session if len(session) == 43 and session.isascii() else secrets.token_urlsafe(32)

    def form_token(self, session: str) -> str:
        """What the forms of a session send, and no foreign page knows."""
        return hmac.new(self.secret, session.encode(), hashlib.sha256).hexdigest()

    def knows(self, session: str, form_token: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self.form_token(session).encode(), form_token.encode())

    def log_in(self, session: str, token: str) -> str | None:
        """A new session that may write, if the token is right. The old one ends: somebody else may have chosen its id
        and put it into the browser.
        """
        if not self.token or not hmac.compare_digest(self.token.encode(), token.encode()):
            return None
        self.writers.pop(session, None)
        renewed = secrets.token_urlsafe(32)
        self.writers[renewed] = None
        while len(self.writers) > MOST_WRITERS:
            del self.writers[next(iter(self.writers))]
        return renewed

    def log_out(self, session: str) -> str:
        """A new session, which may not write if a token is needed."""
        self.writers.pop(session, None)
        return secrets.token_urlsafe(32)

    def send_session(self, response: Response, session: str) -> None:
        """Set the cookie of a session. Scripts cannot read it, and forms of other sites do not send it."""
        response.set_cookie(self.cookie, session, httponly=True, samesite="lax", path="/")

    def may_write(self, session: str) -> bool:
        """Whether a session may change findings."""
        return not self.read_only and (not self.token or session in self.writers)


def add_headers(headers: MutableHeaders) -> None:
    """Add `HEADERS` to those of an answer, and forbid to store it unless it says otherwise."""
    headers.update(HEADERS)
    headers.setdefault("Cache-Control", "no-store")


class Guarded:
    """Rejects requests with a wrong Host, from foreign pages or of too many bytes, and adds the headers to all
    answers.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI asks for it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(MutableHeaders(scope=message))
            await send(message)

        refused = self._refused(scope["method"], Headers(scope=scope))
        await (refused or self.app)(scope, receive, send_with_headers)

    def _refused(self, method: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not _is_host(host, self.access.hosts):
            expected = ", ".join(sorted(self.access.hosts))
            return _said(421, f"Host: found {host[:80]!r}, expected {expected}, or an address (--allow-host NAME)")
        if method in READS:
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return _said(403, f"Origin: found {origin[:80]!r}, expected a form of this server")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _said(403, "found a form of another site, expected one of this server")
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return _said(411, "found no Content-Length, expected the number of bytes")
        if len(length) > 12 or int(length) > MOST_BYTES:
            return _said(413, f"found {length[:20]} bytes, expected at most {MOST_BYTES}")
        return None


def _is_host(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header has one of the names, or an address."""
    try:
        found = urlsplit(f"//{host}")
        name, _ = found.hostname, found.port
    except ValueError:
        return False
    if not name or found.netloc != host or "@" in host:
        return False
    return name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _said(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status)
