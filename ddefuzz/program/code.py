"""A program as code: the module that a stage captures, its arguments, and what makes their dims unbacked."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from string import Template
from types import MappingProxyType
from typing import Final

from ddefuzz.program.expressions import imported_for, print_expression
from ddefuzz.program.model import Call, Constant, Expr, Input, Program, Sequence, functions_in, walk, written_numbers
from ddefuzz.program.model import Literal as Value
from ddefuzz.program.modules import SEED, has_mesh, hoisted, is_mesh, modules_of
from ddefuzz.program.options import NO_GRAD, OPTIONS, mark_calls, marks_in, settings_in
from ddefuzz.program.recipes import WORLD, input_expression, is_placed
from ddefuzz.program.sizes import COMPILED, MARKED
from ddefuzz.program.text import print_function


def symbols_of(program: Program) -> dict[str, list[tuple[int, int]]]:
    """The places (position of the input, dim) that each symbol names, in order."""
    places: dict[str, list[tuple[int, int]]] = {}
    for position, item in enumerate(program.inputs):
        for number, dim in enumerate(item.shape):
            if dim.symbol is not None:
                places.setdefault(dim.symbol, []).append((position, number))
    return places


def fresh(name: str, program: Program) -> str:
    """`name`, or a variant of it if an input has that name."""
    return fresh(f"{name}_", program) if name in {item.name for item in program.inputs} else name


def parameters_of(program: Program, stage: str) -> list[str]:
    masks = [] if stage in MARKED else [fresh(f"keep_{symbol}", program) for symbol in symbols_of(program)]
    return [*(item.name for item in program.inputs), *masks]


def masks_of(program: Program, stage: str, kept: Mapping[str, int]) -> list[str]:
    """The masks that make dims unbacked: all True, or with as many True as `kept` says."""
    if stage in MARKED:
        return []
    masks = []
    for symbol, ((position, dim), *_) in symbols_of(program).items():
        size = program.inputs[position].shape[dim].size
        count = kept.get(symbol, size)
        masks.append(f"torch.arange({size}) < {count}" if count < size else f"torch.ones({size}, dtype=torch.bool)")
    return masks


def values_of(program: Program, stage: str, kept: Mapping[str, int] = MappingProxyType({})) -> list[str]:
    """The values of the inputs, seeded by their position, and the masks."""
    values = [
        print_expression(input_expression(item, Call("torch.Generator().manual_seed", (Value(position),))))
        for position, item in enumerate(program.inputs)
    ]
    return values + masks_of(program, stage, kept)


def body_of(program: Program, stage: str) -> list[str]:
    """The statements that make unbacked sizes from the arguments' sizes and values, then the call of the program."""
    names = [item.name for item in program.inputs]
    lines: list[str] = []
    for symbol, places in symbols_of(program).items():
        if stage in MARKED:
            (first, dim), *others = places
            size = f"{names[first]}.shape[{dim}]"
            lines += [f"torch._check({size} == {names[other]}.shape[{number}])" for other, number in others]
            continue
        index = fresh(symbol, program)
        lines += [f"{index} = {fresh(f'keep_{symbol}', program)}.nonzero().squeeze(1)"]
        lines += [f"{names[at]} = {names[at]}.index_select({number}, {index})" for at, number in places]
        lines += [f"{names[at]}.retain_grad()" for at, _ in places if program.inputs[at].requires_grad]
    if stage in COMPILED and not written_numbers(program):
        # torch.compile reads the value of a 0-d input, and its item() would be a plain number.
        lines += [f"{item.name} = {item.name}.clone()" for item in program.inputs if not item.shape]
    given = [*names, *(f"{fresh('self', program)}.{name}" for name in modules_of(program).values())]
    return [*lines, f"return program({', '.join(given)})"]


def marks_of(program: Program) -> list[str]:
    """The lines that mark each unbacked dim of the variable `inputs`, with the options of its symbol."""
    lines, marks = [], marks_in(program)
    for symbol, places in symbols_of(program).items():
        for (position, dim), given in product(places, mark_calls(marks.get(symbol, {}))):
            named = "".join(f", {name}={OPTIONS[name].argument.format(number)}" for name, number in given.items())
            lines.append(f"mark_unbacked(inputs[{position}], {dim}{named})")
    return lines


def short_value(item: Input) -> str:
    """An input with the values of this run, so that no generator is needed."""
    text = print_expression(input_expression(item, Constant("None"))).replace(", generator=None", "")
    return text.replace(", dtype=torch.float32", "", 1) if text.startswith(_DEFAULT_FLOAT) else text


