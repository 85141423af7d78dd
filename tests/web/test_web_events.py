"""The stream of server-sent events."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http.client import HTTPConnection

import msgspec
import pytest

from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Progress, stamp
from ddefuzz.web import events
from ddefuzz.web.app import answering
from ddefuzz.web.security import Access
from tests.findings.arbitrary_findings import START


def streamed(documents: Sequence[str]) -> list[str]:
    """What a stream sends until the server ends, if each reading gives the next document."""
    left = list(documents)

    async def read() -> str:
        return left.pop(0)

    async def collect() -> list[str]:
        return [line async for line in events.stream(read, lambda: not left, 0)]

    return asyncio.run(collect())


def test_an_event_is_sent_at_once_and_for_each_change() -> None:
    sent = streamed(["{1}", "{1}", "{2}", "{2}", "{1}"])
    assert sent == [f"event: campaigns\ndata: {{{one}}}\n\n" for one in (1, 2, 1)]


def test_a_connection_without_news_gets_comments() -> None:
    sent = streamed(["{1}", *["{1}"] * 2 * events.PINGS])
    assert sent[1:] == [": nothing new\n\n"] * 2


@pytest.fixture
def address(database: Database) -> Iterator[tuple[str, int]]:
    with answering(database, Access(by="ada")) as port:
        yield "127.0.0.1", port


def begun(database: Database) -> int:
    """A running campaign with one count."""
    campaign = database.start_campaign(
        profile="captures", seed=7, generator="1", options={"budget": "100x"}, when=START
    )
    database.add_progress(campaign, counts(10))
    return campaign


def counts(cases: int) -> Progress:
    """Counts of a campaign."""
    return Progress(
        when=stamp(START),
        cases=cases,
        seconds=float(cases),
        cpu_seconds=float(cases),
        fallback_sites=1,
        dde_sites=1,
        findings=cases // 10,
    )


def event(stream: Iterator[bytes]) -> events.CampaignsEvent:
    """The data of the next event."""
    line = next(line for line in stream if line.startswith(b"data: "))
    return msgspec.json.decode(line.removeprefix(b"data: "), type=events.CampaignsEvent)


def test_a_campaign_that_saves_its_counts_is_an_event(database: Database, address: tuple[str, int]) -> None:
    campaign = begun(database)
    connection = HTTPConnection(*address, timeout=20)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == events.MEDIA_TYPE
    stream = iter(answer.readline, b"")
    (before,) = event(stream).campaigns
    assert (before.id, before.cases, before.findings, before.state) == (campaign, 0, 0, "interrupted")
    database.advance(campaign, 40, datetime.now(UTC))
    (after,) = event(stream).campaigns
    assert (after.cases, after.left, after.state) == (40, "60 cases", "running")
    connection.close()


def test_head_has_no_stream(address: tuple[str, int]) -> None:
    connection = HTTPConnection(*address, timeout=20)
    connection.request("HEAD", "/events")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Content-Type"), answer.read()) == (200, events.MEDIA_TYPE, b"")
    connection.close()


def test_too_many_streams_are_refused(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 1)
    first, second = HTTPConnection(*address, timeout=20), HTTPConnection(*address, timeout=20)
    first.request("GET", "/events")
    first.getresponse().readline()
    second.request("GET", "/events")
    assert second.getresponse().status == 503
    first.close()
    second.close()


def test_a_burst_of_requests_opens_no_more_streams(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 4)
    connections = [socket.create_connection(address, timeout=20) for _ in range(40)]
    for connection in connections:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    statuses = [int(connection.recv(12)[9:]) for connection in connections]
    for connection in connections:
        connection.close()
    assert sorted(statuses) == [200] * 4 + [503] * 36


def test_the_end_of_the_server_ends_its_streams(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with answering(database, Access(by="ada")) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        answer.readline()
    assert answer.read().startswith(b"data: ")
    assert caplog.records == []
    connection.close()
