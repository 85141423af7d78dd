"""One op over a sequence of sizes, in a worker: its rows, with and without out=, in every mode."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from ddefuzz.classify.site import USER_SITE, site
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import EXPLICIT, ProgramSubject, Stage
from ddefuzz.execute.subject import prepare
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.generate import opinfo
from ddefuzz.generate.lockstep import tolerant_eager
from ddefuzz.generate.variants import as_method
from ddefuzz.instrument.torch_api import SYMBOLIC_SHAPES_FILE
from ddefuzz.ops import catalogue
from ddefuzz.ops.opinfo import TAKES_OUT
from ddefuzz.oracles import recompilation
from ddefuzz.oracles.program import judge_program, observe
from ddefuzz.oracles.recompilation import MODE_OF, CallSequence, Mode, as_raised
from ddefuzz.oracles.recompilation_run import count
from ddefuzz.program.evaluate import materialize, run_steps
from ddefuzz.program.model import Call, Dim, Expr, Input, Name, Program, Recipe, Sequence, Step
from ddefuzz.program.recipes import ANNOTATIONS, fault_of
from ddefuzz.program.sizes import REPEATED_SIZES, at_data_size
from ddefuzz.program.text import print_program
from ddefuzz.sweep.recompile import Form, OpRecompilations, Owner, RecompileTask, SequenceCount
from ddefuzz.sweep.tasks import DescribeTask, Versions


class ModuleForm(NamedTuple):
    """How a module is made, and its input for a call of a size."""

    module: Callable[[], nn.Module]
    argument: Callable[[int], Tensor]


class Cache(nn.Module):
    """A cache of keys, as attention has one: each call writes its rows into the front of a buffer."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        """The rows that are kept of this call."""
        self.kept[: x.shape[0]] = x
        return self.kept[: x.shape[0]] * 2


class ConcatBuffer(nn.Module):
    """A cache that grows: each call appends its rows to a buffer of another size."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        """All rows so far."""
        self.kept = torch.cat((self.kept, x))
        return self.kept * 2


class RunningSum(nn.Module):
    """A running sum in a buffer that is changed in place."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """The input less the mean of all rows so far."""
        self.total.add_(x.sum(0))
        return x - self.total


MODULES: Final[dict[str, ModuleForm]] = {
    "nn.BatchNorm1d": ModuleForm(lambda: nn.BatchNorm1d(4), lambda size: torch.randn(size, 4)),
    "nn.BatchNorm2d": ModuleForm(lambda: nn.BatchNorm2d(4), lambda size: torch.randn(size, 4, 3, 3)),
    "nn.BatchNorm2d (eval)": ModuleForm(lambda: nn.BatchNorm2d(4).eval(), lambda size: torch.randn(size, 4, 3, 3)),
    "nn.InstanceNorm1d": ModuleForm(
        lambda: nn.InstanceNorm1d(4, track_running_stats=True), lambda size: torch.randn(3, 4, size)
    ),
    "cache": ModuleForm(Cache, lambda size: torch.randn(size, 4)),
    "concatenated cache": ModuleForm(ConcatBuffer, lambda size: torch.randn(size, 4)),
    "running sum": ModuleForm(RunningSum, lambda size: torch.randn(size, 4)),
}
"""The modules by name. Their buffers are made with the module and stay over the calls."""


SAMPLES: Final = 6
"""How many of an entry's samples are tried until one can have other sizes."""

SIZED_RECIPES: Final = frozenset({"spd", "trues", "distinct", "index"})
"""The recipes whose argument is a size."""

REFERENCES: Final[dict[str, str]] = {
    "topk": """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "5 4"]):
    t0 = torch.topk(x, 2)
    return t0
""",
    "bmm": """# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "5 3 4"], y: Float32[Tensor, "5 4 3"]):
    t0 = torch.bmm(x, y)
    return t0
""",
    "linalg.cholesky": """# ddefuzz program v1
# inputs: x = spd(5)
def program(x: Float32[Tensor, "5 5"]):
    t0 = torch.linalg.cholesky(x)
    return t0
""",
    "linalg.norm": """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "5 4"]):
    t0 = torch.linalg.norm(x, dim=1)
    return t0
""",
    "max": """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "5 4"]):
    t0 = torch.max(x, 1)
    return t0
""",
}
"""The functions of pytorch#135859. The size 5 varies."""