_DEFAULT_FLOAT: Final = ("torch.randn(", "torch.rand(", "torch.ones(", "torch.zeros(")


def tuple_of(values: list[str]) -> str:
    """The text of a tuple."""
    return f"({', '.join(values)}{',' if len(values) == 1 else ''})"


_MODULE: Final = Template(
    """\
${imports}$function


class Captured(torch.nn.Module):
$made    def forward($parameters):
        $body


def make_inputs():
    ${about}return ($values)
"""
)


def function_of(program: Program) -> str:
    """The function of a program, whose last parameters are its modules."""
    return print_function(hoisted(program), modules_of(program).values())


def setup_of(program: Program) -> list[str]:
    """The imports that a program needs beside `torch`, and the settings of its options."""
    placed = any(map(is_placed, program.inputs))
    imports = [f"import {module}" for module in imported_for([*functions_in(program), *([DTENSOR] if placed else [])])]
    settings = settings_in(program)
    modules = dict.fromkeys(one.path.rpartition(".")[0] for one in settings if one != NO_GRAD)
    group = _GROUP if placed else []
    return [*imports, *(f"import {module}" for module in modules), *group, *map(str, settings)]


def made_of(program: Program, *, seeded: bool = True) -> list[str]:
    """The method that makes the modules and the mesh of a program, and an empty line. No line if it has none."""
    modules = modules_of(program)
    lines = ["def __init__(self):", "    super().__init__()"] if modules else []
    group = _ALONE if all(map(_is_alone, modules)) else _GROUP
    for expr, name in modules.items():
        before = [
            *(group if has_mesh(expr) else []),
            *([f"torch.manual_seed({SEED})"] if seeded and not is_mesh(expr) else []),
        ]
        lines += [f"    {line}" for line in (*before, f"self.{name} = {print_expression(expr)}")]
    return [*lines, ""] if lines else []


def _is_alone(expr: Expr) -> bool:
    """Whether the meshes of an expression have one process each."""
    meshes = (node for node in walk(expr) if isinstance(node, Call) and is_mesh(node))
    shapes = [mesh.args[1] if len(mesh.args) > 1 else dict(mesh.kwargs)["mesh_shape"] for mesh in meshes]
    return all(shape == Sequence((Value(1),)) for shape in shapes)


_ALONE: Final = [
    "if not torch.distributed.is_initialized():",
    "    store = torch.distributed.HashStore()",
    '    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)',
]
"""The process group of one process, which a mesh needs."""

DTENSOR: Final = "torch.distributed.tensor.DTensor"

_GROUP: Final = [
    "if not torch.distributed.is_initialized():",
    f'    torch.distributed.init_process_group("fake", rank=0, world_size={WORLD})',
]
"""The process group of inputs that are DTensors, and of a larger mesh. The other processes do not exist."""


def class_of(program: Program, parameters: list[str], before: list[str], *, seeded: bool = True) -> list[str]:
    """The class of a module that computes what a program does. The statements `before` are at its begin. Parameters of
    modules have other values if they are not `seeded`.
    """
    owner = fresh("self", program)
    statements = [*before, *(line.strip() for line in print_function(hoisted(program, f"{owner}.")).splitlines()[1:])]
    header = f"def forward({', '.join([owner, *parameters])}):"
    lines = [*made_of(program, seeded=seeded), header, *(f"    {line}" for line in statements)]
    return ["class Program(torch.nn.Module):", *(f"    {line}".rstrip() for line in lines)]


def callable_of(program: Program, parameters: list[str], before: list[str], *, seeded: bool = True) -> list[str]:
    """Code that defines `program`: a function, or a module if it has modules. The rest is as for `class_of`."""
    if modules_of(program):
        return [*class_of(program, parameters, before, seeded=seeded), "", "program = Program()"]
    statements = (f"    {line}" for line in before)
    return [f"def program({', '.join(parameters)}):", *statements, *print_function(program).splitlines()[1:]]


def module_of(program: Program, stage: str, about: str = "") -> str:
    """The program, the module that is captured, and its inputs. `about` is the docstring of `make_inputs`."""
    return _MODULE.substitute(
        imports="".join(f"{line}\n" for line in setup_of(program)),
        function=function_of(program),
        made="".join(f"    {line}\n" for line in made_of(program)),
        parameters=", ".join([fresh("self", program), *parameters_of(program, stage)]),
        body="\n        ".join(body_of(program, stage)),
        values="".join(f"{value}, " for value in values_of(program, stage)),
        about=f'"""{about}"""\n    ' if about else "",
    )
