"""The public Python API. `import ddefuzz` has its names; docs/api.md describes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any, TypeAlias

from ddefuzz import internal
from ddefuzz.campaign.launch import new_plan, start
from ddefuzz.campaign.summary import Summary
from ddefuzz.checking.check import Options, check_live, check_named, state_kept
from ddefuzz.checking.report import Report
from ddefuzz.custom_ops.check import chosen_checks
from ddefuzz.custom_ops.model import OpReport, OpTask, Source
from ddefuzz.custom_ops.report import op_text
from ddefuzz.errors import DdefuzzError, InputError
from ddefuzz.execute.limit import check_seconds
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import DEFAULT_STAGES, STAGES, Stage
from ddefuzz.execute.worker import hide_main, late
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.keys.case import KeyReport
from ddefuzz.keys.case import Options as KeyOptions
from ddefuzz.oracles.keys import PROPERTY_SECONDS
from ddefuzz.oracles.keys import check_key as checked_key
from ddefuzz.oracles.table import BY_DEFAULT, OF_PROGRAMS, check_choice
from ddefuzz.program.model import Program

__all__ = [
    "Database",
    "Finding",
    "KeyReport",
    "OpReport",
    "Report",
    "Summary",
    "assert_captures",
    "check",
    "check_key",
    "check_op",
    "open_database",
    "run",
]

Unbacked: TypeAlias = str | Mapping[str | int, object]
"""Dims to make unbacked: `{"ids": [0, 1], "mask": {0: "n"}}`, `"ids:0,1;mask:0=n"`, or `"all"`."""


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors name arguments, not options of the command line, and have no traceback of a worker process."""
    try:
        yield
    except DdefuzzError as error:
        raise (type(error)(str(error)[2:]) if str(error).startswith("--") else error) from None


def _check_type(name: str, value: object, *types: type) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        expected = " or ".join("None" if one is type(None) else one.__name__ for one in types)
        raise InputError(f"{name}: found an argument of type {type(value).__name__}, expected {expected}")


@_plain_errors()
def check(
    model: Callable[..., Any] | Program | str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    unbacked: Unbacked = "",
    stages: Sequence[Stage] = DEFAULT_STAGES,
    oracles: Sequence[str] = (),
    budget: float | None = 30.0,
    timeout: float = 60.0,
) -> Report:
    """Capture a model in several stages, and explain what fails.

    A live model (a function, an `nn.Module`, a `Program`) is captured in this process, without limits of time and
    memory: code that hangs, hangs here, and `timeout` says nothing. Each capture has copies of the module and of the
    arguments. What torch has compiled before is forgotten (`torch._dynamo.reset`).

    A name (`model.py:make_model`, `package.module:Model`) is imported and captured in a worker process, within
    `timeout` CPU seconds for each capture. It brings its own arguments.

    `unbacked` or `dynamic_shapes` (as torch.export takes it) say which dims are dynamic; so do marks on tensors.
    `oracles` names those that `ddefuzz check --oracle` takes. Changes of the code are tried for `budget` seconds, and
    with None, none are tried.

    Raises InputError for what cannot be captured: arguments that do not fit, a name that does not exist. The same for
    unknown stages and oracles. Raises RuntimeError for an exception of ddefuzz itself.
    """
    for name, value in {"args": args, "stages": stages, "oracles": oracles}.items():
        _check_type(name, value, list, tuple)
    options = Options(stages=tuple(stages), oracles=tuple(oracles), timeout=timeout, budget=budget)
    with internal.apart() as errors:
        if not isinstance(model, str):
            report = check_live(model, tuple(args), dict(kwargs or {}), dynamic_shapes, unbacked, options)
        elif args or kwargs or dynamic_shapes is not None or not isinstance(unbacked, str):
            raise InputError(f"{model}: found arguments for a name, expected those that its file has")
        else:
            hide_main()
            report = check_named([model], options, unbacked=unbacked)
    if errors:
        raise RuntimeError("\n".join(map(str, errors)))
    return report