REFERENCE_SIZE: Final = 5


class SequenceTexts(NamedTuple):
    """The texts of a function at each size. `symbolic` is one program with a symbol for the size that varies, None if
    another size follows from it.
    """

    texts: tuple[str, ...]
    symbolic: str | None


class UnsizedError(Exception):
    """An op cannot be called at the sizes; the message says why."""


FUNCTIONAL: Final = "nn.functional."


def ops() -> tuple[str, ...]:
    """The reference functions, and the entries of OpInfo with out= or of torch.nn.functional."""
    names = [name for name, info in opinfo.entries().items() if info.supports_out or name.startswith(FUNCTIONAL)]
    return tuple(sorted({*REFERENCES, *names}))


def sequenced(op: str, sizes: tuple[int, ...], forms: tuple[Form, ...]) -> dict[Form, SequenceTexts]:
    """The programs of an op at the sizes in each form that it has. Raises UnsizedError if no sample can have them."""
    reasons: list[str] = []
    for program, old in _candidates(op):
        try:
            return _at_sizes(program, old, sizes, op in REFERENCES or opinfo.entry(op).supports_out, forms)
        except UnsizedError as reason:
            reasons.append(str(reason))
    raise UnsizedError(reasons[0] if reasons else "it has no sample with a size of 2 or more")


def _candidates(op: str) -> Iterator[tuple[Program, int]]:
    """Programs, each with the size of it that is to vary: that of the first dims, then the others."""
    if op in REFERENCES:
        yield catalogue.parse(REFERENCES[op], op).program, REFERENCE_SIZE
        return
    taken = opinfo.dtypes(op)
    if not taken:
        raise UnsizedError("it has no samples on CPU")
    for program in opinfo.samples(op, taken[0], most=SAMPLES):
        sizes = [dim.size for item in program.inputs for dim in item.shape if dim.size >= 2]
        for old in dict.fromkeys(sizes):
            yield program, old


def _at_sizes(
    program: Program, old: int, sizes: tuple[int, ...], has_out: bool, forms: tuple[Form, ...]
) -> dict[Form, SequenceTexts]:
    plain = tuple(_sized(program, old, size) for size in sizes)
    if not all(map(opinfo.accepts, plain)):
        raise UnsizedError("eager fails at other sizes")
    made: dict[Form, tuple[Program, ...]] = {"plain": plain}
    if has_out:
        made["out"] = tuple(map(with_out, plain))
        if not all(map(opinfo.accepts, made["out"])):
            raise UnsizedError("eager fails with out=")
    for form, suffix in METHODS.items():
        changed = tuple(one for one in (_as_method(each, suffix) for each in plain) if one is not None)
        if form in forms and len(changed) == len(plain) and all(map(opinfo.accepts, changed)):
            made[form] = changed
    return {
        form: SequenceTexts(tuple(map(print_program, programs)), symbolic(programs, sizes))
        for form, programs in made.items()
        if form in forms
    }


METHODS: Final[dict[Form, str]] = {"method": "", "in-place": "_"}
"""The forms that are methods of the first argument, with the end of the method's name."""


def _as_method(program: Program, suffix: str) -> Program | None:
    last = program.steps[-1]
    return next(
        (
            replace(program, steps=(*program.steps[:-1], replace(last, value=call)))
            for call in as_method(program, suffix)
        ),
        None,
    )


