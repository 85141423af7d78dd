"""Options that several commands share."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Any, get_args

import rich_click as click
from click import get_current_context
from click.core import ParameterSource

from ddefuzz.cli.command import PROCESSES, SECONDS, option
from ddefuzz.cli.streams import say
from ddefuzz.errors import InputError
from ddefuzz.execute.engine import Engine, EngineName
from ddefuzz.execute.protocol import CAPTURE_STAGES, DEFAULT_STAGES, RETRACES, STAGES
from ddefuzz.instrument.events import Mechanism
from ddefuzz.oracles.table import BY_DEFAULT, OF_PROGRAMS, ORACLES

DEFAULT_DB = "sqlite:///findings/ddefuzz.db"


def user() -> str:
    """The name of who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # some containers have no entry for the user
        return "unknown"


JOBS = option(
    "Number of worker processes; auto: one for each core.",
    "-j --jobs",
    default="auto",
    type_=PROCESSES,
    metavar="N",
)
ENGINE = option(
    "Where the workers are: local (processes of this machine), or ray (the nodes of a Ray cluster; there -j is the "
    "number of processes of each node, by default one for each of its CPUs).",
    default="local",
    type_=get_args(EngineName),
    metavar="NAME",
)
ADDRESS = option(
    "With --engine ray: the address of the cluster, such as auto or ray-head:6379. Default: RAY_ADDRESS, or else a new "
    "cluster of this machine alone.",
    default="",
    metavar="HOST:PORT",
)
DB = option("URL of the findings database.", default=DEFAULT_DB)
A_PYTHON = "An interpreter that has a torch, 2.6 or later. NAME is for the table (default: the version of its torch)."
PYTHONS = option(A_PYTHON, "--python", metavar="[NAME=]PATH", required=True)
TRUST = option("Execute the user's code too: modules that trusted.toml files list, and any key function.")
IN_STAGES = option(
    "How far torch takes a program: eager, fake (FakeTensorMode only), export, export-strict, compile (torch.compile "
    "with backend eager), aot (backend aot_eager) or inductor. After another one: "
    f"{', '.join(f'{stage} ({row.begins}, then {row.how})' for stage, row in RETRACES.items())}.",
    default=DEFAULT_STAGES,
    type_=STAGES,
)
WHY = option("The reason, for the history.", default="", metavar="TEXT")
WHO = option("Name for the history. Default: your user name.", "--by", default=user, metavar="NAME")


def capture_stage_option(help_text: str, names: tuple[str, ...] = CAPTURE_STAGES) -> Any:
    """The parameter `stage`, or `stages`, of capture stages without a default."""
    return option(help_text, "--stage", type_=names, metavar="STAGE")


SEEDS = click.IntRange(0, 2**63 - 1)
"""The seeds that a database can store."""


def seed_option(of: str) -> Any:
    """The parameter `seed`."""
    return option(f"Seed of the {of}.", default=0, type_=SEEDS, metavar="N")


def profile_option(names: tuple[str, ...]) -> Any:
    """The parameter `profile`."""
    help_text = f"Kind of programs to generate: {', '.join(names)}."
    return option(help_text, default="default", type_=names, metavar="NAME")


def timeout_option(default: float, of: str) -> Any:
    """The parameter `timeout`."""
    help_text = f"Limit of {of}: CPU seconds of its process, and five times as many seconds by the clock."
    return option(help_text, default=default, type_=SECONDS)


def semantics_option(note: str = "") -> Any:
    """The parameter `semantics`."""
    help_text = (
        "What happens at a guard that cannot be decided: explicit (take its fallback answer, as torch does), "
        "size-oblivious (assume sizes of 2 or more, as torch did before), aggressive-1 or aggressive-2 (torch's "
        "aggressive_guard_free_semantics)."
    )
    return option(help_text + note, "--semantics", default=get_args(Mechanism)[:1], metavar="NAME")


def oracles_option(note: str, default: tuple[str, ...] = BY_DEFAULT) -> Any:
    """The parameter `oracles`."""
    about = ", ".join(f"{oracle.name} ({oracle.about})" for oracle in ORACLES if oracle.of_programs)
    help_text = f"What counts as a failure: {about}. {note}"
    return option(help_text, type_=OF_PROGRAMS, default=default, metavar="NAME")


def engine_of(name: EngineName, address: str, jobs: int) -> tuple[Engine, int]:
    """The engine that was typed, and the processes: of each node, 0 if no number was typed. Its notes go to stderr."""
    if name == "local":
        if address:
            raise InputError(f"found --address {address} with --engine local, expected it with --engine ray")
        return Engine(), jobs
    source = get_current_context().get_parameter_source("jobs")
    return Engine(name, address, say), 0 if source is ParameterSource.DEFAULT else jobs


def now() -> datetime:
    """The time of a decision."""
    return datetime.now(UTC)
