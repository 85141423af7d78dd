"""Listen on a socket and answer until the process is interrupted."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ddefuzz.errors import UnsupportedError, unsupported_by
from ddefuzz.findings.database import Database
from ddefuzz.web.app import make_app
from ddefuzz.web.security import HEADERS, Access


def listen(host: str, port: int) -> socket.socket:
    """A socket on which connections wait until the server answers.

    Raises `UnsupportedError` if the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise  # which says by itself what is expected
        raise UnsupportedError(f"{host}:{port}: {error.strerror}, expected an address that is free (--port)") from error
    return bound


def serve(database: Database, access: Access, bound: socket.socket, begun: Callable[[], None]) -> None:
    """Answer requests. Errors are logged to stderr; `begun` is called once before the first."""
    begun()
    server_of(database, access).run(sockets=[bound])


def server_of(database: Database, access: Access) -> uvicorn.Server:
    """A server of HTTP/1.1 alone. It does not depend on which of uvicorn's extras are installed."""
    config = uvicorn.Config(
        make_app(database, access),
        http=Protocol,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    logging.getLogger("asyncio").addFilter(_in_one_line)
    logging.getLogger("uvicorn.error").addFilter(_not_cancelled)
    return uvicorn.Server(config)


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
