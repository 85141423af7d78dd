"""What is run under one torch to judge changes: as installed, and in a copy. It is a process of its own.

python -P -m ddefuzz.fixes.probe TASKS.json SEEN.jsonl
"""

from __future__ import annotations

import hashlib
import io
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import torch

from ddefuzz.answers.experiment import CALLS, MADE, SampleRequest, is_of, samples
from ddefuzz.execute.observe import captured_output, observe, patched
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.files import append
from ddefuzz.fixes.tasks import Sights, Task
from ddefuzz.generate import opinfo
from ddefuzz.instrument import torch_api
from ddefuzz.program.model import Attribute, Binary, Call, Literal, Name, Program, Sequence, Step
from ddefuzz.program.recipes import FLOATS
from ddefuzz.program.sizes import CallSize, at_data_size, static
from ddefuzz.program.text import print_program

CALLED: Final = ("export", "export-strict", "compile", "aot")
"""The stages in which what is captured is called. Inductor's compiler would take most of the time."""

EAGER_SIZES: Final = tuple(size for size in CALLS if not size.startswith("drawn"))

MOST_CAPTURED: Final = 4
"""How many of torch's samples are captured."""

MOST_SAMPLES: Final = 12
"""How many of torch's samples of an op are run in eager and in FakeTensorMode."""


def seen(task: Task) -> Sights:
    """Run all of it. A crash ends the process."""
    texts = samples(SampleRequest(task.functions))[:MOST_CAPTURED]
    torch.manual_seed(0)
    return Sights(
        captured=tuple(
            observe(Run(ProgramSubject(text), stage, calls=CALLS if stage in CALLED else ()))
            for text, stages in task.programs
            for stage in stages
        ),
        eager=tuple(observe(Run(one, "eager")) for text, _ in task.programs for one in _at_sizes(text, EAGER_SIZES)),
        of_samples=tuple(observe(run) for text in texts for run in _of_sample(text, task.stage)),
        samples=dict(_samples(task.functions)),
        scripted={name: _scripted(name) for name in task.scripted},
        test=_tested(task.test) if task.test else "",
        truths=_truths(task, texts) if task.noting else (),
    )


def _at_sizes(text: str, sizes: tuple[CallSize, ...]) -> Iterator[ProgramSubject]:
    """The program with static sizes, those of each call."""
    program = ProgramSubject(text).program("a program")
    return (ProgramSubject(print_program(static(at_data_size(program, size)))) for size in sizes)


def _of_sample(text: str, stage: Stage) -> Iterator[Run]:
    """A sample of torch with all sizes unbacked, also with large values; backed; and static, also of size 0."""
    subject = ProgramSubject(text)
    program = subject.program("sample")
    yield Run(ProgramSubject(print_program(_with_shape(program))), stage, calls=CALLS)
    yield Run(ProgramSubject(print_program(_large(program))), stage, calls=("example",))
    yield Run(ProgramSubject(text, backed=True), stage, calls=("example",))
    for size in ("example", "0"):
        yield Run(ProgramSubject(print_program(static(at_data_size(program, size)))), stage, calls=("example",))


def _with_shape(program: Program) -> Program:
    """The program, which also returns a tensor of the shape that capture believes the result to have."""
    result = Name("result")
    shaped = Call("torch.ones", (Attribute(result, "shape"),))
    made = replace(
        program, steps=(*program.steps, Step(("result",), program.returns)), returns=Sequence((result, shaped))
    )
    return made if opinfo.accepts(made) else program


def _large(program: Program) -> Program:
    """The program on floats that are a thousand times as large."""
    large = {item.name: f"{item.name}_large" for item in program.inputs if item.dtype in FLOATS}
    inputs = tuple(replace(item, name=large.get(item.name, item.name)) for item in program.inputs)
    scaled = tuple(Step((name,), Binary("*", Name(other), Literal(1000.0))) for name, other in large.items())
    made = replace(program, inputs=inputs, steps=(*scaled, *program.steps))
    return made if opinfo.accepts(made) else program


_noted: list[bool] = []


def note(value: Any) -> Any:
    """What a guard evaluates, which is noted. The text of `Task.noting` calls this."""
    if isinstance(value, bool | int):
        _noted.append(bool(value))
    return value


