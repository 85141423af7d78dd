"""A PostgreSQL server for the tests of the findings database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.findings.servers import running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server, with `{}` for the name of a database."""
    with running_server() as url:
        yield url
