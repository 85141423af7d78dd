"""The stand-alone script that shows a program's failure with torch alone, to be pasted into an issue.

It has only the parts that the stage and the program need, works unchanged under any torch from 2.6 on, prints one JSON
line, and exits 1 when the failure shows, 0 when it does not or cannot be judged.
"""

from __future__ import annotations

from string import Template
from typing import Final

import black

from ddefuzz.program.expressions import print_expression
from ddefuzz.program.model import Call, Literal, Program
from ddefuzz.program.recipes import input_expression
from ddefuzz.program.text import print_function

_EXPORT: Final = """
def capture():
    from torch.export import export

    export(Captured(), $inputs, strict=False)
"""

_EXPORT_STRICT: Final = """
def capture():
    from torch._dynamo import config
    from torch.export import export

    config.verbose = True  # keeps the frames of causes
    export(Captured(), $inputs, strict=True)
"""

_COMPILE: Final = """
def capture():
    from torch._dynamo import config

    config.verbose = True  # keeps the frames of causes
    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    torch.compile(Captured(), backend="$backend", fullgraph=True)(*$inputs)
"""

_FAKE: Final = """
def capture():
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    inputs = [mode.from_tensor(tensor, static_shapes=True) for tensor in $inputs]
    with mode, enable_python_dispatcher():
        Captured()(*inputs)
"""

_EAGER: Final = """
def capture():
    Captured()(*$inputs)
"""

CAPTURES: Final[dict[str, str]] = {
    "eager": _EAGER,
    "fake": _FAKE,
    "export": _EXPORT,
    "export-strict": _EXPORT_STRICT,
    "compile": _COMPILE.replace("$backend", "eager"),
    "aot": _COMPILE.replace("$backend", "aot_eager"),
    "inductor": _COMPILE.replace("$backend", "inductor"),
}
"""How each stage takes the program."""

_MARKED: Final = frozenset({"export-strict", "compile", "aot", "inductor"})
"""The stages of dynamo, where dims are made unbacked by `mark_unbacked`. Elsewhere they are in the graph, by selecting
all of the dim with a mask: non-strict export ignores the mark."""

_MARKING: Final = """
def marked_inputs():
    from torch._dynamo.decorators import mark_unbacked

    inputs = make_inputs()
    $marks
    return inputs
"""

_COMPILED: Final = frozenset({"compile", "aot", "inductor"})

_EAGER_CHECK: Final = "Captured()(*make_inputs())  # not judged if this torch does not have an op"

_ONLY_THIS: Final = """if outcome == "fail" and cause is None:
        outcome = "not-judged"  # it fails, but otherwise
    error = cause or error"""

_SCRIPT: Final = Template('''\
"""$title Needs only torch; prints one JSON line; exits 1 if it shows, else 0."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback

import torch


$function


class Captured(torch.nn.Module):
    def forward($parameters):
        $body


def make_inputs():
    return ($values)

$marking
$capture

def main():
    outcome, error = "not-judged", None
    with contextlib.redirect_stdout(sys.stderr):  # torch prints graphs when it fails
        try:
            $eager
            outcome = "fail"
            capture()
            outcome = "ok"
        except ImportError as raised:  # nor if it does not have the stage
            outcome, error = "not-judged", raised
        except Exception as raised:
            error = raised
    cause = error
    while cause is not None and type(cause).__name__ != "$shown":
        cause = cause.__cause__ or cause.__context__
    $judging
    frames = traceback.extract_tb(error.__traceback__) if error else []
    places = [(f.filename.rpartition("site-packages/")[2], f.lineno, f.name) for f in frames]
    result = {
        "torch": torch.__version__,
        "stage": "$stage",
        "outcome": outcome,
        "exception": type(error).__name__ if error else None,
        "expression": str(error.cond) if hasattr(error, "cond") else None,
        "frames": [f"{file}:{line} {name}" for file, line, name in places],
    }
    print(json.dumps(result))
    return int(outcome == "fail")


if __name__ == "__main__":
    sys.exit(main())
''')

