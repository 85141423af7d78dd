"""Workers on the nodes of a Ray cluster: one actor a node (`node`), and a driver that hands each task to one of them.

Only this module imports Ray. A task whose node is lost goes to another one. What the lost node may still send is for
a call that nobody waits for, so each task has one result.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ddefuzz.errors import EXIT_USAGE, DdefuzzError, InputError, UnsupportedError
from ddefuzz.execute import node
from ddefuzz.execute.engine import Engine, Setup
from ddefuzz.execute.pool import Future, LostTask, encoded_argument
from ddefuzz.execute.worker import signature
from ddefuzz.internal import error_line

A = TypeVar("A")
R = TypeVar("R")

POLL_SECONDS: Final = 1.0

START_SECONDS: Final = 300.0
"""How long to wait for the first node that can work, and for another one when none is left. A cloud starts machines."""

CONNECT_SECONDS: Final = 10.0

END_SECONDS: Final = 10.0
"""How long the nodes have to end their processes."""

NOT_REMOTE: Final = ("auto", "local")
"""Addresses that name no host: that of the cluster to which this machine belongs, and a new one on this machine."""

CONTROL: Final = "control"
"""The thread of an actor in which no task waits."""

MOST_LOSSES: Final = 3
"""A task whose node is lost more often is not judged, and a node whose actor dies more often in a row is not used."""

CALLS_PER_JOB: Final = 4
"""How many tasks a node has at once, for each of its workers. A campaign has two for a warm worker, one for a cold."""


class NodeFuture(Future[R]):
    """The future result of a task that a node runs."""

    def __init__(self, send: Callable[[NodeFuture[R]], None], kind: Any, words: tuple[str, bytes, float, bool]) -> None:
        super().__init__(kind)
        self.words = words
        self.losses = 0
        self._send = send
        self.repeat()

    def done(self) -> bool:
        return self.reply.done()

    def add_done_callback(self, callback: Callable[[Future[R]], None]) -> None:
        self.reply.add_done_callback(lambda _: callback(self))

    def answer(self) -> bytes | LostTask:
        reply = self.reply.result()
        if reply.refusal is not None:
            refused: type[DdefuzzError] = InputError if reply.refusal.exit_code == EXIT_USAGE else UnsupportedError
            raise refused(reply.refusal.text)
        return reply.lost or bytes(reply.answer)

    def repeat(self) -> None:
        self.reply: futures.Future[node.Reply] = futures.Future()
        self._send(self)


@dataclass(slots=True, eq=False)
class Member:
    """A node that has an actor. It works if it has `jobs`.

    Replies are numbered by the node. Lines of its journal come with them. So a loss waits (`held`) until all `numbers`
    before it have arrived: `next_number` is the first that has not.
    """

    name: str
    actor: Any
    jobs: int = 0
    running: set[NodeFuture[Any]] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    next_number: int = 0
    held: list[tuple[int, NodeFuture[Any], node.Reply]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        """Whether it takes another task."""
        return len(self.running) < CALLS_PER_JOB * self.jobs

    def released(self, *, every: bool = False) -> list[tuple[NodeFuture[Any], node.Reply]]:
        """The losses that need not wait any longer."""
        while self.next_number in self.numbers:
            self.numbers.remove(self.next_number)
            self.next_number += 1
        free = [one for one in self.held if every or one[0] < self.next_number]
        self.held = [one for one in self.held if one not in free]
        return [(future, reply) for _, future, reply in free]


class Cluster:
    """The workers of a Ray cluster. Use it in a `with` block.

    Nodes may come and go. Raises InputError if there is no cluster at the address. If no node can work, tasks raise
    UnsupportedError.
    """

    def __init__(self, engine: Engine, jobs: int, journal: Path, setup: Setup) -> None:
        self._address, self._note = engine.address, engine.note
        self._jobs_of_node, self._journal, self._setup = jobs, journal, msgspec.json.encode(setup)
        self._versions = node.versions()
        self._members: dict[str, Member] = {}
        self._deaths: Counter[str] = Counter()
        self._unusable: dict[str, str] = {}
        self._waiting: deque[NodeFuture[Any]] = deque()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ddefuzz-nodes", daemon=True)

    def __enter__(self) -> Cluster:
        _connect(self._address)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watcher.join(END_SECONDS)
        with self._lock:
            actors = [member.actor for member in self._members.values()]
            self._members = {}
        try:
            _end(actors)
        finally:
            ray.shutdown()

    @property
    def jobs(self) -> int:
        """How many tasks the nodes run at once. At least 1, so that a campaign without nodes waits for one."""
        with self._lock:
            return self._jobs() or 1

    def submit(self, function: Callable[[A], R], argument: A, timeout: float, *, cold: bool = False) -> Future[R]:
        """Run `function(argument)` for at most `timeout` CPU seconds, in a fresh process if `cold`."""
        _, kind = signature(function)
        return NodeFuture(self._send, kind, (node.named(function), encoded_argument(argument), timeout, cold))

    def _jobs(self) -> int:
        return sum(member.jobs for member in self._members.values())

    def _send(self, future: NodeFuture[Any]) -> None:
        """Hand a task to the node with the shortest queue for its workers. It waits if none has room."""
        with self._lock:
            self._waiting.append(future)
        self._hand_out()

    def _hand_out(self) -> None:
        """Hand out the tasks that wait, as far as nodes have room."""
        while True:
            with self._lock:
                able = [(key, member) for key, member in self._members.items() if member.has_room]
                if not able or not self._waiting:
                    return
                future = self._waiting.popleft()
                key, member = min(able, key=lambda pair: len(pair[1].running) / pair[1].jobs)
                member.running.add(future)
            try:
                call = member.actor.run.remote(*future.words).future()
            except Exception as error:  # noqa: BLE001 Ray cannot reach the actor, for any of its reasons
                self._lose(key, member, future, error)
            else:
                call.add_done_callback(partial(self._arrive, key, member, future))

    def _arrive(self, key: str, member: Member, future: NodeFuture[Any], done: futures.Future[bytes]) -> None:
        """Take the reply of a node. If it was lost, another node gets the task."""
        try:
            reply = msgspec.json.decode(done.result(), type=node.Reply)
            self._write(key, reply)
        except RayTaskError as error:  # a bug of ddefuzz on the node
            reply = node.Reply(lost=LostTask("not-judged", f"on node {member.name}: {_last_line(error)}"))
        except RayError as error:
            self._lose(key, member, future, error)
            return
        except Exception as error:  # noqa: BLE001 what keeps the reply from being used: whoever waits gets a loss
            reply = node.Reply(lost=LostTask("not-judged", error_line(error)))
        with self._lock:
            member.running.discard(future)
            self._deaths.pop(key, None)
            if reply.number >= 0:
                member.numbers.add(reply.number)
            if reply.lost is not None and reply.number >= 0 and key in self._members:
                member.held.append((reply.number, future, reply))
                replies = []
            else:
                replies = [(future, reply)]
            replies += member.released()
        for free, its_reply in replies:
            free.reply.set_result(its_reply)
        self._hand_out()

    def _write(self, key: str, reply: node.Reply) -> None:
        if reply.journal:
            with self._lock, (self._journal / f"worker-{key}.jsonl").open("a", encoding="utf-8") as file:
                file.write(reply.journal)

    def _lose(self, key: str, member: Member, future: NodeFuture[Any], error: Exception) -> None:
        """Drop the node of a task, and hand the task to another one, unless that has happened too often."""
        with self._lock:
            member.running.discard(future)
        self._drop(key, member, error)
        future.losses += 1
        if future.losses <= MOST_LOSSES:
            self._send(future)
            return
        lost = LostTask("not-judged", f"its node was lost {future.losses} times: {_last_line(error)}")
        future.reply.set_result(node.Reply(lost=lost))

    def _drop(self, key: str, member: Member, error: Exception) -> None:
        """Use an actor no more that has failed. If its node lives, it gets another one."""
        with self._lock:
            if self._members.get(key) is not member:
                return
            del self._members[key]
            self._deaths[key] += 1
            if self._deaths[key] > MOST_LOSSES:
                self._refuse(key, member, f"its workers die: {_last_line(error)}")
            elif member.jobs and not self._ended.is_set():
                self._note(f"node {member.name} is lost: its tasks go to others")
            replies = member.released(every=True)
        for future, reply in replies:
            future.reply.set_result(reply)
        _kill(member.actor)

    def _refuse(self, key: str, member: Member, reason: str) -> None:
        self._unusable[key] = f"node {member.name} is not used: {reason}"
        self._note(self._unusable[key])

    def _watch(self) -> None:
        """See nodes come and go, once a second."""
        idle, failure = 0.0, ""
        while not self._ended.wait(POLL_SECONDS):
            try:
                self._look()
                failure = ""
            except Exception as error:  # noqa: BLE001 Ray raises many kinds while the head of the cluster is away
                if failure != (failure := _last_line(error)):
                    self._note(f"the cluster does not answer: {failure}")
            with self._lock:
                idle = 0.0 if self._jobs() else idle + POLL_SECONDS
                is_hopeless = bool(self._unusable) and not self._members and not failure
            if is_hopeless or idle > START_SECONDS:
                self._fail_waiting()

    def _look(self) -> None:
        """Take in the nodes that have come, and drop those that have gone."""
        nodes = {entry["NodeID"]: entry for entry in ray.nodes() if entry["Alive"]}
        present = {key: entry for key, entry in nodes.items() if entry["Resources"].get("CPU", 0) >= 1}
        with self._lock:
            gone = [(key, member) for key, member in self._members.items() if key not in present]
            come = sorted(present.keys() - self._members.keys() - self._unusable.keys())
        for key, member in gone:
            self._drop(key, member, RayError("the node has gone"))
        for key in come:
            self._join(key, present[key])

    def _fail_waiting(self) -> None:
        """Fail the tasks that wait for a node: there is none."""
        reasons = "; ".join(self._unusable.values()) or "none has the CPUs for the workers"
        error = UnsupportedError(f"--engine ray: no node can work: {reasons}")
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), deque()
        for future in waiting:
            future.reply.set_exception(error)

    def _join(self, key: str, entry: dict[str, Any]) -> None:
        """Start the actor of a node, and take it in when it says that it can work."""
        jobs = self._jobs_of_node or int(entry["Resources"]["CPU"])
        as_actor: Any = ray.remote  # its types lack the option
        actor = (
            as_actor(concurrency_groups={CONTROL: 1})(node.Node)
            .options(
                num_cpus=jobs,
                max_concurrency=CALLS_PER_JOB * jobs,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False),
            )
            .remote(jobs, self._setup)
        )
        member = Member(entry["NodeManagerHostname"], actor)
        with self._lock:
            self._members[key] = member
        actor.describe.remote().future().add_done_callback(partial(self._take_in, key, member, jobs))

    def _take_in(self, key: str, member: Member, jobs: int, done: futures.Future[bytes]) -> None:
        try:
            theirs = msgspec.json.decode(done.result(), type=node.Versions)
            problem = "" if theirs == self._versions else f"found {theirs}, expected {self._versions}"
        except RayTaskError as error:  # such as an import that fails there
            problem = _last_line(error)
        except RayError as error:
            self._drop(key, member, error)
            return
        except Exception as error:  # noqa: BLE001 whatever keeps it from being used is said
            problem = _last_line(error)
        with self._lock:
            if self._members.get(key) is not member:
                return
            if problem:
                del self._members[key]
                self._refuse(key, member, problem)
            else:
                member.jobs = jobs
                self._note(f"node {member.name}: {jobs} worker{'s' if jobs > 1 else ''}")
        if problem:
            _end([member.actor])
        self._hand_out()


def _end(actors: Iterable[Any]) -> None:
    """End the processes of actors, and remove their files."""
    calls = []
    for actor in actors:
        with suppress(Exception):  # it may be gone
            calls.append((actor, actor.end.options(concurrency_group=CONTROL).remote()))
    with suppress(Exception):
        ray.wait([call for _, call in calls], num_returns=len(calls), timeout=END_SECONDS)
    for actor, _ in calls:
        _kill(actor)


def _kill(actor: Any) -> None:
    with suppress(Exception):  # it may be gone
        ray.kill(actor)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _connect(address: str) -> None:
    """Connect this process to a cluster, without telemetry. Ray's handler of SIGTERM is taken away again.

    Raises InputError if no cluster answers. Ray itself would try for minutes.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    place = address or os.environ.get("RAY_ADDRESS", "") or "local"
    expected = "expected auto, or HOST:PORT of the cluster whose node this machine is"
    before = signal.getsignal(signal.SIGTERM)
    try:
        if place not in NOT_REMOTE:
            host, _, port = place.rpartition(":")
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        dashboard = False if place == "local" else None
        ray.init(place, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=dashboard)
    except (OSError, RayError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"--address: found no Ray cluster to use at {place!r} ({text[:300]}), {expected}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
