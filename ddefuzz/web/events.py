"""Server-sent events: what campaigns have done, each time that one saves something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from ddefuzz.findings.database import Database
from ddefuzz.web.campaigns import CampaignLine, campaign_lines

MEDIA_TYPE: Final = "text/event-stream; charset=utf-8"

EVERY_SECONDS: Final = 1.0
"""How often the database is read. A campaign saves its counts every 10 seconds."""

PINGS: Final = 15
"""After so many readings without news a comment is sent, which tells a connection that is gone."""

MOST_STREAMS: Final = 64
"""How many may listen at a time."""

LATEST: Final = 5
"""How many campaigns an event has."""


class CampaignsEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The latest campaigns, the latest first. `growth` has the last counts only."""

    campaigns: tuple[CampaignLine, ...]
    schema: str = "ddefuzz.event.campaigns/2"


def event_of(database: Database) -> CampaignsEvent:
    """What there is now."""
    lines = campaign_lines(database, datetime.now(UTC), LATEST)
    return CampaignsEvent(campaigns=tuple(msgspec.structs.replace(one, growth=one.growth[-1:]) for one in lines))


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