def symbolic(programs: tuple[Program, ...], sizes: tuple[int, ...]) -> str | None:
    """The first program with the symbol `u0` for the dims that differ, if each other one is it at its size."""
    first = programs[0]
    made = replace(
        first,
        inputs=tuple(
            replace(
                item,
                shape=tuple(
                    Dim(dim.size, "u0" if any(one.inputs[at].shape[axis] != dim for one in programs) else None)
                    for axis, dim in enumerate(item.shape)
                ),
            )
            for at, item in enumerate(first.inputs)
        ),
    )
    by_name = {int(name): name for name in REPEATED_SIZES}
    if not set(sizes) <= set(by_name):
        return None
    alike = (
        [_shape(item) for item in at_data_size(made, by_name[size]).inputs] == [_shape(item) for item in one.inputs]
        for size, one in zip(sizes, programs, strict=True)
    )
    return print_program(made) if all(alike) else None


def _shape(item: Input) -> tuple[int, ...]:
    return tuple(dim.size for dim in item.shape)


def _sized(program: Program, old: int, new: int) -> Program:
    return replace(program, inputs=tuple(_sized_input(item, old, new) for item in program.inputs))


def _sized_input(item: Input, old: int, new: int) -> Input:
    """The input with every dim of the size `old` at the size `new`, and values that it can have then."""
    shape = tuple(Dim(new) if dim.size == old else dim for dim in item.shape)
    recipe = item.recipe
    if recipe.kind in SIZED_RECIPES:
        recipe = replace(recipe, args=tuple(new if arg == old else arg for arg in recipe.args))
    made = replace(item, shape=shape, recipe=recipe, requires_grad=False)
    return made if fault_of(made) is None else replace(made, recipe=Recipe("uniform", ()))


def with_out(program: Program) -> Program:
    """The program whose last call writes into further inputs, which are like its results."""
    match program.steps[-1]:
        case Step((target,), Call(function, args, kwargs)) if program.returns == Name(target):
            if function not in TAKES_OUT or "out" in dict(kwargs):
                raise UnsizedError(f"{function} takes no out=")
        case _:
            raise UnsizedError("its last step is no call")
    with torch.random.fork_rng(devices=[]), tolerant_eager():
        results = _results(program)
    outs = tuple(_like(f"out{number}", one) for number, one in enumerate(results))
    names: tuple[Expr, ...] = tuple(Name(item.name) for item in outs)
    out = names[0] if len(names) == 1 else Sequence(names)
    step = Step((target,), Call(function, args, (*kwargs, ("out", out))))
    return replace(program, inputs=(*program.inputs, *outs), steps=(*program.steps[:-1], step))


def _results(program: Program) -> tuple[torch.Tensor, ...]:
    result: Any = run_steps(program, materialize(program))
    made = (result,) if isinstance(result, torch.Tensor) else tuple(result) if isinstance(result, tuple | list) else ()
    if not made or not all(isinstance(one, torch.Tensor) and one.layout == torch.strided for one in made):
        raise UnsizedError("its results are not strided tensors")
    return made


def _like(name: str, result: torch.Tensor) -> Input:
    dtype = str(result.dtype).removeprefix("torch.")
    if dtype not in ANNOTATIONS:
        raise UnsizedError(f"a result of {dtype}")
    return Input(name, dtype, tuple(Dim(size) for size in result.shape), Recipe("zeros", ()))


DYNAMIC: dict[Mode, bool | str | None] = {
    "default": None,
    "dynamic": True,
    "marked": "marked",
    "unbacked": "unbacked",
}
"""What a row says of its mode."""


DUCK_SIZING = f"{SYMBOLIC_SHAPES_FILE.path}:create_symbol"
"""The code that gives sizes one symbol if they are the same in the first call (`use_duck_shape`)."""


def describe(_: DescribeTask) -> Versions:
    """What this torch has: reference functions, modules, and of OpInfo what has out= or is of torch.nn.functional."""
    return Versions(str(torch.__version__), "", tuple(sorted((*ops(), *MODULES))))


STAGE: dict[Mode, Stage] = {mode: stage for stage, mode in MODE_OF.items()}
"""The stages in which a needless compilation becomes a finding, by their mode."""


