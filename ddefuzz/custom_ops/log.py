"""What checks of one op found, and helpers that all checks need: calls of the real kernel, and whose line it was."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sysconfig
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from ddefuzz.custom_ops.arguments import Arguments, Call, call_text, sizes_text
from ddefuzz.custom_ops.model import CHECKS, CheckName, CheckResult, Problem
from ddefuzz.execute import journal
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import frame_at
from ddefuzz.internal import message_of

CALL_SECONDS: Final = 20  # of a call that is tried in a process of its own
CUSTOM_ALIAS: Final = "must not also be an input"  # torch/_library/custom_ops.py
OVER: Final = "the budget was used up before"
MOST_SIZES: Final = 6  # how many sizes of one problem are kept
_OWN: Final = str(Path(__file__).parents[1])
_NOT_USERS: Final = (str(Path(torch.__file__).parent), _OWN, sysconfig.get_path("stdlib"), "<")


class KernelRefusalError(Exception):
    """The real kernel does not take some arguments. The text is the kind and the first line of its error."""

    @property
    def is_alias(self) -> bool:
        """Whether `torch.library.custom_op` refuses that a result is an argument, or a view of one."""
        return CUSTOM_ALIAS in message_of(self.__cause__ or self)


@dataclass(eq=False)
class TestedOp:
    """An op, and what its schema says. If it is `careful`, a call that ends a process is tried in another one first."""

    op: Any
    careful: bool = False
    survived: dict[str, bool] = field(default_factory=dict)
    __test__ = False

    @property
    def name(self) -> str:
        """`mylib::op`, or `mylib::op.overload`."""
        return str(self.op.name())

    @property
    def schema(self) -> Any:
        """The schema of the overload."""
        return self.op._schema

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters."""
        return [one.name for one in self.schema.arguments]

    @property
    def is_composite(self) -> bool:
        """Whether it consists of other ops: these are captured, and their schemas count."""
        key = torch_api.DISPATCH_KEY.get().CompositeImplicitAutograd
        return bool(self.op.has_kernel_for_dispatch_key(key))

    @property
    def has_autograd(self) -> bool:
        """Whether it has an autograd formula, or consists of ops that have."""
        keys = torch_api.DISPATCH_KEY.get()
        return self.is_composite or any(
            self.op.has_kernel_for_dispatch_key(key) for key in (keys.Autograd, keys.AutogradCPU)
        )

    def parameter_of(self, given: Arguments) -> list[Any]:
        """The parameter that each leaf belongs to."""
        by_name = {one.name: one for one in self.schema.arguments}
        names = (name.partition("[")[0] for name in given.named(self.parameters))
        return [by_name.get(name) for name in names]

    def call(self, given: Arguments) -> Any:
        """Call the real kernel, from the same random state each time. The arguments may be written to."""
        call = call_text(self.name, given)
        if self.careful and call not in self.survived:
            self.survived[call] = self._survives(given)
        if not self.survived.get(call, True):
            raise KernelRefusalError("it ends the process")
        journal.enter("kernel", call=call)
        torch.manual_seed(0)
        try:
            return self.op(*given.args, **given.kwargs)
        except Exception as error:
            raise KernelRefusalError(line_of(error)) from error

    def _survives(self, given: Arguments) -> bool:
        """Whether a call leaves its process alive. It is made in a copy of this process."""
        child = os.fork()
        if not child:
            try:
                faulthandler.disable()
                signal.alarm(CALL_SECONDS)
                self.op(*given.copied().args, **given.kwargs)
            finally:
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @property
    def crashes(self) -> tuple[str, ...]:
        """The calls that end the process."""
        return tuple(call for call, alive in self.survived.items() if not alive)

    def takes(self, given: Arguments) -> bool:
        """Whether the real kernel takes such arguments."""
        return self.refusal(given) is None

    def refusal(self, given: Arguments) -> KernelRefusalError | None:
        """What the real kernel raises for such arguments, None if it takes them. They are copied."""
        try:
            with torch.no_grad():
                self.call(given.copied())
        except KernelRefusalError as error:
            return error
        return None


