"""Drivers of one campaign tell each other what they learn: guides and loops without torch, then two real campaigns."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.campaign.campaign import Campaign, Clock
from ddefuzz.campaign.exchange import Exchange, check_alone, key_of
from ddefuzz.campaign.guide import Case, Gain, Guide, Lesson, Shard
from ddefuzz.campaign.launch import options_of, to_resume
from ddefuzz.campaign.plan import Budget, Plan, parse_shard
from ddefuzz.cli.run import command
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Semantics
from ddefuzz.findings.database import Database
from ddefuzz.generate.profiles import Draw, Sample, Single
from tests.campaign.real_campaign import begun, finished, summary_in, url, wait_until
from tests.campaign.test_campaign import Workers, sighting
from tests.campaign.test_guide import fell_back, raised, result
from tests.findings.arbitrary_findings import START

ROUND = 4


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(url(tmp_path / "shared.db")) as opened:
        yield opened


def entered(database: Database, shard: str, seed: int = 7) -> Exchange:
    """A driver that has begun the campaign of a seed."""
    shared = Plan("default", seed, Budget(cases=24), 2, ("export",), (Semantics(),), guided=True, share=True)
    options = options_of(replace(shared, shard=parse_shard(shard), round_size=ROUND))
    key = key_of("default", seed, "generator", options)
    number = database.start_campaign(profile="default", seed=seed, generator="generator", options=options, when=START)
    return Exchange(database, number, key)


def guided(exchange: Exchange, index: int, total: int = 2) -> Guide:
    return Guide(7, samples=("add", "chunk", "diff"), round_size=ROUND, shard=Shard(index, total), exchange=exchange)


def rounds(guide: Guide, numbers: range, shard: Shard) -> dict[int, Case]:
    """Do rounds of a shard. Each case reaches a site of its own."""
    taken = {}
    for number in numbers:
        for index in range(first := shard.round(number) * ROUND, first + ROUND):
            taken[index] = guide.take(index)
            guide.learn(result(index, taken[index].origin, fell_back("torch/_refs/__init__.py", index)))
    return taken


def test_a_guide_takes_in_what_another_has_learned(database: Database) -> None:
    first, second = (guided(entered(database, f"{index}/2"), index) for index in (1, 2))
    rounds(first, range(3), Shard(1, 2))
    assert not second.ledger.fallback_sites
    rounds(second, range(2), Shard(2, 2))
    theirs = {("Python", "torch/_refs/__init__.py", index) for number in range(3) for index in _of(Shard(1, 2), number)}
    assert theirs <= second.ledger.fallback_sites
    assert len(second.kept) == 5 * ROUND
    assert sum(one.cost for one in second.sampler.of_ops.values()) > 0


def _of(shard: Shard, number: int) -> range:
    return range(shard.round(number) * ROUND, shard.round(number) * ROUND + ROUND)


def test_only_what_was_new_is_told() -> None:
    told: list[Lesson] = []

    def keep(lesson: Lesson) -> tuple[Lesson, ...]:
        told.append(lesson)
        return (Lesson((result(900, Draw(0), raised("theirs")),), (Gain("op", "add", 1, 2),)),)

    guide = Guide(7, samples=("add",), round_size=ROUND, exchange=keep)
    for index in range(2 * ROUND):
        known = [raised("theirs")] if index >= ROUND else []
        guide.learn(result(index, guide.take(index).origin, *known, fell_back("a.py", index // 2)))
    assert [[one.index for one in lesson.firsts] for lesson in told] == [[0, 2], [4, 6]]
    assert guide.sampler.of_ops["add"].gained >= 2


def test_a_resumed_guide_takes_in_the_same_after_the_same_rounds(database: Database) -> None:
    """While it was away, the other driver has learned more."""
    here, there = entered(database, "1/2"), entered(database, "2/2")
    first, second = guided(here, 1), guided(there, 2)
    before: dict[int, Case] = {}
    for number in range(12):
        rounds(second, range(number, number + 1), Shard(2, 2))
        before |= rounds(first, range(number, number + 1), Shard(1, 2))
    ahead = {index: first.take(index) for number in (12, 13) for index in _of(Shard(1, 2), number)}
    rounds(second, range(12, 20), Shard(2, 2))

    again = guided(Exchange(database, here.campaign, here.key), 1)
    assert rounds(again, range(12), Shard(1, 2)) == before
    assert {index: again.take(index) for number in (12, 13) for index in _of(Shard(1, 2), number)} == ahead
    deaf = guided(entered(database, "1/2", seed=8), 1)
    assert rounds(deaf, range(12), Shard(1, 2)) != before, "what it was told decides its cases"


def test_the_opening_is_shared_out() -> None:
    """Each op of the catalogue and each op with samples is run once by all drivers together."""
    names = tuple(f"op{number}" for number in range(40))
    singles: list[int] = []
    samples: list[str] = []
    draws: list[int] = []
    for index in (1, 2, 3):
        shard = Shard(index, 3)
        guide = Guide(7, samples=names, round_size=32, shard=shard)
        origins = []
        for number in range(5):
            for case in range(first := shard.round(number) * 32, first + 32):
                origins.append(guide.take(case).origin)
                guide.learn(result(case, origins[-1]))
        singles += [one.op for one in origins if isinstance(one, Single)]
        samples += [one.op for one in origins if isinstance(one, Sample)][: len(shard.part(names))]
        draws += [one.index for one in origins if isinstance(one, Draw)]
    assert len(singles) == len(set(singles)) > 100
    assert sorted(samples) == sorted(names)
    assert len(draws) == len(set(draws)) > 10


def run(folder: Path, work: Workers, exchange: Exchange, shard: Shard, *, cases: int = 10**9) -> None:
    """Run a driver on 24 cases of all shards. It is interrupted after as many as `cases`."""
    plan = Plan("default", 7, Budget(cases=24), 2, ("export",), (Semantics(),), shard, guided=True, share=True)
    plan = replace(plan, round_size=ROUND)
    campaign = Campaign(
        plan=plan, database=exchange.database, workers=work, journal=folder, torch="2.13.0", generator="",
        clock=Clock(lambda: work.seconds, lambda: START), listen=lambda event, tally: None,
        stopped=lambda: len(work.done) >= cases, number=exchange.campaign, exchange=exchange,
        guide=Guide(7, round_size=ROUND, shard=shard, exchange=exchange),
    )  # fmt: skip
    campaign.run()


def test_a_finding_is_minimized_by_the_first_that_sees_it(tmp_path: Path, database: Database) -> None:
    """Also if that one is interrupted and the other goes on. It does so when it is resumed."""
    first, second = entered(database, "1/2"), entered(database, "2/2")
    stopped, others, resumed = Workers(("at::f",)), Workers(("at::f", "at::g")), Workers(("at::f",))
    run(tmp_path, stopped, first, Shard(1, 2), cases=2)
    run(tmp_path, others, second, Shard(2, 2))
    run(tmp_path, resumed, Exchange(database, first.campaign, first.key), Shard(1, 2))
    cases = [int(name.split()[1]) for work in (stopped, others, resumed) for name in work.done if "case" in name]
    assert sorted(cases) == list(range(24))
    minimized = [name for work in (stopped, others, resumed) for name in work.done if "minimize" in name]
    assert sorted(minimized) == ["minimize at::f", "minimize at::g"]
    assert "minimize at::g" in others.done
    assert all(finding.confirmed is not None for finding in database.findings())


def test_what_a_driver_that_has_ended_left_is_done_by_others(database: Database) -> None:
    first, second, other = entered(database, "1/2"), entered(database, "2/2"), entered(database, "1/2", seed=8)
    finding = database.record(sighting("at::f"), START, first.campaign).finding_id
    assert (first.is_met(finding), second.is_met(finding), other.is_met(finding)) == (False, True, False)
    database.finish_campaign(first.campaign, START)
    assert not second.is_met(finding)


def test_lessons_are_kept_until_all_drivers_have_ended(database: Database) -> None:
    first, second = entered(database, "1/2"), entered(database, "2/2")
    first(Lesson())
    for exchange, left in ((first, 1), (second, 0)):
        database.finish_campaign(exchange.campaign, START)
        exchange.end()
        assert len(database.heard(first.campaign)) == left


def test_a_shard_is_begun_once(database: Database) -> None:
    first = entered(database, "1/2")
    with pytest.raises(InputError, match=r"--shard: found 1/2 of this campaign in .* expected another shard"):
        check_alone(database, first.key, "1/2")
    check_alone(database, first.key, "2/2")
    database.finish_campaign(first.campaign, START)
    check_alone(database, first.key, "1/2")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--seed", "1"), "--share: found --shard 1/1, expected one of several shards, such as 1/4"),
        (("--shard", "1/2"), "--share: found no --seed, expected the same seed for all shards"),
        (("--shard", "1/2", "--seed", "1", "--uniform"), "--share: found --uniform, expected a guided campaign"),
    ],
    ids=["shard", "seed", "guided"],
)
def test_what_drivers_lack_is_said(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    done = CliRunner().invoke(command, ["--share", *words, "--db", url(tmp_path / "a.db")])
    assert isinstance(done.exception, InputError), done.output
    assert str(done.exception).startswith(problem)
    assert not (tmp_path / "a.db").exists()


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_driver_harms_no_other_and_goes_on(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "shared.db"
    words = ("--seed", "3", "--budget", "16x", "--round", "4", "--share", "-j", "1", "--fail-on", "never")

    def is_told() -> bool:
        return any(database.heard(entry.id) for entry in database.unfinished())

    with begun(tmp_path, path, *words, "--shard", "1/2") as killed:
        wait_until(is_told)
        os.killpg(killed.pid, signal.SIGKILL)
    other = finished(tmp_path, path, *words, "--shard", "2/2")
    twice = finished(tmp_path, path, *words, "--shard", "1/2")
    resumed = finished(tmp_path, path, "--resume", "--shard", "1/2", "-j", "1", "--fail-on", "never")
    assert (other.returncode, twice.returncode, resumed.returncode) == (0, 2, 0), other.stderr + resumed.stderr
    assert "found 1/2 of this campaign" in twice.stderr
    summaries = summary_in(other.stdout), summary_in(resumed.stdout)
    assert [one.cases for one in summaries] == [8, 8]
    assert all(
        not (ours.steps and theirs.steps)
        for ours in summaries[0].findings
        for theirs in summaries[1].findings
        if ours.finding == theirs.finding
    ), "none is minimized twice"
    known = {one.finding for one in summaries[0].findings if one.is_new}
    assert known.isdisjoint(one.finding for one in summaries[1].findings if one.is_new)
    assert not any(database.heard(one.campaign) for one in summaries), "nobody needs them any more"


def test_a_shard_of_several_has_to_be_typed_to_resume_it(database: Database) -> None:
    entered(database, "1/2")
    second = entered(database, "2/2")
    plan = Plan("default", 7, Budget(cases=24), 2, ("export",), (Semantics(),), Shard(2, 2), share=True)
    with pytest.raises(InputError, match="--resume: found campaigns of the shards 1/2, 2/2, expected --shard"):
        to_resume(database, plan, {"seed"})
    chosen = to_resume(database, plan, {"shard"})
    assert chosen is not None
    assert chosen.id == second.campaign
