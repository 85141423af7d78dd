"""What is run under one torch to judge changes: as installed, and in a copy. It is a process of its own.

`fixes.verify` starts it. It is imported by its name there, because changed guards import it to note their truth.
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
import numpy
import torch

from ddefuzz.answers.experiment import CALLS, ends, static_differences
from ddefuzz.answers.samples import MADE, SampleRequest, is_of, samples
from ddefuzz.errors import InputError
from ddefuzz.execute.observe import captured_output, observe, patched
from ddefuzz.execute.protocol import DECOMPOSED, Observation, ProgramSubject, Run, Stage
from ddefuzz.execute.protocol import Call as Called
from ddefuzz.files import append
from ddefuzz.fixes.change import SCRIPTED
from ddefuzz.fixes.out_meta import FILE as METAS
from ddefuzz.fixes.tasks import SMALL, Sights, Task, Truths
from ddefuzz.generate import opinfo
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.program.model import Attribute, Binary, Call, Literal, Name, Program, Sequence, Step
from ddefuzz.program.recipes import FLOATS, with_fitting_layout
from ddefuzz.program.sizes import VALUE_CALLS, CallSize, at_data_size, static
from ddefuzz.program.text import print_program

CALLED: Final = ("export", "export-strict", "compile", "aot", "decompose", DECOMPOSED)
"""The stages in which what is captured is called. Inductor's compiler would take most of the time."""

EAGER_SIZES: Final = tuple(size for size in CALLS if not size.startswith("drawn"))

USUAL: Final[tuple[CallSize, ...]] = ("example", "2")
"""The sizes at which the truth of a guard is noted, beside `SMALL` ones."""

FAILS: Final = "fails: "
"""How the result of a test that fails begins."""

MOST_CAPTURED: Final = 4
"""How many of torch's samples are captured."""

MOST_SAMPLES: Final = 12
"""How many of torch's samples of an op are run in eager and in FakeTensorMode."""

MOST_CONTROLS: Final = 3
"""How many calls of one run are looked at with static sizes."""

MOST_SCRIPTED: Final = 2
"""How many of torch's samples of a module are compiled as TorchScript."""


def seen(task: Task) -> Sights:
    """Run all of it. A crash ends the process."""
    torch.manual_seed(0)
    captured = tuple(
        _observed(Run(ProgramSubject(text), stage, calls=CALLS if stage in {*CALLED, task.stage} else ()))
        for text, stages in task.programs
        for stage in stages
    )
    test = _tested(task.test) if task.test else ""
    if task.is_changed and test.startswith(FAILS):
        return Sights(captured, test=test)
    texts = samples(SampleRequest(task.functions, task.of_numbers))[:MOST_CAPTURED]
    torch.manual_seed(0)
    return Sights(
        captured,
        eager=tuple(observe(Run(one, "eager")) for text, _ in task.programs for one in _at_sizes(text, EAGER_SIZES)),
        of_samples=tuple((_text(run), _observed(run)) for run in _variants(task, texts)),
        samples=dict((*_samples(task), *_module_samples(task))),
        scripted={name: _scripted(name) for name in task.scripted},
        test=test,
        truths=_truths(task, texts) if task.noting else Truths(),
    )


def _variants(task: Task, texts: tuple[str, ...]) -> Iterator[Run]:
    """The samples, and the programs with transposed inputs: a branch may be about strides."""
    for text in texts:
        yield from _of_sample(text, task.stage, of_numbers=task.of_numbers)
    for text, _ in task.programs:
        program = ProgramSubject(text).program("a program")
        inputs = tuple(with_fitting_layout(replace(item, layout="transposed")) for item in program.inputs)
        if inputs != program.inputs and task.stage in CALLED:
            yield Run(ProgramSubject(print_program(replace(program, inputs=inputs))), task.stage, calls=CALLS)


def _text(run: Run) -> str:
    return run.subject.text if isinstance(run.subject, ProgramSubject) else ""


def _observed(run: Run) -> Observation:
    """What a run does, without the calls at which the program with static sizes is wrong in the same way: no change of
    a guard makes that. A program whose sizes are static has a number from data: the change may make it wrong.
    """
    seen = observe(run)
    program = ProgramSubject(_text(run)).program("a program")
    if static(program) == program:
        return seen
    of_run = OracleInput(_text(run), seen)
    differing = frozenset(call.size for call in seen.calls if ends(of_run, call) == "differs")
    also_static = static_differences(run.subject, run.stage, differing, observe)
    suspects = [call for call in seen.calls if call.size not in also_static and (call.size in differing or call.node)]
    also_static |= {call.size for call in suspects[:MOST_CONTROLS] if _is_wrong_static(run, call)}
    return msgspec.structs.replace(seen, calls=tuple(call for call in seen.calls if call.size not in also_static))


