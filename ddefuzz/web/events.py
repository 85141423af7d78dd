"""Server-sent events: what campaigns have done, each time that one saves something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from ddefuzz.findings.database import Database
from ddefuzz.web.campaigns import CampaignLine, CampaignState, campaign_lines

MEDIA_TYPE: Final = "text/event-stream; charset=utf-8"

EVERY_SECONDS: Final = 1.0
"""How often the database is read. A campaign saves its counts every 10 seconds."""

PINGS: Final = 15
"""After so many readings without news a comment is sent, which tells a connection that is gone."""

MOST_STREAMS: Final = 64
"""How many may listen at a time."""

LATEST: Final = 5
"""How many campaigns an event has."""


class CampaignNow(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign in an event. `findings` are those that it has seen, None before it has saved its counts."""

    id: int
    state: CampaignState
    cases: int
    findings: int | None
    per_minute: float | None
    left: str


class CampaignsEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The latest campaigns, the latest first."""

    campaigns: tuple[CampaignNow, ...]
    schema: str = "ddefuzz.event.campaigns/1"


def event_of(database: Database) -> CampaignsEvent:
    """What there is now."""
    return CampaignsEvent(campaigns=tuple(map(_now, campaign_lines(database, datetime.now(UTC), LATEST))))


def _now(line: CampaignLine) -> CampaignNow:
    return CampaignNow(
        id=line.id,
        state=line.state,
        cases=line.cases,
        findings=line.growth[-1].findings if line.growth else None,
        per_minute=line.per_minute,
        left=line.left,
    )


async def stream(
    read: Callable[[], Awaitable[str]], ended: Callable[[], bool], every: float = EVERY_SECONDS
) -> AsyncIterator[str]:
    """The lines of a stream: an event `campaigns` at once and whenever `read` gives another document, until the server
    has `ended`.
    """
    before, silent = "", 0
    while not ended():
        now = await read()
        silent += 1
        if now != before:
            yield f"event: campaigns\ndata: {now}\n\n"
            before, silent = now, 0
        elif silent >= PINGS:
            yield ": nothing new\n\n"
            silent = 0
        await asyncio.sleep(every)