def _truths(task: Task, texts: tuple[str, ...]) -> tuple[bool, ...]:
    """The truths of the guard in the programs and the samples with static sizes, in eager and in aot."""
    _noted.clear()
    with patched(task.file, task.noting):
        for text in (*(text for text, _ in task.programs), *texts):
            for subject in _at_sizes(text, ("example", "0", "1")):
                observe(Run(subject, "eager"))
                observe(Run(subject, task.stage))
    return tuple(_noted)


def _samples(functions: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What each sample of OpInfo, and each of its samples of errors, does in eager and with fake tensors."""
    for op in sorted({name for function in functions for name in opinfo.entries() if is_of(name, function)}):
        info = opinfo.entry(op)
        for dtype in opinfo.dtypes(op)[:1]:
            torch.manual_seed(0)
            made = islice(info.sample_inputs_func(info, "cpu", getattr(torch, dtype), False), MADE)
            for number, sample in enumerate(list(made)[:MOST_SAMPLES]):
                yield f"{op} {number}", _did(info.op, sample)
                yield f"{op} {number} fake", _did_fake(info.op, sample)
        if info.error_inputs_func is not None:
            for number, wrong in enumerate(info.error_inputs_func(info, "cpu")):
                yield f"{op} error {number}", _did(info.op, wrong.sample_input)


def _did(op: Callable[..., Any], sample: Any) -> str:
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = op(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:  # noqa: BLE001 the error of a sample is what is compared
        return f"{type(error).__name__}: {error}"
    warned_of = "; ".join(str(one.message) for one in warned)
    return f"{[_digest(one) for one in torch_api.bound(torch_api.TREE_LEAVES)(result)]} {warned_of}"


def _digest(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    plain = value.detach()
    facts = f"{plain.dtype} {tuple(plain.shape)}"
    if plain.layout != torch.strided:
        return facts
    facts += f" {plain.stride()}"
    content = plain.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{facts} {hashlib.sha256(content).hexdigest()[:16]}"


def _did_fake(op: Callable[..., Any], sample: Any) -> str:
    mode = torch_api.bound(torch_api.FAKE_MODE)(allow_non_fake_inputs=True)
    try:
        with mode, warnings.catch_warnings(action="ignore"):
            convert = lambda one: mode.from_tensor(one) if isinstance(one, torch.Tensor) else one  # noqa: E731
            fake = torch_api.bound(torch_api.TREE_MAP)(convert, (sample.input, sample.args, sample.kwargs))
            result = op(fake[0], *fake[1], **fake[2])
    except Exception as error:  # noqa: BLE001 the error of a sample is what is compared
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return str([_facts(one) for one in torch_api.bound(torch_api.TREE_LEAVES)(result)])


def _facts(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout == torch.strided else ""
        return f"{value.dtype} {tuple(value.shape)} {strides} {value.device}"
    return repr(value)


def _scripted(name: str) -> str:
    """The first line of the error with which a function does not compile as TorchScript; empty if it does."""
    module, _, function = name.partition(":")
    target = getattr(import_module(module), function, None)
    try:
        torch.jit.script(target)
    except Exception as error:  # noqa: BLE001 what cannot be scripted raises various exceptions
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return ""


def _tested(text: str) -> str:
    """How a test ends: `passes`, or the last line of what it says."""
    module = ModuleType("test_of_fix")
    sys.modules[module.__name__] = module
    stream = io.StringIO()
    exec(compile(text, "test_of_fix.py", "exec", dont_inherit=True), module.__dict__)
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream).run(tests)
    if result.wasSuccessful() and result.testsRun:
        return "passes"
    failed = [trace for _, trace in (*result.errors, *result.failures)]
    lines = [
        line for line in failed[0].splitlines() if line and not line.startswith((" ", "To execute", "This message"))
    ]
    return "fails: " + next((line for line in lines if "Error" in line or "Exception" in line or "Guard" in line), "")


def main(tasks: Path, result: Path) -> None:
    """Read tasks, and write a line with what was seen for each as soon as it is done."""
    torch.set_num_threads(1)
    for task in msgspec.json.decode(tasks.read_bytes(), type=tuple[Task, ...]):
        with captured_output():
            done = seen(task)
        append(result, msgspec.json.encode(done) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
