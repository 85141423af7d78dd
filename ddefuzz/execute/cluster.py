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
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ddefuzz.errors import EXIT_USAGE, DdefuzzError, InputError, UnsupportedError
from ddefuzz.execute import node
from ddefuzz.execute.engine import Engine, Setup
from ddefuzz.execute.pool import Future, LostTask, encoded_argument
from ddefuzz.execute.worker import signature

A = TypeVar("A")
R = TypeVar("R")

POLL_SECONDS: Final = 1.0

START_SECONDS: Final = 120.0
"""How long to wait for the first node that can work, and for another one when none is left."""

CONNECT_SECONDS: Final = 10.0

NOT_REMOTE: Final = ("", "auto", "local")
"""Addresses that name no host: Ray finds or starts a cluster on this machine."""

END_SECONDS: Final = 10.0
"""How long the nodes have to end their processes."""

MOST_LOSSES: Final = 3
"""A task whose node is lost more often is not judged, and a node whose actor dies more often in a row is not used."""

CONTROL: Final = "control"
"""The thread of an actor in which no task waits."""

CALLS_PER_JOB: Final = 8
"""How many calls of an actor wait in threads of their own, for each of its workers. The others wait in Ray."""


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
    """A node that has an actor. It works if it has `jobs`."""

    name: str
    actor: Any
    jobs: int = 0
    running: set[NodeFuture[Any]] = field(default_factory=set)


class Cluster:
    """The workers of a Ray cluster. Use it in a `with` block.

    Nodes may come and go. Raises InputError if there is no cluster at the address, and UnsupportedError if no node can
    work.
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
        self._changed = threading.Condition(self._lock)
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ddefuzz-nodes", daemon=True)

    def __enter__(self) -> Cluster:
        _connect(self._address)
        self._watcher.start()
        with self._changed:
            if not self._changed.wait_for(lambda: self._jobs() or self._hopeless(), START_SECONDS) or not self._jobs():
                reasons = "; ".join(self._unusable.values()) or "no node has the CPUs to start the workers"
                self.__exit__(None, None, None)
                raise UnsupportedError(f"--engine ray: no node can work: {reasons}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watcher.join()
        with self._lock:
            members, self._members = tuple(self._members.values()), {}
        ends = [member.actor.end.options(concurrency_group=CONTROL).remote() for member in members if member.jobs]
        with suppress(RayError):
            ray.wait(ends, num_returns=len(ends), timeout=END_SECONDS) if ends else None
        for member in members:
            ray.kill(member.actor)
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

    def _hopeless(self) -> bool:
        """Whether every node that there is cannot be used."""
        return bool(self._unusable) and not self._members

    def _send(self, future: NodeFuture[Any]) -> None:
        """Hand a task to the node with the shortest queue for its workers; it waits if there is none."""
        with self._lock:
            able = [(key, member) for key, member in self._members.items() if member.jobs]
            if not able:
                self._waiting.append(future)
                return
            key, member = min(able, key=lambda pair: len(pair[1].running) / pair[1].jobs)
            member.running.add(future)
            call = member.actor.run.remote(*future.words)
        call.future().add_done_callback(partial(self._arrive, key, member, future))

    def _arrive(self, key: str, member: Member, future: NodeFuture[Any], done: futures.Future[bytes]) -> None:
        """Take the reply of a node. If it was lost, another node gets the task."""
        with self._lock:
            member.running.discard(future)
        try:
            reply = msgspec.json.decode(done.result(), type=node.Reply)
        except RayActorError as error:
            self._drop(key, member, error)
            future.losses += 1
            if future.losses <= MOST_LOSSES:
                self._send(future)
                return
            reply = node.Reply(lost=LostTask("not-judged", f"its node was lost {future.losses} times"))
        except Exception as error:  # noqa: BLE001 a bug of ddefuzz on the node: whoever waits for the task gets it
            future.reply.set_exception(error)
            return
        if reply.journal:
            with self._lock, (self._journal / f"worker-{key}.jsonl").open("a") as file:
                file.write(reply.journal)
        self._deaths.pop(key, None)
        future.reply.set_result(reply)

    def _drop(self, key: str, member: Member, error: Exception) -> None:
        """Use an actor no more that has failed. If its node lives, it gets another one."""
        with self._lock:
            if self._members.get(key) is not member:
                return
            del self._members[key]
            self._deaths[key] += 1
            if self._deaths[key] > MOST_LOSSES:
                self._refuse(key, member.name, f"its workers die: {_last_line(error)}")
            elif member.jobs and not self._ended.is_set():
                self._note(f"node {member.name} is lost: its tasks go to others")
        with suppress(RayError):
            ray.kill(member.actor)

    def _refuse(self, key: str, name: str, reason: str) -> None:
        self._unusable[key] = f"node {name} is not used: {reason}"
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
            with self._changed:
                idle = 0.0 if self._jobs() else idle + POLL_SECONDS
                if idle >= START_SECONDS:
                    self._fail_waiting()
                self._changed.notify_all()

    def _look(self) -> None:
        """Take in the nodes that have come, and drop those that have gone."""
        present = {entry["NodeID"]: entry for entry in ray.nodes() if entry["Alive"] and entry["Resources"].get("CPU")}
        with self._lock:
            for key in self._members.keys() - present.keys():
                self._drop(key, self._members[key], RayActorError())
            for key in sorted(present.keys() - self._members.keys() - self._unusable.keys()):
                self._join(key, present[key])

    def _fail_waiting(self) -> None:
        reasons = "; ".join(self._unusable.values())
        error = UnsupportedError(f"--engine ray: no node is left{f': {reasons}' if reasons else ''}")
        while self._waiting:
            self._waiting.popleft().reply.set_exception(error)

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
        member = self._members[key] = Member(entry["NodeManagerHostname"], actor)
        actor.describe.remote().future().add_done_callback(partial(self._take_in, key, member, jobs))

    def _take_in(self, key: str, member: Member, jobs: int, done: futures.Future[bytes]) -> None:
        with self._changed:
            if self._members.get(key) is not member:
                return
            try:
                theirs = msgspec.json.decode(done.result(), type=node.Versions)
            except RayActorError as error:
                self._drop(key, member, error)
            except Exception as error:  # noqa: BLE001 whatever keeps the actor from its start is said
                del self._members[key]
                self._refuse(key, member.name, _last_line(error))
            else:
                if theirs != self._versions:
                    del self._members[key]
                    self._refuse(key, member.name, f"found {theirs}, expected {self._versions}")
                else:
                    member.jobs = jobs
                    self._note(f"node {member.name}: {jobs} workers")
            waiting, self._waiting = tuple(self._waiting), deque()
            self._changed.notify_all()
        for future in waiting:
            self._send(future)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _connect(address: str) -> None:
    """Connect this process to a cluster, without telemetry. Ray's handler of SIGTERM is taken away again.

    Raises InputError if no cluster answers. Ray itself would try for minutes.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    place = address or os.environ.get("RAY_ADDRESS", "")
    expected = "expected auto, or HOST:PORT of the cluster whose node this machine is"
    before = signal.getsignal(signal.SIGTERM)
    try:
        if place not in NOT_REMOTE:
            host, _, port = place.rpartition(":")
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(
            place or None, include_dashboard=None if place else False, log_to_driver=False, logging_level=logging.ERROR
        )
    except (OSError, RayError, ValueError, RuntimeError) as error:
        raise InputError(f"--address: found no Ray cluster at {place!r} ({_last_line(error)}), {expected}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
