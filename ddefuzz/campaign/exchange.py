"""What the drivers of one campaign tell each other, through their database.

Each driver runs a shard of the campaign, as a campaign of its own in the database. After each round it saves what the
round has taught (`guide.Lesson`), and takes in what others have saved since. It also saves which lesson was the last
one that it has taken in. So a resumed campaign takes in the same lessons after the same rounds, and has the same cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from ddefuzz.campaign.guide import Lesson
from ddefuzz.campaign.summary import countable
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Campaign
from ddefuzz.findings.schema import packed, unpacked


def _shard_of(entry: Campaign) -> str:
    return str(entry.options.get("shard", ""))


def key_of(profile: str, seed: int, generator: str, options: Mapping[str, object]) -> str:
    """What the shards of one campaign have in common: all that decides their cases but the number of the shard. Their
    budgets may differ.
    """
    same = {name: value for name, value in options.items() if name not in {"shard", "budget", "minimize"}}
    total = str(options.get("shard", "")).rpartition("/")[2]
    text = msgspec.json.encode((profile, seed, generator, total, same), order="sorted")
    return sha256(text).hexdigest()


def _key(entry: Campaign) -> str:
    return key_of(entry.profile, entry.seed, entry.generator, entry.options)


def check_alone(database: Database, key: str, shard: str) -> None:
    """Raise `InputError` if a shard of this campaign was begun before and has not ended."""
    for entry in database.unfinished():
        if _key(entry) == key and _shard_of(entry) == shard:
            raise InputError(
                f"--shard: found {shard} of this campaign in {database.url}, begun at {entry.started} and not ended, "
                "expected another shard, or --resume to continue it"
            )


@dataclass(slots=True)
class Exchange:
    """The lessons that a campaign gives to the others of its `key`, and takes from them."""

    database: Database
    campaign: int
    key: str
    _heard: int = 0
    _again: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self._again = deque(self.database.heard(self.campaign))

    def __call__(self, lesson: Lesson) -> tuple[Lesson, ...]:
        """Save the lesson of a round, and return those that others have saved since the last round. After a round from
        before a campaign was resumed, return what was returned then.
        """
        until = self._again.popleft() if self._again else None
        learned = packed(msgspec.structs.replace(lesson, firsts=tuple(map(countable, lesson.firsts))))
        with self.database.transaction():
            rows = self.database.lessons(self.campaign, self.key, self._heard, until)
            if until is None:
                until = max((number for number, _ in rows), default=self._heard)
                self.database.add_lesson(self.campaign, self.key, until, learned)
        self._heard = until
        return tuple(unpacked(learned, Lesson) for _, learned in rows)

    def is_met(self, finding: str) -> bool:
        """Whether another driver of the campaign has seen a finding first. That one minimizes and confirms it."""
        return any(_key(entry) == self.key for entry in self.database.met_by_others(finding, self.campaign))

    def end(self) -> None:
        """Delete all lessons if no driver of the campaign needs them any more."""
        if not any(_key(entry) == self.key for entry in self.database.unfinished()):
            self.database.forget_lessons(self.key)
