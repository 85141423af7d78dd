"""Listen on a socket and answer until the process is interrupted."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from ddefuzz.errors import UnsupportedError
from ddefuzz.findings.database import Database
from ddefuzz.web.app import make_app
from ddefuzz.web.security import Access


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
        raise UnsupportedError(f"{host}:{port}: {error.strerror}, expected an address that is free (--port)") from error
    return bound


def serve(database: Database, access: Access, bound: socket.socket, begun: Callable[[], None]) -> None:
    """Answer requests. Errors are logged to stderr; `begun` is called once before the first."""
    config = uvicorn.Config(
        make_app(database, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    begun()
    uvicorn.Server(config).run(sockets=[bound])
