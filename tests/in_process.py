"""Workers that do their tasks in this process, when they are submitted, as a worker does: JSON in, JSON out."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ddefuzz import internal
from ddefuzz.execute import pool, worker
from ddefuzz.execute.protocol import Observation, PatchedRun, Run


class Done:
    """A future that is already there."""

    def __init__(self, result: Callable[[], Any]) -> None:
        self.result = result

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)


class InProcess:
    """What `Pool` and `Workers` do."""

    jobs = 1

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False) -> Done:
        del timeout, cold
        _, kind = worker.signature(function)
        before = internal.take()
        try:
            encoded = Context().run(worker.perform, function, msgspec.json.encode(argument))
        except Exception as error:  # noqa: BLE001 as a future does
            return Done(partial(_raise, error))
        finally:
            Context().run(internal.add, before, Path(internal.folder()))
        return Done(partial(pool.answered, encoded, kind))

    def observe(self, run: Run, timeout: float) -> Observation:
        found = self.submit(worker.observe_run, run, timeout).result()
        return pool.lost_observation(run, found) if isinstance(found, pool.LostTask) else found

    def observe_patched(self, task: PatchedRun, timeout: float) -> Observation:
        found = self.submit(worker.observe_patched_run, task, timeout).result()
        return pool.lost_observation(task.run, found) if isinstance(found, pool.LostTask) else found


def _raise(error: Exception) -> None:
    raise error