def _is_wrong_static(run: Run, call: Called) -> bool:
    """Whether the program with the static sizes of a call differs, or its graph is wrong about the same op."""
    for subject in _at_sizes(_text(run), (call.size,)):
        seen = observe(Run(subject, run.stage, calls=("example",)))
        of_run = OracleInput(subject.text, seen)
        for static_call in seen.calls:
            if call.node is not None:
                return static_call.node is not None and static_call.node.op == call.node.op
            return ends(of_run, static_call) == "differs"
    return False


def _at_sizes(text: str, sizes: tuple[CallSize, ...]) -> Iterator[ProgramSubject]:
    """The program with static sizes, those of each call that its inputs can have."""
    program = ProgramSubject(text).program("a program")
    for size in sizes:
        made = ProgramSubject(print_program(static(at_data_size(program, size))))
        try:
            made.program()
        except InputError:  # a square matrix with one size that depends on data
            continue
        yield made


def _of_sample(text: str, stage: Stage, *, of_numbers: bool) -> Iterator[Run]:
    """A sample of torch with all sizes unbacked, also with large values; backed; and static, also of sizes 0 and 1.

    If a number of it is from data, it is backed nowhere, and has other values where sizes are static, too.
    """
    subject = ProgramSubject(text)
    program = subject.program("sample")
    example: tuple[CallSize, ...] = ("example",) if stage in CALLED else ()
    yield Run(ProgramSubject(print_program(_with_shape(program))), stage, calls=CALLS if example else ())
    yield Run(ProgramSubject(print_program(_large(program))), stage, calls=example)
    if not of_numbers:
        yield Run(ProgramSubject(text, backed=True), stage, calls=example)
    for size in ("example", "0", "1"):
        calls = (*example, *VALUE_CALLS) if of_numbers and example else example
        yield Run(ProgramSubject(print_program(static(at_data_size(program, size)))), stage, calls=calls)


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


def _truths(task: Task, texts: tuple[str, ...]) -> Truths:
    """The truths of the guard in the programs and the samples with static sizes, in eager and in the task's stage."""
    with patched(task.file, task.noting):
        return Truths(*(tuple(_truths_at(task, texts, sizes)) for sizes in (USUAL, SMALL)))


def _truths_at(task: Task, texts: tuple[str, ...], sizes: tuple[CallSize, ...]) -> list[bool]:
    _noted.clear()
    for text in (*(text for text, _ in task.programs), *texts):
        for subject in _at_sizes(text, sizes):
            observe(Run(subject, "eager"))
            observe(Run(subject, task.stage))
    return list(_noted)


def _samples(task: Task) -> Iterator[tuple[str, str]]:
    """What each sample of OpInfo, and each of its samples of errors, does in eager and with fake tensors."""
    for op in sorted({name for function in task.functions for name in opinfo.entries() if is_of(name, function)}):
        info = opinfo.entry(op)
        for dtype in opinfo.dtypes(op)[:1]:
            torch.manual_seed(0)
            made = islice(info.sample_inputs_func(info, "cpu", getattr(torch, dtype), False), MADE)
            for number, sample in enumerate(list(made)[:MOST_SAMPLES]):
                yield f"{op} {number}", _did(info.op, (sample.input, *sample.args), sample.kwargs)
                yield f"{op} {number} fake", _did_fake(info.op, sample)
                if info.supports_out and task.file == METAS:
                    yield f"{op} {number} fake out", _did_fake(info.op, sample, with_out=True)
                if task.file.startswith(SCRIPTED):
                    yield from _as_users_do(f"{op} {number}", info.op, (sample.input, *sample.args), sample.kwargs)
        if info.error_inputs_func is not None:
            for number, wrong in enumerate(info.error_inputs_func(info, "cpu")):
                bad = wrong.sample_input
                yield f"{op} error {number}", _did(info.op, (bad.input, *bad.args), bad.kwargs)


def _module_samples(task: Task) -> Iterator[tuple[str, str]]:
    """What each sample of torch's database of modules does in eager, with the same weights."""
    classes = [name for one in task.functions if (name := one.removeprefix("torch.nn."))[:1].isupper()]
    for info in torch_api.MODULE_DB.get() if classes else ():
        name = info.module_cls.__name__
        if name in classes:
            for number, sample in enumerate(_module_inputs(info)[:MOST_SAMPLES]):
                module, called = _made(info, sample), sample.forward_input
                if called is not None:
                    yield f"{name} {number}", _did(module, called.args, called.kwargs)
                    yield from _as_users_do(f"{name} {number}", module, called.args, called.kwargs)


