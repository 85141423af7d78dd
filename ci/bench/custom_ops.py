"""What `ddefuzz check-op` and `torch.library.opcheck` find wrong with the same custom ops, with the same examples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from warnings import catch_warnings, simplefilter

import msgspec
import torch

from ci.bench.command import Result, Session
from ddefuzz.artifacts.model import version
from ddefuzz.custom_ops.arguments import inputs_of, is_common_float
from ddefuzz.custom_ops.check import START_SECONDS, check_ops, verdict
from ddefuzz.custom_ops.log import TestedOp
from ddefuzz.custom_ops.model import OpReport, OpTask, Source
from ddefuzz.custom_ops.worker import find_op, load
from ddefuzz.errors import NothingRanError
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.show.blocks import Block, prose, table

SECONDS: Final = 120.0


class OpcheckResult(msgspec.Struct, frozen=True):
    """The tests of opcheck that fail for some example. `reason` says why it was not run."""

    failed: tuple[str, ...] = ()
    seconds: float = 0.0
    reason: str = ""


class ComparedOp(msgspec.Struct, frozen=True):
    """An op, what ddefuzz says, and what opcheck says."""

    report: OpReport
    opcheck: OpcheckResult


class OpsResult(msgspec.Struct, frozen=True):
    """All ops of a file."""

    torch: str
    ops: tuple[ComparedOp, ...]
    schema: str = "ddefuzz.bench.ops/1"


class OpcheckTask(msgspec.Struct, frozen=True):
    """Run opcheck on the examples of an op, `with_gradient` also with floats that require one."""

    source: Source
    op: str
    with_gradient: bool


def opcheck_one(task: OpcheckTask) -> OpcheckResult:
    """Run opcheck on all examples of an op, in a worker."""
    examples = load(task.source)[task.op]
    op, began, failed = find_op(task.op), time.process_time(), dict[str, None]()
    tested = TestedOp(op)
    with catch_warnings():
        simplefilter("ignore")
        for example in examples:
            inputs = inputs_of(example, task.op, tested.parameters, lambda _given: False)
            given = inputs.make(inputs.example)
            with_grad = given.with_tensors(lambda one: one.detach().requires_grad_() if is_common_float(one) else one)
            for args, kwargs in (given, with_grad) if task.with_gradient else (given,):
                outcome: dict[str, Any] = torch.library.opcheck(op, args, kwargs, raise_exception=False)
                failed |= dict.fromkeys(name for name, result in outcome.items() if result != "SUCCESS")
    return OpcheckResult(tuple(failed), round(time.process_time() - began, 2))


def has_formula(report: OpReport) -> bool:
    """Whether an op has an autograd formula that was tried."""
    return any(check.name == "gradient" and check.tried for check in report.checks)


def run(session: Session, *, file: str, jobs: int, seconds: int) -> Result:
    """Compare all ops of a file of examples."""
    source = Source((), file)
    with Pool(jobs, samples=False) as pool:
        installed = session.answer(pool.submit(version, "torch", START_SECONDS))
        if isinstance(installed, LostTask):
            raise NothingRanError(installed.reason)
        options = OpTask(source, "", budget=float(seconds))
        report = check_ops(pool, (), options, installed, None, session.stopped, session.live.update)
        futures = [
            pool.submit(opcheck_one, OpcheckTask(source, one.op, has_formula(one)), SECONDS) for one in report.ops
        ]
        compared = []
        for op, future in zip(report.ops, futures, strict=True):
            answer = session.answer(future)
            result = OpcheckResult(reason=answer.reason) if isinstance(answer, LostTask) else answer
            compared.append(ComparedOp(op, result))
            session.live.update(f"opcheck: {len(compared)} of {len(futures)} ops")
    made = OpsResult(installed, tuple(compared))
    return Result(made, view(made))


def view(result: OpsResult) -> Iterator[Block]:
    """A row for each op, then how many each finds."""
    rows = [
        (one.report.op, verdict(one.report), f"{one.report.cpu_seconds:.1f}", _opcheck_text(one.opcheck))
        for one in result.ops
    ]
    yield table(("op", "ddefuzz", "CPU s", "opcheck"), rows, right=("CPU s",), code=("op",), folding=("opcheck",))
    ours, theirs = (
        sum(bool(one.report.failing) for one in result.ops),
        sum(bool(one.opcheck.failed) for one in result.ops),
    )
    yield prose("{}", f"of {len(result.ops)} ops, ddefuzz says that {ours} are wrong, opcheck {theirs}")


def _opcheck_text(result: OpcheckResult) -> str:
    if result.reason:
        return f"not run: {result.reason}"
    return f"wrong: {', '.join(result.failed)}" if result.failed else "ok"
