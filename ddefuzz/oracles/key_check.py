"""Tries every property of a key function, each as a task of a worker: the function ends or spoils no more than that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Lost, Pool, lost_observation
from ddefuzz.execute.protocol import KeySubject, Run
from ddefuzz.execute.worker import late
from ddefuzz.keys.case import KINDS, Checked, Kind, Options, Property, PropertyName
from ddefuzz.oracles.keys import KIND_OF, STAGE

START_SECONDS: Final = 120.0
"""How long the module of the function may take to import."""

PROPERTY_SECONDS: Final = 600.0
"""How long one property may take, unless the caller says otherwise."""


class PropertyTask(msgspec.Struct, frozen=True):
    """One property of a function to try, on so many drawn tensors, or pairs of them, of these kinds."""

    target: str
    name: PropertyName
    options: Options
    examples: int
    kinds: tuple[Kind, ...]


def check_key(
    pool: Pool,
    target: str,
    options: Options,
    examples: int,
    names: Sequence[str],
    timeout: float,
    tell: Callable[..., None],
) -> Checked:
    """Every property of the function. `tell` gets the progress. Raises InputError for a target that has none."""
    wrong = next((name for name in names if name not in KINDS), None)
    if wrong is not None:
        raise InputError(f"--kind: found {wrong!r}, expected one of {', '.join(KINDS)}")
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if not names or kind in names)
    version = pool.submit(find_key, target, START_SECONDS).result()
    if isinstance(version, Lost):
        raise InputError(f"{target}: found a module whose import ends in {version.outcome}: {version.reason}")
    tried: list[Property] = []
    for name in KIND_OF:
        tried.append(_tried(pool, PropertyTask(target, name, options, examples, kinds), timeout))
        tell(f"{len(tried)} of {len(KIND_OF)} properties", is_last=len(tried) == len(KIND_OF))
    return Checked(target, options, version, tuple(tried))


def _tried(pool: Pool, task: PropertyTask, timeout: float) -> Property:
    try:
        found = pool.submit(try_property, task, timeout).result()
    except InputError as error:
        return Property(task.name, "", 0, (), str(error))
    if isinstance(found, Lost):
        lost = lost_observation(Run(KeySubject(task.target), STAGE.name), found)
        return Property(task.name, "", 0, (), lost.reason)
    return found


def find_key(target: str) -> str:
    """Import the function that the target names, as a task. It returns the version of torch."""
    late("ddefuzz.oracles.keys_run").load_key(target)
    return str(late("torch").__version__)


def try_property(task: PropertyTask) -> Property:
    """`keys_run.try_property` as a task."""
    tried: Property = late("ddefuzz.oracles.keys_run").try_property(task)
    return tried
