"""Start or resume a campaign: start workers, get their versions, enter it in the database, run the loop."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Container
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from ddefuzz.campaign.campaign import Campaign, Clock, Event, Listener, OnCase
from ddefuzz.campaign.exchange import Exchange, check_alone, key_of
from ddefuzz.campaign.guide import ROUND, STRATEGIES, WHOLE, Guide, alone
from ddefuzz.campaign.plan import Plan, parse_budget, parse_shard
from ddefuzz.campaign.summary import Summary, Tally
from ddefuzz.campaign.tasks import DescribeTask, Versions, describe
from ddefuzz.classify.rules import shared_rules
from ddefuzz.errors import InputError, RowError
from ddefuzz.execute.engine import Setup
from ddefuzz.execute.pool import Stopped, first_answer
from ddefuzz.execute.protocol import STAGES, Semantics, Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database
from ddefuzz.findings.inventory import lines_in
from ddefuzz.findings.model import Campaign as CampaignEntry
from ddefuzz.findings.model import Progress, stamp
from ddefuzz.instrument.events import Mechanism
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.oracles.table import NAMES

EVERY_SECONDS = 10.0
"""The least time between two records of one campaign."""


START_SECONDS = 120.0
"""How long the workers may take to import torch."""


def start(plan: Plan, database: Database, listen: Listener, stopped: Stopped, on_case: OnCase | None = None) -> Summary:
    """Run a new campaign. Time counts from this call, including the start of the workers."""
    return _launch(plan, database, listen, stopped, None, on_case)


def resume(plan: Plan, entry: CampaignEntry, database: Database, listen: Listener, stopped: Stopped) -> Summary:
    """Do the cases of a campaign that were not done. Raises InputError if it would draw other cases."""
    if entry.next_index and not database.steps(entry.id):
        raise InputError(
            f"--resume: campaign {entry.id} was begun by an older ddefuzz, which saved no results of its cases; "
            "its findings are kept; start a new campaign"
        )
    return _launch(plan, database, listen, stopped, entry)


class Option(NamedTuple):
    """How an option is stored and typed, how that is read, and what campaigns have that were begun before it was."""

    stored: Callable[[Any], object]
    read: Callable[[Any], Any]
    before: object = None


def _semantics(stored: object) -> tuple[Semantics, ...]:
    return tuple(Semantics(name) for name in msgspec.convert(stored, tuple[Mechanism, ...]))


def _stages(stored: object) -> tuple[Stage, ...]:
    names = msgspec.convert(stored, tuple[Stage, ...])
    return tuple(stage for stage in STAGES if stage in names)


def _oracles(stored: object) -> tuple[str, ...]:
    names = {*CAPTURE, *msgspec.convert(stored, tuple[str, ...])}
    return tuple(name for name in NAMES if name in names)


OPTIONS: Final = {
    "stages": Option(list, _stages),
    "oracles": Option(list, _oracles, CAPTURE),
    "semantics": Option(lambda given: [one.mechanism for one in given], _semantics),
    **dict.fromkeys(("in_turn", "screen", "guided"), Option(bool, bool)),
    "shard": Option(str, parse_shard),
    "budget": Option(str, parse_budget),
    "minimize": Option(bool, bool, before=True),
    "round_size": Option(int, int, ROUND),
    "share": Option(bool, bool, before=False),
}
"""The fields of a plan that the database stores for resuming, next to profile and seed."""


def new_plan(*, profile: str, seed: int | None, jobs: int, **options: object) -> Plan:
    """A plan from options as they are typed and stored. Without a seed, it is drawn. A shard is guided only if
    it shares.
    """
    fields: dict[str, Any] = {name: OPTIONS[name].read(value) for name, value in options.items()}
    fields["guided"] &= fields.get("shard", WHOLE) == WHOLE or fields.get("share", False)
    return Plan(profile=profile, seed=secrets.randbelow(2**31) if seed is None else seed, jobs=jobs, **fields)


def options_of(plan: Plan) -> dict[str, object]:
    """The options of a plan as the database stores them."""
    return {name: option.stored(getattr(plan, name)) for name, option in OPTIONS.items()}


def plan_of(entry: CampaignEntry, plan: Plan, typed: Container[str]) -> Plan:
    """The stored plan of an unfinished campaign, with the new plan's jobs and known findings, and its budget if typed.

    Raises `InputError` if another option was typed, with another value.
    """
    try:
        stored: dict[str, Any] = {
            name: option.read(entry.options.get(name, option.before)) for name, option in OPTIONS.items()
        }
    except (InputError, msgspec.ValidationError, AttributeError, TypeError) as error:
        raise RowError(f"campaign {entry.id} in the database: its options cannot be read: {error}") from error
    stored |= {"profile": entry.profile, "seed": entry.seed}
    if "budget" in typed:
        del stored["budget"]
    for name, value in stored.items():
        if name in typed and getattr(plan, name) != value:
            option = OPTIONS.get(name)
            given, expected = (one if option is None else option.stored(one) for one in (getattr(plan, name), value))
            raise InputError(
                f"--resume: found {name} {given!r}, expected {expected!r} or nothing, as campaign {entry.id} was begun "
                "with; start a new campaign"
            )
    return replace(plan, **stored)


def to_resume(database: Database, plan: Plan, typed: Container[str]) -> CampaignEntry | None:
    """The latest campaign that was interrupted, of the plan's shard if that was typed; None if there is none.

    Raises `InputError` if several shards share what they learn, and none was typed.
    """
    entries = database.unfinished()
    if "shard" in typed:
        return next((entry for entry in entries if entry.options.get("shard") == str(plan.shard)), None)
    shards = sorted({str(entry.options.get("shard")) for entry in entries if entry.options.get("share")})
    if entries and entries[0].options.get("share") and len(shards) > 1:
        raise InputError(f"--resume: found campaigns of the shards {', '.join(shards)}, expected --shard to choose one")
    return next(iter(entries), None)


def _launch(
    plan: Plan,
    database: Database,
    listen: Listener,
    stopped: Stopped,
    entry: CampaignEntry | None,
    on_case: OnCase | None = None,
) -> Summary:
    begun = time.monotonic()
    clock = Clock(lambda: time.monotonic() - begun, lambda: datetime.now(UTC))
    with (
        TemporaryDirectory(prefix="journal-", dir=scratch_folder()) as folder,
        plan.engine.start(plan.jobs, Path(folder), Setup(files=shared_rules())) as workers,
    ):
        described = workers.submit(describe, DescribeTask(plan.profile, plan.seed), START_SECONDS)
        versions = first_answer(described, stopped)
        key = key_of(plan.profile, plan.seed, versions.generator, options_of(plan))
        number = _enter(plan, database, versions, clock, entry, key)
        exchange = Exchange(database, number, key) if plan.share else None
        due = 0.0

        def save(tally: Tally) -> None:
            nonlocal due
            due = clock.seconds() + EVERY_SECONDS
            database.add_progress(number, _progress(tally, clock))

        def hear(event: Event, tally: Tally) -> None:
            if clock.seconds() >= due:
                save(tally)
            listen(event, tally)

        campaign = Campaign(
            plan=plan,
            database=database,
            workers=workers,
            clock=clock,
            journal=Path(folder),
            torch=versions.torch,
            generator=versions.generator,
            listen=hear,
            stopped=stopped,
            number=number,
            on_case=on_case,
            exchange=exchange,
        )
        if plan.shard == WHOLE or exchange is not None:
            strategies = STRATEGIES if plan.guided else ("draw",)
            campaign.guide = Guide(
                plan.seed,
                strategies,
                versions.samples,
                partial(lines_in, Path(versions.package)),
                plan.called_case,
                plan.round_size,
                plan.shard,
                exchange or alone,
            )
        summary = campaign.run()
        save(campaign.tally)
        return summary


def _progress(tally: Tally, clock: Clock) -> Progress:
    """The counts so far, as the database keeps them."""
    sites = tally.ledger.count()
    return Progress(
        when=stamp(clock.now()),
        cases=len(tally.digests),
        seconds=round(clock.seconds(), 3),
        cpu_seconds=round(tally.total_cpu_seconds(), 3),
        fallback_sites=sites.fallback,
        dde_sites=sites.dde,
        findings=len(tally.findings),
    )


def _enter(
    plan: Plan, database: Database, versions: Versions, clock: Clock, entry: CampaignEntry | None, key: str
) -> int:
    if entry is None:
        with database.transaction():
            if plan.share:
                check_alone(database, key, str(plan.shard))
            return database.start_campaign(
                profile=plan.profile,
                seed=plan.seed,
                generator=versions.generator,
                options=options_of(plan),
                when=clock.now(),
            )
    if entry.generator != versions.generator:
        raise InputError(
            f"--resume: campaign {entry.id} drew its cases with {entry.generator!r}, found {versions.generator!r}, "
            "expected the same: with another generator an index is another case; start a new campaign"
        )
    return entry.id