def run_recompile(task: RecompileTask) -> OpRecompilations:
    """Count one op in every form and mode."""
    started = time.process_time()
    sightings: tuple[Sighting, ...] = ()
    with captured_output(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            subjects = _subjects(task)
        except UnsizedError as reason:
            return OpRecompilations(task.op, dropped=str(reason), cpu_seconds=round(time.process_time() - started, 2))
        rows = _rows(task, subjects)
    if task.record:
        sightings = tuple(_sightings(subjects, rows))
    return OpRecompilations(task.op, tuple(rows), sightings, cpu_seconds=round(time.process_time() - started, 2))


class Subject(NamedTuple):
    """A function in one form: `calls` makes a new function with the arguments of each call."""

    calls: Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]]
    symbolic: str | None = None


def _subjects(task: RecompileTask) -> dict[Form, Subject]:
    if task.op in MODULES:
        return {"module": Subject(lambda: _of_module(MODULES[task.op], task.sizes))} if "module" in task.forms else {}
    made = sequenced(task.op, task.sizes, task.forms)
    return {form: Subject(partial(_of_texts, one.texts), one.symbolic) for form, one in made.items()}


def _of_module(made: ModuleForm, sizes: tuple[int, ...]) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    return made.module(), [(made.argument(size),) for size in sizes]


def _of_texts(texts: tuple[str, ...]) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    prepared = [prepare(ProgramSubject(text)) for text in texts]
    return prepared[0].call, [one.args for one in prepared]


def _rows(task: RecompileTask, subjects: dict[Form, Subject]) -> list[SequenceCount]:
    rows: list[SequenceCount] = []
    for mode in task.modes:
        without_out: int | None = None
        for form, subject in subjects.items():
            row = row_of(task, mode, form, subject, without_out if form == "out" else None)
            without_out = row.compilations if form == "plain" else without_out
            rows.append(row)
    return rows


def row_of(task: RecompileTask, mode: Mode, form: Form, subject: Subject, without_out: int | None) -> SequenceCount:
    """The row of one function in one mode. `without_out` is given for a function with out=."""
    call, calls = subject.calls()
    target = call.forward if isinstance(call, torch.nn.Module) else call
    counted = count(call, list(inspect.signature(target).parameters), calls, mode)
    frame, owner, line = _blamed(counted)
    return SequenceCount(
        op=task.op,
        out=form == "out",
        dynamic=DYNAMIC[mode],
        sizes=task.sizes,
        compilations=len(counted.compiled),
        allowed=counted.allowed,
        guard=counted.guard or (counted.raised.expression if counted.raised is not None else ""),
        frame=frame,
        owner=owner,
        shareable=tuple(tuple(task.sizes[at] for at in group) for group in counted.shareable),
        without_out=without_out,
        error=counted.error,
        line=line,
        form=form,
    )


def _sightings(subjects: dict[Form, Subject], rows: list[SequenceCount]) -> Iterator[Sighting]:
    """The needless compilations of functions that one program states for all sizes."""
    modes = {said: mode for mode, said in DYNAMIC.items()}
    for row in rows:
        text, stage = subjects[row.form].symbolic, STAGE.get(modes[row.dynamic])
        if row.is_above and text is not None and stage is not None:
            for judged in judge_program(text, (stage,), (EXPLICIT,), observe, oracles=(recompilation.ORACLE.name,)):
                for failure in judged.failures:
                    yield sighting(failure, text, judged.verdict, str(torch.__version__))


def _blamed(counted: CallSequence) -> tuple[str, Owner, str]:
    """The code that made the failed guard, whose it is, and the line."""
    raised = as_raised(counted.failed) if counted.failed is not None else counted.raised
    if raised is None:
        return (DUCK_SIZING, "torch", "") if counted.guard else ("", "", "")
    place, frame = site(raised)
    return str(place), "user" if place == USER_SITE else "torch", f"{frame.file}:{frame.line}" if frame.line else ""
