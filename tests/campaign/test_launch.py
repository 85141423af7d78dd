"""Which options a resumed campaign has."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ddefuzz.campaign.guide import Shard
from ddefuzz.campaign.launch import OPTIONS, options_of, plan_of
from ddefuzz.campaign.plan import Budget, Plan
from ddefuzz.cli.run import command
from ddefuzz.errors import InputError, RowError
from ddefuzz.execute.protocol import Semantics
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Campaign, stamp
from tests.findings.arbitrary_findings import START

BEGUN = Plan(
    profile="sizes",
    seed=1,
    budget=Budget(cases=9),
    jobs=1,
    stages=("export", "aot"),
    semantics=(Semantics("size-oblivious"),),
    shard=Shard(2, 3),
    minimize=False,
    in_turn=True,
    screen=True,
    guided=True,
    oracles=("capture", "agreement"),
    round_size=64,
    share=True,
)

OTHER = Plan(
    profile="default",
    seed=2,
    budget=Budget(cases=5),
    jobs=4,
    stages=("export",),
    semantics=(Semantics(),),
)

KEPT = {"profile", "seed", *OPTIONS}


def entry(**changed: Any) -> Campaign:
    options = msgspec.json.decode(msgspec.json.encode(options_of(BEGUN) | changed))
    return Campaign(
        id=7,
        profile=BEGUN.profile,
        seed=BEGUN.seed,
        generator="",
        options=options,
        next_index=0,
        ahead=(),
        finished=False,
        started=stamp(START),
        updated=stamp(START),
    )


def test_every_option_of_a_campaign_is_kept() -> None:
    assert {field.name for field in fields(Plan)} == KEPT | {"jobs", "engine", "known", "case_seconds"}
    resumed = plan_of(entry(), OTHER, ())
    assert {name: getattr(resumed, name) for name in KEPT} == {name: getattr(BEGUN, name) for name in KEPT}
    assert resumed.jobs == OTHER.jobs


@pytest.mark.parametrize("name", sorted(KEPT - {"budget"}))
def test_another_value_is_refused_and_the_same_is_not(name: str) -> None:
    assert getattr(BEGUN, name) != getattr(OTHER, name)
    assert plan_of(entry(), BEGUN, {name}) == BEGUN
    with pytest.raises(InputError, match=f"--resume: found {name} .* as campaign 7 was begun with"):
        plan_of(entry(), OTHER, {name})


def test_only_the_budget_can_be_another() -> None:
    assert plan_of(entry(), OTHER, {"budget", "jobs", "fail_on"}).budget == OTHER.budget


def test_damaged_options_are_said() -> None:
    with pytest.raises(RowError, match="campaign 7 in the database: its options cannot be read"):
        plan_of(entry(stages=3), OTHER, ())


OF_ONE_CALL = {
    "max_examples",
    "jobs",
    "engine",
    "address",
    "resuming",
    "fail_on",
    "known_files",
    "db",
    "format_",
    "outputs",
}


@pytest.mark.parametrize(
    "words",
    [
        ("--seed", "5"),
        ("--profile", "sizes"),
        ("--stage", "inductor"),
        ("--every-stage",),
        ("--no-screen",),
        ("--uniform",),
        ("--oracle", "agreement"),
        ("--semantics", "size-oblivious"),
        ("--share",),
        ("--no-minimize",),
    ],
    ids=lambda words: words[0],
)
def test_the_command_refuses_what_it_would_not_keep(tmp_path: Path, words: tuple[str, ...]) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    plan = replace(OTHER, in_turn=True, screen=True, guided=True)
    with Database.open(url) as database:
        database.start_campaign(profile="default", seed=2, generator="", options=options_of(plan), when=START)
    result = CliRunner().invoke(command, ["--resume", *words, "--db", url])
    assert isinstance(result.exception, InputError), result.output
    assert str(result.exception).startswith("--resume: found ")


def test_every_option_of_the_command_is_of_the_campaign_or_of_one_call() -> None:
    assert {one.name for one in command.params} == KEPT | OF_ONE_CALL