_DDE: Final = "GuardOnDataDependentSymNode"


def repro_script(
    program: Program, stage: str, exception: str | None = None, title: str = "A data-dependent error in PyTorch."
) -> str:
    """The script for one of the stages in `CAPTURES`.

    With `exception`, a class's bare name, only a failure with it in its chain counts; without, any does.
    """
    symbols = _symbols(program)
    is_marked = bool(symbols) and stage in _MARKED
    inputs = "marked_inputs()" if is_marked else "make_inputs()"
    script = _SCRIPT.substitute(
        title=title.replace("\\", "\\\\").replace('"', "'"),
        function=print_function(program),
        parameters=", ".join([_fresh("self", program), *_parameters(program, stage)]),
        body="\n        ".join(_body(program, stage)),
        values="".join(f"{value}, " for value in _values(program, stage)),
        marking=Template(_MARKING).substitute(marks="\n    ".join(_marks(symbols))) if is_marked else "",
        capture=Template(CAPTURES[stage]).substitute(inputs=inputs),
        eager="" if stage == "eager" else _EAGER_CHECK,
        shown=exception or _DDE,
        judging="error = cause or error" if exception is None else _ONLY_THIS,
        stage=stage,
    )
    return black.format_str(script, mode=black.Mode(line_length=100))


def _symbols(program: Program) -> dict[str, list[tuple[int, int]]]:
    """The places (position of the input, dim) that each symbol names, in order."""
    places: dict[str, list[tuple[int, int]]] = {}
    for position, item in enumerate(program.inputs):
        for number, dim in enumerate(item.shape):
            if dim.symbol is not None:
                places.setdefault(dim.symbol, []).append((position, number))
    return places


def _fresh(name: str, program: Program) -> str:
    """`name`, or what it becomes where an input has it."""
    return _fresh(f"{name}_", program) if name in {item.name for item in program.inputs} else name


def _parameters(program: Program, stage: str) -> list[str]:
    masks = [] if stage in _MARKED else [_fresh(f"keep_{symbol}", program) for symbol in _symbols(program)]
    return [*(item.name for item in program.inputs), *masks]


def _values(program: Program, stage: str) -> list[str]:
    values = [
        print_expression(input_expression(item, Call("torch.Generator().manual_seed", (Literal(position),))))
        for position, item in enumerate(program.inputs)
    ]
    if stage not in _MARKED:
        sizes = [program.inputs[position].shape[dim].size for (position, dim), *_ in _symbols(program).values()]
        values += [f"torch.ones({size}, dtype=torch.bool)" for size in sizes]
    return values


def _body(program: Program, stage: str) -> list[str]:
    """What makes unbacked sizes of the arguments' sizes and values, then the call of the program."""
    names = [item.name for item in program.inputs]
    lines: list[str] = []
    for symbol, places in _symbols(program).items():
        if stage in _MARKED:
            (first, dim), *others = places
            size = f"{names[first]}.shape[{dim}]"
            lines += [f"torch._check({size} == {names[other]}.shape[{number}])" for other, number in others]
            continue
        index = _fresh(symbol, program)
        lines += [f"{index} = {_fresh(f'keep_{symbol}', program)}.nonzero().squeeze(1)"]
        lines += [f"{names[at]} = {names[at]}.index_select({number}, {index})" for at, number in places]
        lines += [f"{names[at]}.retain_grad()" for at, _ in places if program.inputs[at].requires_grad]
    if stage in _COMPILED:
        # torch.compile reads the value of a 0-d input, and its item() would be a plain number.
        lines += [f"{item.name} = {item.name}.clone()" for item in program.inputs if not item.shape]
    return [*lines, f"return program({', '.join(names)})"]


def _marks(symbols: dict[str, list[tuple[int, int]]]) -> list[str]:
    return [f"mark_unbacked(inputs[{position}], {dim})" for places in symbols.values() for position, dim in places]