def assert_captures(
    model: Callable[..., Any] | Program | str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    unbacked: Unbacked = "",
    stages: Sequence[Stage] = DEFAULT_STAGES,
    oracles: Sequence[str] = (),
    budget: float | None = None,
    timeout: float = 60.0,
) -> Report:
    """Assert that a model is captured, and computes what eager computes. The arguments are those of `check`.

    Raises AssertionError with the report as its message. By default no changes of the code are tried.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    report = check(
        model,
        args,
        kwargs,
        dynamic_shapes=dynamic_shapes,
        unbacked=unbacked,
        stages=stages,
        oracles=oracles,
        budget=budget,
        timeout=timeout,
    )
    if not report.ok:
        raise AssertionError(report.text())
    return report


@_plain_errors()
def run(
    database: Database,
    *,
    budget: str = "60s",
    seed: int | None = None,
    jobs: int | None = None,
    profile: str = "default",
    stages: Sequence[Stage] = DEFAULT_STAGES,
    oracles: Sequence[str] = BY_DEFAULT,
    guided: bool = True,
    minimize: bool = True,
) -> Summary:
    """Run a fuzzing campaign, and record its findings.

    `budget` is a time (`10m`), a number of cases (`1000x`) or CPU seconds of the workers (`600cpu`). `jobs` is the
    number of worker processes, by default one for each core. The same seed draws the same cases; without one, it is
    drawn.
    """
    _check_type("database", database, Database)
    _check_type("budget", budget, str)
    _check_type("seed", seed, int, type(None))
    _check_type("jobs", jobs, int, type(None))
    check_choice("stages", stages, STAGES, some=True)
    check_choice("oracles", oracles, OF_PROGRAMS)
    plan = new_plan(
        profile=profile,
        seed=seed,
        budget=budget,
        jobs=jobs or os.cpu_count() or 1,
        stages=stages,
        semantics=("explicit",),
        minimize=minimize,
        in_turn=True,
        screen=True,
        guided=guided,
        oracles=oracles,
    )
    hide_main()
    return start(plan, database, lambda _event, _tally: None, lambda: False)


@_plain_errors()
def open_database(url: str, *, create: bool = True) -> Database:
    """Open a database of findings, such as `sqlite:///findings/ddefuzz.db`. Use it in a `with` block.

    Raises DatabaseError if it cannot be opened, or is not there and `create` is False.
    """
    _check_type("url", url, str)
    return Database.open(url, create=create)


@_plain_errors()
def check_key(
    target: str,
    options: KeyOptions | None = None,
    *,
    examples: int = 300,
    kinds: Sequence[str] = (),
    timeout: float = PROPERTY_SECONDS,
) -> KeyReport:
    """Check a function that makes the keys of a cache of compiled kernels. It is imported and called in a worker.

    `target` is `MODULE:FUNCTION` or `FILE:FUNCTION`. Each property is tried on so many drawn tensors or pairs of them,
    of these kinds, by default all, for at most `timeout` CPU seconds. The violations are in `properties` of the result.
    """
    _check_type("target", target, str)
    check_seconds("timeout: ", timeout)
    hide_main()
    with Pool(1, samples=False) as pool:
        return checked_key(pool, target, options or KeyOptions(), examples, kinds, timeout, lambda *_, **__: None)


def check_op(
    op: Any,
    examples: Sequence[Any] = (),
    *,
    without: Sequence[str] = (),
    budget: float = 30.0,
    seed: int = 0,
    raise_exception: bool = True,
) -> OpReport:
    """Check a custom op: its fake kernel with unbacked and ordinary sizes, and what its schema and formulas say.

    `op` is what `torch.library.opcheck` takes, or a name `mylib::op`. Each example is a tuple of arguments, a pair
    (tuple, dict), or a function of sizes that returns one; without any, arguments are drawn from the schema. It runs
    in this process, for about `budget` CPU seconds, without the checks that `without` names.

    Raises AssertionError with the report as its message if something is wrong, unless `raise_exception` is False.
    Raises InputError if the op cannot be judged: no fake kernel, or an example that the op refuses.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    with _plain_errors():
        _check_type("examples", examples, list, tuple)
        _check_type("without", without, list, tuple)
        _check_type("seed", seed, int)
        check_seconds("budget: ", budget)
        chosen = chosen_checks(without, "without")
        worker = late("ddefuzz.custom_ops.worker")
        overload = worker.overload_of(op)
        task = OpTask(Source(), overload.name(), chosen, budget, seed)
        with state_kept():
            report: OpReport = worker.checked(overload, examples, task)
        if report.reason:
            raise InputError(report.reason)
    if raise_exception and not report.ok:
        # pytest puts eight characters before each line
        raise AssertionError(op_text(report, max(get_terminal_size((128, 24)).columns - 8, 60)))
    return report
