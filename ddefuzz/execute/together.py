"""Observe several programs in inductor that share one run of the C++ compiler.

Most of a compilation is spent on the header, whatever its kernels are. So all programs are captured first. Their
kernels become one translation unit, which torch compiles with the flags and the bindings that it uses for each. Then
the programs are called.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.execute.observe import RunUntilCalls, called, captured_by, captured_output, clean_slate, ended
from ddefuzz.execute.protocol import Observation, Run
from ddefuzz.execute.stages import WRAPPED, inductor_to_call, whole
from ddefuzz.execute.subject import prepare, seed
from ddefuzz.instrument import torch_api

_HEADER: Final = re.compile(r"^\s*#include <torch/csrc/inductor/cpp_prefix\.h>$", re.MULTILINE)
_DEFINITION: Final = re.compile(r'extern "C"\s+void\s+kernel\(')
_TYPE: Final = re.compile(r"(?:const )?(?:float|int64_t|\w+ ?\*)")
"""The types of arguments that torch's binding of a kernel accepts."""


class _Kernel:
    """Stands for a kernel of generated code. Its first call compiles all kernels that wait."""

    def __init__(self, kernels: Kernels, types: Sequence[str], source: str) -> None:
        self.kernels, self.types, self.source = kernels, tuple(types), source
        self.call: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> None:
        if self.call is None:
            self.kernels.compile()
        assert self.call is not None
        self.call(*args)

    def is_simple(self) -> bool:
        """Whether the kernel can be one of several in a file."""
        rest, headers = _HEADER.subn("", self.source)
        alone = headers == 1 and "#" + "include" not in rest and len(_DEFINITION.findall(rest)) == 1
        return alone and all(map(_TYPE.fullmatch, self.types))


class Kernels:
    """The kernels of several programs, which are compiled when one of them is called first."""

    def __init__(self) -> None:
        self._waiting: list[_Kernel] = []
        self._compile = torch_api.bound(torch_api.CPP_BINDING)
        self._async: Any = None

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """In this block, generated code gets kernels that are compiled later."""

        def later(compiler: Any, types: Sequence[str], source: str) -> _Kernel:
            self._async = compiler
            kernel = _Kernel(self, types, source)
            self._waiting.append(kernel)
            return kernel

        with torch_api.CPP_BINDING.replaced(later):
            yield

    def compile(self) -> None:
        """Compile all kernels that wait: each by itself if they cannot be compiled as one file."""
        waiting = list(dict.fromkeys(self._waiting))
        self._waiting.clear()
        simple = [kernel for kernel in waiting if kernel.is_simple()]
        if len(simple) > 1:
            try:
                self._compile_as_one(simple)
            except Exception:  # noqa: BLE001 the one that is at fault fails alone, too
                simple = []
        for kernel in waiting:
            if kernel.call is None:
                kernel.call = self._alone(kernel)

    def _alone(self, kernel: _Kernel) -> Callable[..., Any]:
        """What compiles a kernel when it is called, by torch's own way."""

        def call(*args: Any) -> None:
            kernel.call = self._compile(self._async, list(kernel.types), kernel.source)
            kernel.call(*args)

        return call

    def _compile_as_one(self, kernels: list[_Kernel]) -> None:
        parts, cases = ["#include <torch/csrc/inductor/cpp_prefix.h>", "#include <bit>"], list[str]()
        for number, kernel in enumerate(kernels):
            body = _DEFINITION.sub("static void kernel(", _HEADER.sub("", kernel.source))
            parts.append(f"namespace program_{number} {{\n{body}\n}}")
            values = ", ".join(_value(kind, at) for at, kind in enumerate(kernel.types))
            cases.append(f"case {number}: program_{number}::kernel({values}); break;")
        parts.append(_SWITCH % "\n".join(cases))
        run = self._compile(self._async, ["int64_t", "int64_t"], "\n".join(parts))
        for number, kernel in enumerate(kernels):
            kernel.call = _call_of(run, number, kernel.types)


_SWITCH: Final = """
extern "C" void kernel(const int64_t number, const int64_t address) {
const int64_t* args = reinterpret_cast<const int64_t*>(address);
switch (number) {
%s
}}
"""


def _value(kind: str, at: int) -> str:
    if "*" in kind:
        return f"reinterpret_cast<{kind}>(args[{at}])"
    return f"static_cast<float>(std::bit_cast<double>(args[{at}]))" if "float" in kind else f"args[{at}]"


def _call_of(run: Callable[[int, int], Any], number: int, types: Sequence[str]) -> Callable[..., Any]:
    form = "".join("d" if kind.removeprefix("const ") == "float" else "q" for kind in types)

    def call(*args: Any) -> None:
        values = [one.data_ptr() if isinstance(one, torch.Tensor) else one for one in args]
        packed = ctypes.create_string_buffer(struct.pack(f"={form}", *values))
        run(number, ctypes.addressof(packed))

    return call


class _Begun(NamedTuple):
    """A program that was captured, what its capture printed, and what dynamo knows of it."""

    seen: RunUntilCalls
    output: str
    known: tuple[Any, ...]


class _Dynamo:
    """What dynamo knows of a function by its name or its code, which all programs share: each gets its own."""

    def __init__(self) -> None:
        self._code = WRAPPED.__code__

    def begin(self) -> None:
        """Before a program is captured."""
        self.know((self._code.replace(), None))

    def known(self) -> tuple[Any, ...]:
        """After it was captured."""
        return WRAPPED.__code__, torch_api.DYNAMO_SIZES.get()

    def know(self, known: tuple[Any, ...]) -> None:
        """Before it is called."""
        sizes = torch_api.DYNAMO_SIZES
        WRAPPED.__code__ = known[0]
        setattr(sizes.owner(), sizes.name_here(), known[1])

    def end(self) -> None:
        """At the end."""
        self.know((self._code, None))


def observe_together(runs: Sequence[Run], begin: Callable[[Run], None]) -> tuple[Observation, ...]:
    """Do runs in inductor that call what was captured. `begin` is told the run that goes on, before each of its parts.

    A call for which dynamo captures again ends there: no oracle judges it. The CPU seconds of an observation are those
    of its capture without the C++ compiler.
    """
    kernels, dynamo = Kernels(), _Dynamo()
    observations: list[Observation] = []
    with ExitStack() as stack:
        stack.enter_context(clean_slate())
        stack.enter_context(kernels.delayed())
        stack.callback(dynamo.end)
        begun: list[_Begun] = []
        for run in runs:
            begin(run)
            seed()
            dynamo.begin()
            with captured_output() as output:
                seen = captured_by(partial(inductor_to_call, again=False), prepare(run.subject), run)
            begun.append(_Begun(seen, output.read(), dynamo.known()))
        stack.enter_context(whole([]))  # its settings are those of the compilation
        for run, program in zip(runs, begun, strict=True):
            begin(run)
            seed()
            dynamo.know(program.known)
            with captured_output() as output:
                observation = called(program.seen, run)
            observations.append(ended(observation, program.output + output.read()))
    return tuple(observations)
