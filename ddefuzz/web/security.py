"""Who may read and write: the Host header, sessions, tokens against forged requests, and headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ddefuzz.findings import tokens
from ddefuzz.findings.model import Token

MOST_BYTES: Final = 256 * 1024
"""The limit for the body of a request."""

MOST_WRITERS: Final = 1_000
"""How many sessions may be logged in at a time. The oldest is forgotten."""

WINDOW_SECONDS: Final = 60
FROM_ONE_ADDRESS: Final = 10
FROM_ALL_ADDRESSES: Final = 100
"""The limits for attempts to log in, right or wrong ones, within the window."""

TOO_MANY: Final = (
    f"found too many attempts to log in, expected at most {FROM_ONE_ADDRESS} from one address and "
    f"{FROM_ALL_ADDRESSES} in all within {WINDOW_SECONDS} s"
)

LONGEST_HOST: Final = 300

IS_HEAD: Final = "ddefuzz.is_head"
"""The key in the scope of a request that was made by HEAD, and is answered as GET."""

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
class Attempts:
    """The latest attempts to log in: when, and from which address. Never more than `FROM_ALL_ADDRESSES`."""

    clock: Callable[[], float] = time.monotonic
    latest: deque[tuple[float, str]] = field(default_factory=deque)
    lock: Lock = field(default_factory=Lock)

    def wait(self, address: str) -> int:
        """Count an attempt and return 0, or do not count it and return the seconds until one is possible."""
        network, now = _network(address), self.clock()
        with self.lock:
            while self.latest and self.latest[0][0] <= now - WINDOW_SECONDS:
                self.latest.popleft()
            own = [when for when, known in self.latest if known == network]
            blocking = [
                found[-limit]
                for found, limit in ((own, FROM_ONE_ADDRESS), ([when for when, _ in self.latest], FROM_ALL_ADDRESSES))
                if len(found) >= limit
            ]
            if not blocking:
                self.latest.append((now, network))
                return 0
        return max(1, math.ceil(max(blocking) + WINDOW_SECONDS - now))


def _network(address: str) -> str:
    """What counts as one address: a provider gives each customer at least 2**64 addresses of IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:40]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed.packed, 64), strict=False))
    return str(parsed)


@dataclass(frozen=True, slots=True)
class Access:
    """What a server allows.

    `hosts` are the names by which it may be called; addresses are always allowed, because no name server can make a
    browser believe that a foreign page has the origin of an address. `valid` reads the tokens for writing, None if
    nobody needs one; then `by` is the default name in the history. `secret` is new in each process. `writers` are the
    sessions that logged in, with their tokens.
    """

    hosts: frozenset[str] = frozenset({"localhost"})
    read_only: bool = False
    valid: Callable[[], tuple[Token, ...]] | None = None
    by: str = "unknown"
    cookie: str = "ddefuzz-session"
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    attempts: Attempts = field(default_factory=Attempts)
    writers: dict[str, Token] = field(default_factory=dict)

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

    def log_in(self, session: str, typed: str) -> str | None:
        """A new session that may write, if the token is right. The old one ends: somebody else may have chosen its id
        and put it into the browser.
        """
        token = tokens.of(self.valid() if self.valid is not None else (), typed)
        if token is None:
            return None
        renewed = secrets.token_urlsafe(32)
        with self.attempts.lock:
            self.writers.pop(session, None)
            self.writers[renewed] = token
            while len(self.writers) > MOST_WRITERS:
                del self.writers[next(iter(self.writers))]
        return renewed

    def log_out(self, session: str) -> str:
        """A new session, which may not write if a token is needed."""
        self.writers.pop(session, None)
        return secrets.token_urlsafe(32)

    def with_session(self, response: Response, session: str) -> Response:
        """Set the cookie of a session. Scripts cannot read it, and forms of other sites do not send it."""
        response.set_cookie(self.cookie, session, httponly=True, samesite="lax", path="/")
        return response

    def writer(self, session: str) -> str | None:
        """The name of who may change findings in a session, None if nobody may. A revoked token ends its sessions."""
        if self.read_only:
            return None
        if self.valid is None:
            return self.by
        token = self.writers.get(session)
        if token is None:
            return None
        if token in self.valid():
            return token.name
        self.writers.pop(session, None)
        return None


def add_headers(headers: MutableHeaders) -> None:
    """Add `HEADERS` to those of an answer, and forbid to store it unless it says otherwise."""
    headers.update(HEADERS)
    headers.setdefault("Cache-Control", "no-store")


class RequestGuard:
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
            elif scope["method"] == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        refused = self._refused(scope["method"], Headers(scope=scope))
        asked = {**scope, "method": "GET", IS_HEAD: True} if scope["method"] == "HEAD" else scope
        await (refused or self.app)(asked, receive, send_with_headers)

    def _refused(self, method: str, headers: Headers) -> Response | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        name = _name(host)
        if name is None:
            return _refusal(400, f"Host: found {host[:80]!r}, expected a name or an address, and a port")
        if name not in self.access.hosts and not _is_address(name):
            expected = ", ".join(sorted(self.access.hosts))
            return _refusal(421, f"Host: found {host[:80]!r}, expected {expected}, or an address (--allow-host NAME)")
        if origin is not None and origin != "null" and _name(origin.partition("://")[2]) is None:
            return _refusal(400, f"Origin: found {origin[:80]!r}, expected an address such as http://{host}")
        if "websocket" in headers.get("upgrade", "").lower():
            return _refusal(400, "Upgrade: found websocket, expected a request of HTTP")
        if method in READS:
            return None
        if origin is not None and origin.partition("://")[2] != host:
            return _refusal(403, f"Origin: found {origin[:80]!r}, expected a form of this server")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _refusal(403, "found a form of another site, expected one of this server")
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return _refusal(411, "found no Content-Length, expected the number of bytes")
        if len(length) > 12 or int(length) > MOST_BYTES:
            return _refusal(413, f"found {length[:20]} bytes, expected at most {MOST_BYTES}")
        return None


_HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.IGNORECASE)


def _name(host: str) -> str | None:
    """The name or address in a Host header, or in an origin without its scheme. None if it has another form."""
    match = _HOST.fullmatch(host) if len(host) <= LONGEST_HOST else None
    return None if match is None else match[1].strip("[]").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _refusal(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status)