def _module_inputs(info: Any) -> list[Any]:
    torch.manual_seed(0)
    return list(info.module_inputs_func(info, "cpu", torch.float32, False, False))


def _made(info: Any, sample: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        made: torch.nn.Module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    return made.eval()


def _did(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = op(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 the error of a sample is what is compared
        return f"{type(error).__name__}: {error}"
    warned_of = "; ".join(str(one.message) for one in warned)
    return f"{[_digest(one) for one in torch_api.bound(torch_api.TREE_LEAVES)(result)]} {warned_of}"


def _as_users_do(
    name: str, op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """What a sample does in `torch.jit.trace`, where sizes are tensors, and with numbers of numpy."""
    tree_map = torch_api.bound(torch_api.TREE_MAP)
    tensors = [one for one in torch_api.bound(torch_api.TREE_LEAVES)((args, kwargs)) if isinstance(one, torch.Tensor)]

    def call(*given: torch.Tensor) -> Any:
        left = iter(given)
        filled = tree_map(lambda one: next(left) if isinstance(one, torch.Tensor) else one, (args, kwargs))
        return op(*filled[0], **filled[1])

    try:
        with warnings.catch_warnings(action="ignore"):
            torch.jit.trace(call, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]
        traced = "traced"
    except Exception as error:  # noqa: BLE001 the error of a sample is what is compared
        traced = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    yield f"{name} traced", traced
    numbers = tree_map(lambda one: numpy.int64(one) if type(one) is int else one, (args, kwargs))
    yield f"{name} numpy", _did(op, *numbers)


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


def _did_fake(op: Callable[..., Any], sample: Any, with_out: bool = False) -> str:
    """The result, or the error. `with_out` is a call with `out` of another dtype, of which only the class is told."""
    mode = torch_api.bound(torch_api.FAKE_MODE)(allow_non_fake_inputs=True)
    try:
        with mode, warnings.catch_warnings(action="ignore"):
            convert = lambda one: mode.from_tensor(one) if isinstance(one, torch.Tensor) else one  # noqa: E731
            fake = torch_api.bound(torch_api.TREE_MAP)(convert, (sample.input, sample.args, sample.kwargs))
            result = op(fake[0], *fake[1], **fake[2])
            if with_out:
                out = torch_api.bound(torch_api.TREE_MAP)(_of_other_dtype, result)
                op(fake[0], *fake[1], **fake[2], out=tuple(out) if isinstance(out, tuple) else out)
                return "accepted"
    except Exception as error:  # noqa: BLE001 the error of a sample is what is compared
        return type(error).__name__ + ("" if with_out else f": {str(error).partition(chr(10))[0]}")
    return str([_facts(one) for one in torch_api.bound(torch_api.TREE_LEAVES)(result)])


def _of_other_dtype(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value, dtype=torch.float64 if value.dtype != torch.float64 else torch.float32)


def _facts(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout == torch.strided else ""
        return f"{value.dtype} {tuple(value.shape)} {strides} {value.device}"
    return repr(value)


def _scripted(name: str) -> str:
    """The first line of the error with which something does not compile as TorchScript; empty if it does."""
    file, _, function = name.partition(":")
    try:
        target = getattr(import_module(file), function, None) if function else import_module(file)
        with warnings.catch_warnings(action="ignore"):
            for whole in _modules_of(target) if isinstance(target, type) else (target,) if function else ():
                torch.jit.script(whole)
    except Exception as error:  # noqa: BLE001 what cannot be scripted raises various exceptions
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return ""


def _modules_of(target: type) -> Iterator[torch.nn.Module]:
    """Modules whose class has the methods of this class, as torch's database of modules makes them."""
    for info in torch_api.MODULE_DB.get():
        if issubclass(info.module_cls, target):
            yield from (_made(info, sample) for sample in _module_inputs(info)[:MOST_SCRIPTED])


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
    return FAILS + next((line for line in lines if "Error" in line or "Exception" in line or "Guard" in line), "")


def main(tasks: Path, result: Path) -> None:
    """Read tasks, and write a line with what was seen for each as soon as it is done."""
    torch.set_num_threads(1)
    torch.set_warn_always(True)  # else what ran before decides whether a sample warns
    for task in msgspec.json.decode(tasks.read_bytes(), type=tuple[Task, ...]):
        with captured_output():
            done = seen(task)
        append(result, msgspec.json.encode(done) + b"\n")