@dataclass
class Log:
    """What was tried of an op, and what is wrong. One problem is kept for each check and place. `ordinary` are those
    that the fake kernel has with ordinary sizes, too. `only_out` is the one out= overload that is checked.
    `is_compared` says that the fake kernel was compared with ordinary sizes, too.
    """

    op: TestedOp
    budget: float
    without: Sequence[CheckName] = ()
    began: float = field(default_factory=cpu_seconds)
    problems: dict[tuple[CheckName, str], Problem] = field(default_factory=dict)
    ordinary: set[tuple[CheckName, str]] = field(default_factory=set)
    tried: Counter[CheckName] = field(default_factory=Counter)
    skipped: dict[CheckName, str] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    calls: int = 0
    refused: int = 0
    only_out: str = ""
    is_compared: bool = False
    until: float = 0.0
    is_cut: bool = False

    def share(self, part: float) -> None:
        """From now on, the budget is used up after this part of it. What is left then is for the parts that follow."""
        self.until = self.budget * part

    def warm(self) -> None:
        """Begin to count CPU seconds: before, torch imports what the first fake tensors need."""
        self.began = cpu_seconds()

    @property
    def spent(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds() - self.began

    @property
    def is_over(self) -> bool:
        """Whether the present part of the budget is used up."""
        if self.spent > self.until:
            self.is_cut = True
            return True
        return False

    def takes(self, call: Call) -> bool:
        """Whether the real kernel takes such arguments. It is a problem if it refuses what it returns itself."""
        refusal = self.op.refusal(call.given)
        if refusal is not None and refusal.is_alias:
            why = "the result is an argument, or a view of one, which torch.library.custom_op refuses"
            self.wrong("aliasing", "result", why, call)
        return refusal is None

    def wants(self, check: CheckName) -> bool:
        """Whether the check is asked for."""
        return check not in self.without

    def wrong(
        self,
        check: CheckName,
        place: str,
        why: str,
        call: Call,
        *,
        fake: str = "",
        real: str = "",
        frames: tuple[Frame, ...] = (),
    ) -> None:
        """Note a problem. Of those of one check and place the first is kept, with the sizes of all. One that is seen
        where sizes of the example are equal goes before one that is not.
        """
        if check in self.without:
            return
        shown = () if call.sizes is None else (sizes_text(call.sizes),)
        known = self.problems.get((check, place))
        if known is None or (known.apart and not call.apart):
            text = call_text(self.op.name, call.given) + (f", float values {call.values}" if call.values else "")
            tried = 1 if known is None else known.tried + 1
            self.problems[check, place] = Problem(check, place, why, text, shown, tried, fake, real, frames, call.apart)
            return
        more = shown if call.apart == known.apart else ()
        listed = tuple(dict.fromkeys((*known.sizes, *more)))[:MOST_SIZES]
        self.problems[check, place] = msgspec.structs.replace(known, sizes=listed, tried=known.tried + 1)

    def results(self) -> tuple[CheckResult, ...]:
        """A row for each check, in order."""
        return tuple(
            CheckResult(
                name,
                self.tried[name],
                tuple(one for (check, _), one in self.problems.items() if check == name),
                "not asked for" if name in self.without else self.skipped.get(name, OVER if self.is_cut else ""),
            )
            for name in CHECKS
        )


def leaves_of(value: Any) -> list[Any]:
    """What is in nested results."""
    leaves: list[Any] = torch_api.bound(torch_api.TREE_LEAVES)(value)
    return leaves


def is_equal(value: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether two results are equal. Values are compared if torch can."""
    if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor):
        if value.shape != expected.shape or value.dtype != expected.dtype:
            return False
        if value.is_quantized or value.layout != torch.strided or not value.numel():
            return True
        if value.is_floating_point():
            value, expected = value.double(), expected.double()  # allclose has no kernel for float8
        return torch.allclose(value, expected, tolerance, tolerance, equal_nan=True)
    return bool(value == expected) or value is expected


def line_of(error: BaseException) -> str:
    """The first line of an error, without the explanations that torch adds."""
    text = next(iter(message_of(error).strip().splitlines()), "").partition(" (Size-like symbols: ")[0]
    text = text.partition(" (unhinted: ")[0]
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text[:300]}"


def frames_of(error: BaseException) -> tuple[Frame, ...]:
    """The innermost line outside of torch and ddefuzz that an error passed. Empty if there is none."""
    traceback, innermost = error.__traceback__, None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_NOT_USERS) or "site-packages" in file.removeprefix(_NOT_USERS[0]):
            innermost = innermost if file.startswith(_NOT_USERS[:2]) else traceback
        traceback = traceback.tb_next
    if innermost is None:
        return ()
    return (frame_at(innermost.tb_frame.f_code, innermost.tb_lineno),)


def is_unsupported(error: BaseException) -> bool:
    """Whether an error says that the op has no fake kernel."""
    kinds = tuple(one.get() for one in torch_api.OUTPUT_ERRORS[-1:])
    text = message_of(error)
    return isinstance(error, kinds) or "no fake impl registered" in text or "There was no fake impl" in text


def is_without_formula(error: BaseException) -> bool:
    """Whether an error says that the op has no autograd formula."""
    return re.search(r"no autograd formula|derivative for .* is not implemented", message_of(error)) is not None
