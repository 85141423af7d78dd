"""The driver of a cluster, with actors that a test plays; and tasks on real nodes of Ray on this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayTaskError

from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute import cluster, node
from ddefuzz.execute.cluster import CALLS_PER_JOB, MOST_LOSSES, Cluster
from ddefuzz.execute.engine import Engine, Setup
from ddefuzz.execute.journal import Entry, last_of_case
from ddefuzz.execute.pool import Future, LostTask
from ddefuzz.execute.worker import Answer, note

SECONDS = 20.0

LAST = cluster._last_line(ActorDiedError())


class Sum(msgspec.Struct, frozen=True):
    left: int
    right: int


def add(task: Sum) -> int:
    return task.left + task.right


def refuse(task: Sum) -> int:
    raise InputError(f"found {task.left}, expected more")


def crash_in_case(task: Sum) -> int:
    note(Entry(task.left, "export", "x = 1"))
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def file_of(variable: str) -> str:
    return Path(os.environ[variable]).read_text()


class Call(NamedTuple):
    """A call of a method of an actor, and what it will return."""

    words: tuple[Any, ...]
    reply: futures.Future[bytes]

    def future(self) -> futures.Future[bytes]:
        return self.reply

    def answers(self, value: object) -> None:
        self.reply.set_result(msgspec.json.encode(node.Reply(msgspec.Raw(msgspec.json.encode(value)))))


class Method:
    def __init__(self) -> None:
        self.calls: list[Call] = []

    def options(self, **_: object) -> Method:
        return self

    def remote(self, *words: Any) -> Call:
        self.calls.append(Call(words, futures.Future()))
        return self.calls[-1]


class Actor:
    def __init__(self, key: str) -> None:
        self.key = key
        self.describe, self.run, self.end = Method(), Method(), Method()
        self.is_killed = False

    def dies(self, error: Exception | None = None) -> None:
        for call in (*self.describe.calls, *self.run.calls):
            if not call.reply.done():
                call.reply.set_exception(error or ActorDiedError())


class Ray:
    """Stands for the module: `actors` are those that were started, `here` the nodes that there are."""

    def __init__(self, *here: str, cpus: int = 2) -> None:
        self.here, self.cpus = set(here), cpus
        self.actors: list[Actor] = []
        self.is_down = False

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": key * 56, "Alive": True, "Resources": {"CPU": self.cpus}, "NodeManagerHostname": key}
            for key in sorted(self.here)
        ]

    def remote(self, **_: object) -> Callable[[object], Ray]:
        return lambda _: self

    def options(self, **given: Any) -> Starting:
        return Starting(self, given["scheduling_strategy"].node_id[0])

    def wait(self, calls: list[Call], **_: object) -> None: ...

    def kill(self, actor: Actor) -> None:
        actor.is_killed = True

    def shutdown(self) -> None:
        self.is_down = True

    def actor(self, key: str, number: int = 0) -> Actor:
        """An actor of a node, when it is there."""
        until(lambda: len([one for one in self.actors if one.key == key]) > number)
        return [one for one in self.actors if one.key == key][number]


class Starting(NamedTuple):
    ray: Ray
    key: str

    def remote(self, jobs: int, setup: bytes) -> Actor:
        del jobs, setup
        self.ray.actors.append(Actor(self.key))
        return self.ray.actors[-1]


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


class Driver(NamedTuple):
    ray: Ray
    workers: Cluster
    notes: list[str]

    def takes_in(self, key: str, number: int = 0) -> Actor:
        """A node that says that it can work."""
        actor = self.ray.actor(key, number)
        actor.describe.calls[0].reply.set_result(msgspec.json.encode(node.versions()))
        return actor


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    ray, notes = Ray("a"), list[str]()
    monkeypatch.setattr(cluster, "ray", ray)
    monkeypatch.setattr(cluster, "_connect", lambda address: None)
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.01)
    with Cluster(Engine("ray", note=notes.append), 0, tmp_path, Setup()) as workers:
        yield Driver(ray, workers, notes)
    assert all(actor.is_killed for actor in ray.actors)
    assert ray.is_down


def result_of(call: Call, future: Future[int], value: int) -> object:
    call.answers(msgspec.json.decode(msgspec.json.encode(Answer(msgspec.Raw(b"%d" % value), is_done=True))))
    return future.result()


def test_a_task_waits_for_the_first_node_and_goes_to_the_shortest_queue(driver: Driver) -> None:
    first = driver.workers.submit(add, Sum(1, 2), SECONDS)
    assert driver.workers.jobs == 1
    one = driver.takes_in("a")
    until(lambda: one.run.calls)
    assert one.run.calls[0].words == (f"{__name__}:add", b'{"left":1,"right":2}', SECONDS, False)
    driver.ray.here.add("b")
    other = driver.takes_in("b")
    until(lambda: driver.workers.jobs == 4)
    second = driver.workers.submit(add, Sum(3, 4), SECONDS, cold=True)
    assert [call.words[3] for call in other.run.calls] == [True]
    assert not first.done()
    assert result_of(one.run.calls[0], first, 3) == 3
    assert result_of(other.run.calls[0], second, 7) == 7
    assert driver.notes == ["node a: 2 workers", "node b: 2 workers"]


@pytest.mark.parametrize("error", [ActorDiedError(), ActorUnavailableError("gone", None), OutOfMemoryError("killed")])
def test_the_tasks_of_a_lost_node_go_to_another_and_each_has_one_result(driver: Driver, error: Exception) -> None:
    one = driver.takes_in("a")
    until(lambda: driver.workers.jobs == 2)
    tasks = [driver.workers.submit(add, Sum(number, 0), SECONDS) for number in range(3)]
    arrived: list[Future[int]] = []
    for task in tasks:
        task.add_done_callback(arrived.append)
    assert result_of(one.run.calls[0], tasks[0], 0) == 0
    driver.ray.here = {"b"}
    one.dies(error)
    other = driver.takes_in("b")
    until(lambda: len(other.run.calls) == 2)
    assert one.is_killed
    for call, task, value in zip(other.run.calls, tasks[1:], (1, 2), strict=True):
        assert result_of(call, task, value) == value
    assert len(arrived) == len(set(map(id, arrived))) == 3
    assert driver.notes[1] == "node a is lost: its tasks go to others"


def test_a_node_whose_actor_dies_gets_another_until_it_is_given_up(driver: Driver) -> None:
    task = driver.workers.submit(add, Sum(1, 1), SECONDS)
    for number in range(MOST_LOSSES + 1):
        actor = driver.takes_in("a", number)
        until(partial(bool, actor.run.calls))
        actor.dies()
    assert task.result() == LostTask("not-judged", f"its node was lost {MOST_LOSSES + 1} times: {LAST}")
    until(lambda: len(driver.notes) > 2 * MOST_LOSSES)
    assert driver.notes[-1].startswith("node a is not used: its workers die: ")
    assert len(driver.ray.actors) == MOST_LOSSES + 1


def test_a_node_with_other_versions_is_not_used(driver: Driver) -> None:
    theirs = msgspec.structs.replace(node.versions(), torch="1.0")
    driver.ray.actor("a").describe.calls[0].reply.set_result(msgspec.json.encode(theirs))
    until(lambda: driver.notes)
    (line,) = driver.notes
    assert line.startswith("node a is not used: found ddefuzz ")
    assert "torch 1.0, Python" in line
    assert len(driver.ray.actors) == 1


def test_a_bug_on_a_node_is_a_task_that_is_not_judged_and_a_refusal_is_raised(driver: Driver) -> None:
    actor = driver.takes_in("a")
    until(lambda: driver.workers.jobs == 2)
    wrong, bug, refused = (driver.workers.submit(add, Sum(1, 1), SECONDS) for _ in range(3))
    actor.run.calls[0].reply.set_result(b"no reply")
    actor.run.calls[1].reply.set_exception(RayTaskError("run", "Traceback\nKeyError: 'add'", KeyError("add")))
    actor.run.calls[2].reply.set_result(msgspec.json.encode(node.Reply(refusal=node.Refusal(2, "found 1"))))
    lost = wrong.result()
    assert isinstance(lost, LostTask)
    assert (lost.outcome, "DecodeError" in lost.reason) == ("not-judged", True)
    assert bug.result() == LostTask("not-judged", "on node a: KeyError: 'add'")
    with pytest.raises(InputError, match="found 1"):
        refused.result()
    assert driver.workers.jobs == 2


def test_a_loss_waits_for_the_lines_of_earlier_replies(driver: Driver, tmp_path: Path) -> None:
    actor = driver.takes_in("a")
    until(lambda: driver.workers.jobs == 2)
    first, lost = (driver.workers.submit(add, Sum(number, 0), SECONDS) for number in range(2))
    crash = node.Reply(lost=LostTask("crash", "SIGSEGV"), number=1)
    actor.run.calls[1].reply.set_result(msgspec.json.encode(crash))
    assert not lost.done()
    done = msgspec.Raw(msgspec.json.encode(Answer(msgspec.Raw(b"3"), is_done=True)))
    line = msgspec.json.encode(Entry(7, "export", "x = \ufffd")).decode() + "\n"
    actor.run.calls[0].reply.set_result(msgspec.json.encode(node.Reply(done, journal=line, number=0)))
    assert (first.result(), lost.result()) == (3, LostTask("crash", "SIGSEGV"))
    assert last_of_case(tmp_path, 7) == Entry(7, "export", "x = \ufffd")


def test_a_reply_that_comes_after_its_node_was_lost_has_no_reader(driver: Driver) -> None:
    one = driver.takes_in("a")
    until(lambda: driver.workers.jobs == 2)
    kept, resent = (driver.workers.submit(add, Sum(number, 0), SECONDS) for number in range(2))
    driver.ray.here = {"b"}
    one.run.calls[1].reply.set_exception(ActorDiedError())
    other = driver.takes_in("b")
    until(lambda: other.run.calls)
    assert result_of(one.run.calls[0], kept, 5) == 5  # its own call: nobody else has the task
    assert [call.words[1] for call in other.run.calls] == [b'{"left":1,"right":0}']
    assert result_of(other.run.calls[0], resent, 6) == 6


def test_a_node_has_no_more_tasks_than_it_can_begin(driver: Driver) -> None:
    actor = driver.takes_in("a")
    until(lambda: driver.workers.jobs == 2)
    tasks = [driver.workers.submit(add, Sum(number, 0), SECONDS) for number in range(CALLS_PER_JOB * 2 + 1)]
    assert len(actor.run.calls) == CALLS_PER_JOB * 2
    driver.ray.here.add("b")
    other = driver.takes_in("b")
    until(lambda: other.run.calls)
    assert result_of(other.run.calls[0], tasks[-1], 9) == 9


def test_tasks_fail_when_no_node_has_been_left_for_long(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = driver.takes_in("a")
    until(lambda: driver.workers.jobs == 2)
    monkeypatch.setattr(cluster, "START_SECONDS", 0.05)
    assert result_of_next(driver, actor) == 1
    driver.ray.here.clear()
    until(lambda: driver.workers.jobs == 1)
    task = driver.workers.submit(add, Sum(1, 1), SECONDS)
    with pytest.raises(UnsupportedError, match="--engine ray: no node can work: none has the CPUs"):
        task.result()


def result_of_next(driver: Driver, actor: Actor) -> object:
    task = driver.workers.submit(add, Sum(1, 0), SECONDS)
    return result_of(actor.run.calls[-1], task, 1)


def test_tasks_fail_at_once_when_all_nodes_are_refused(driver: Driver) -> None:
    theirs = msgspec.structs.replace(node.versions(), torch="1.0")
    task = driver.workers.submit(add, Sum(1, 1), SECONDS)
    driver.ray.actor("a").describe.calls[0].reply.set_result(msgspec.json.encode(theirs))
    with pytest.raises(UnsupportedError, match="no node can work: node a is not used: found ddefuzz"):
        task.result()
    assert driver.ray.actors[0].end.calls


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "host:port", "host"])
def test_where_no_cluster_is_the_address_is_refused(address: str, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"^--address: found no Ray cluster to use at .*, expected auto, or HOST:PORT"),
        Engine("ray", address).start(1, tmp_path, Setup()),
    ):
        pass


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    journal = tmp_path_factory.mktemp("journal")
    setup = Setup(files={"DDEFUZZ_TEST_FILE": "a text"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), str(Path.cwd())]))  # of these tasks
        with Cluster(Engine("ray"), 1, journal, setup) as workers:
            yield workers, journal


@pytest.mark.slow
def test_a_node_runs_tasks_as_a_pool_does(real: tuple[Cluster, Path]) -> None:
    workers, journal = real
    assert workers.submit(add, Sum(2, 3), SECONDS).result() == 5
    assert workers.submit(add, Sum(2, 3), SECONDS, cold=True).result() == 5
    assert workers.submit(file_of, "DDEFUZZ_TEST_FILE", SECONDS).result() == "a text"
    with pytest.raises(InputError, match="found 7, expected more"):
        workers.submit(refuse, Sum(7, 0), SECONDS).result()
    lost = workers.submit(crash_in_case, Sum(41, 0), SECONDS).result()
    assert isinstance(lost, LostTask)
    assert (lost.outcome, lost.reason) == ("crash", "SIGSEGV (Segmentation fault)")
    entry = last_of_case(journal, 41)
    assert entry is not None and entry.program == "x = 1"
