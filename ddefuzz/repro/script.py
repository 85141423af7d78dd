"""Writes stand-alone scripts, which show a program's failure with torch alone, and check that it is the expected one.

A script has only the parts that the stage, the program and the failure need. It works unchanged under any torch from
2.6 on. It prints one JSON line, and exits with 1 if the failure shows, 0 if the capture passes, 3 if it fails
otherwise, and 4 if that cannot be judged. The script of a stored case says only of which kind the failure is, because
a case stores no more.
"""

from __future__ import annotations

import inspect
from string import Template
from typing import Final

import black

from ddefuzz.classify.expected import Expected, Recognizer
from ddefuzz.classify.kind import KINDS
from ddefuzz.errors import InputError
from ddefuzz.escape import one_line
from ddefuzz.execute.protocol import CallableSubject, Stage, Subject
from ddefuzz.files import real_path
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import KINDS as OF_CAPTURE
from ddefuzz.program.arguments import MARKED, marks_of, module_of, symbols_of
from ddefuzz.program.model import Program
from ddefuzz.repro import by_message, by_native, by_python

WIDTH: Final = 120

ENDING: Final = """\
    result = {"torch": torch.__version__, "stage": "$stage", "verdict": verdict}
    print(json.dumps({**result, "expected": EXPECTED, "seen": found}))
    print(f"{verdict}: expected {EXPECTED}, seen {found}", file=sys.stderr)
    return {"shows": 1, "passes": 0, "fails otherwise": 3, "not judged": 4}[verdict]


if __name__ == "__main__":
    sys.exit(main())
"""
"""The end of `main` in a script: it prints the verdict, and returns the exit code."""

MARKER: Final = "# ---\n"
"""The line of a module after which its text goes into scripts."""


def emitted(script: Template, title: str, **parts: object) -> str:
    """The text of a script. `parts` are code: values in them are written by `repr`."""
    # No quote and no backslash can end the docstring that begins with the title.
    text = script.substitute(title=one_line(title).replace("\\", "\\\\").replace('"', "'"), **parts)
    return black.format_str(text, mode=black.Mode(line_length=WIDTH))


def source_of(module: str, *more: str) -> tuple[str, str]:
    """The imports for a script, and the functions of a module that it copies. `module` is the module's text, `more` are
    further imports.
    """
    header, _, functions = module.partition(MARKER)
    own = [line for line in header.splitlines() if line.startswith(("import ", "from ")) and "__future__" not in line]
    lines = {*own, "import contextlib", "import json", "import sys", *more} - {"import torch"}
    standard = sorted(lines, key=lambda line: (line.startswith("from "), line))
    return "\n".join([*standard, "", "import torch"]), functions


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
    config.fake_tensor_cache_enabled = False  # evaluates guards that the cache may hide
    export(Captured(), $inputs, strict=True)
"""

_COMPILE: Final = """
def capture():
    from torch._dynamo import config

    config.verbose = True  # keeps the frames of causes
    config.fake_tensor_cache_enabled = False  # evaluates guards that the cache may hide
    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    torch.compile(Captured(), backend="$backend", fullgraph=True)(*$inputs)
"""

_INDUCTOR: Final = _COMPILE.replace("$backend", "inductor").replace(
    "config.capture_scalar_outputs",
    "torch._inductor.config.force_disable_caches = True  # a kept file may pass what fails cold\n"
    "    config.capture_scalar_outputs",
)

_FAKE: Final = """
def capture():
    from torch._dispatch.python import enable_python_dispatcher
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    unbacked = getattr(DimDynamic, "UNBACKED", None) or DimDynamic.SIZE_LIKE_UNBACKED
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    inputs = []
    for number, tensor in enumerate($inputs):
        marked = getattr(tensor, "_dynamo_unbacked_indices", ())
        dims = [unbacked if dim in marked else DimDynamic.STATIC for dim in range(tensor.dim())]
        context = StatelessSymbolicContext(dynamic_sizes=dims)
        source = ConstantSource(f"input{number}")
        inputs.append(mode.from_tensor(tensor, symbolic_context=context, source=source))
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
    "inductor": _INDUCTOR,
}
"""How each stage captures the program."""

_MARKING: Final = """
def marked_inputs():
    from torch._dynamo.decorators import mark_unbacked

    inputs = make_inputs()
    $marks
    return inputs
"""

EAGER_CHECK: Final = "Captured()(*make_inputs())  # not judged if this torch does not have an op"

_SCRIPT: Final = Template(
    '''\
"""$title

Run it as it is: it needs only torch (2.6 or later). It prints one JSON line, and exits with
  1  it shows: the failure is the one described at EXPECTED
  0  it passes
  3  it fails otherwise
  4  it cannot be judged: eager PyTorch raises for the program, or this torch has no such op or stage
"""

from __future__ import annotations

$imports


$subject
$marking
$capture

# The rest only distinguishes this failure from others.

EXPECTED = $expected

$internal
$recognizer


def verdict_of(error):
    """The verdict on an exception of capture(), and what was seen."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    names = [type(one).__name__ for one in chain]
    if "InvalidCxxCompiler" in names:
        return "not judged", {"exception": "InvalidCxxCompiler"}
    if EXPECTED["exception"] not in names:
        return "fails otherwise", {"exception": names[-1], "message": str(chain[-1]).partition("\\n")[0]}
    errors = chain[: $last + 1]
    found = {"exception": names[len(errors) - 1], **seen(errors, $known)}
    if all(found.get(name) == value for name, value in EXPECTED.items()):
        return "shows", found
    if found.get("function") in ("??", "<unknown function>"):  # torch was built without the names of functions
        return "not judged", found
    return "fails otherwise", {**found, "message": str(errors[-1]).partition("\\n")[0]}


def main():
    verdict, found = "not judged", None
    torch.set_num_threads(1)  # as observed: some branches in C++ ask for the number of threads
    with contextlib.redirect_stdout(sys.stderr):  # torch prints graphs when it fails
        try:
            $eager
            ${native}verdict = "fails"
            capture()
            verdict = "passes"
        except ImportError as error:  # this torch does not have the stage
            verdict, found = "not judged", {"exception": str(error)}
        except Exception as error:
            found = {"exception": type(error).__name__, "message": str(error).partition("\\n")[0]}
            if verdict == "fails":
                verdict, found = verdict_of(error)
'''
    + ENDING
)

_NATIVE_FRAMES: Final = """os.environ["TORCH_SYMBOLIZE_MODE"] = "fast"  # names static functions, too
            torch.fx.experimental._config.extended_debug_cpp = True  # C++ frames in the message
            """

_PLACE: Final = "INTERNAL = ()\n"
"""A line that no text of a finding can be, because each is within one line."""

_RECOGNIZERS: Final = {"by_python": by_python, "by_native": by_native, "by_message": by_message}

_ARGUMENTS: Final[dict[Recognizer, tuple[str, ...]]] = {
    "by_python": ("EXPECTED", "INTERNAL"),
    "by_native": ("EXPECTED", "INTERNAL"),
    "by_message": ("EXPECTED",),
}
"""The constants of a script that each recognizer gets."""


def repro_script(program: Program, stage: str, expected: Expected, title: str) -> str:
    """The script for one of the stages in `CAPTURES` and an expected failure."""
    marking = marking_of(program, stage)
    inputs = "marked_inputs()" if marking else "make_inputs()"
    more = ("import os",) if expected.recognizer == "by_native" else ()
    imports, recognizer = source_of(inspect.getsource(_RECOGNIZERS[expected.recognizer]), *more)
    arguments = _ARGUMENTS[expected.recognizer]
    script = emitted(
        _SCRIPT,
        title,
        imports=imports,
        subject=module_of(program, stage),
        marking=marking,
        capture=Template(CAPTURES[stage]).substitute(inputs=inputs),
        expected=repr(expected.seen),
        internal=_PLACE if "INTERNAL" in arguments else "",
        known=", ".join(arguments),
        last="len(chain) - 1" if expected.is_root else 'names.index(EXPECTED["exception"])',
        recognizer=recognizer,
        native=_NATIVE_FRAMES if expected.recognizer == "by_native" else "",
        eager="" if stage == "eager" else EAGER_CHECK,
        stage=stage,
    )
    # A table that black would give a line for each name.
    return script.replace(f"\n{_PLACE}", f"\nINTERNAL = {_table(expected.internal)}\n", 1)


def marking_of(program: Program, stage: str) -> str:
    """The function that marks dims as unbacked. Empty if there is none, or masks do it."""
    symbols = symbols_of(program)
    is_marked = bool(symbols) and stage in MARKED
    return Template(_MARKING).substitute(marks="\n    ".join(marks_of(symbols))) if is_marked else ""


def _quoted(text: str) -> str:
    """A text as black writes it."""
    return f'"{text}"' if repr(text) == f"'{text}'" and '"' not in text else repr(text)


def _table(names: tuple[str, ...]) -> str:
    """The source of a tuple of names, with several names a line."""
    lines: list[str] = []
    for name in names:
        item = f"{_quoted(name)},"
        if lines and len(f"    {lines[-1]} {item}") <= WIDTH:
            lines[-1] += f" {item}"
        else:
            lines.append(item)
    return "".join(["(\n", *(f"    {line}\n" for line in lines), ")"])


# Scripts of stored cases

_CASE_MODULE: Final = Template(
    '''
def case():
    """The case of the module, which is executed for that."""
    sys.path.insert(0, $folder)
    spec = importlib.util.spec_from_file_location("cases", $path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["cases"] = module
    torch.manual_seed(0)
    spec.loader.exec_module(module)
    return next(one for one in module.CASES if str(one["id"]) == $case)


CASE = case()
CALL = CASE["fn"]() if isinstance(CASE["fn"], type) else CASE["fn"]
UNBACKED = [(position, dim) for position, dims in (CASE.get("unbacked") or {}).items() for dim in list(dims)]
SHAPES = CASE["dynamic_shapes"](torch.export.Dim.DYNAMIC) if CASE.get("dynamic_shapes") else None
MASKED = $masked


class Masked(torch.nn.Module):
    """The case, with dims that masks make unbacked."""

    def __init__(self):
        super().__init__()
        self.call = CALL

    def forward(self, *args):
        count = len(args) - (len(UNBACKED) if MASKED else 0)
        given = list(args[:count])
        for (position, dim), mask in zip(UNBACKED, args[count:]):
            given[position] = given[position].index_select(dim, mask.nonzero().squeeze(1))
        return self.call(*given)


def Captured():
    """What is captured: the module itself if it needs no mask."""
    return CALL if isinstance(CALL, torch.nn.Module) and not (MASKED and UNBACKED) else $captured


def make_inputs():
    torch.manual_seed(0)
    inputs = tuple(CASE["args"]())
    return inputs + tuple(torch.ones(inputs[at].shape[dim], dtype=torch.bool) for at, dim in UNBACKED if MASKED)


def marked_inputs():
    from torch._dynamo.decorators import mark_unbacked

    inputs = make_inputs()
    for position, dim in UNBACKED:
        if not MASKED:
            mark_unbacked(inputs[position], dim)
    return inputs


def shapes():
    """The dynamic shapes of what is captured. Masks have static ones."""
    if SHAPES is None or isinstance(Captured(), Masked) is False:
        return SHAPES
    return {"args": (*SHAPES, *(None for _ in UNBACKED if MASKED))}
'''
)

_MASKED_STAGES: Final[dict[Stage, str]] = {"export": "True", "export-strict": "SHAPES is not None"}
"""Where masks make dims unbacked: `dynamic_shapes` removes the marks of tensors. Elsewhere tensors are marked."""

_CASE_SCRIPT: Final = Template(
    '''\
"""$title

Run it as it is: it needs only torch (2.6 or later). It prints one JSON line, and exits with
  1  it shows: the capture fails, and the failure is of the kind at EXPECTED
  0  it passes
  3  it fails otherwise
  4  it cannot be judged: eager PyTorch raises for the program, or this torch has no such op or stage
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys

import torch


$subject
$marking
$capture

EXPECTED = {"kind": $kind}

KINDS = $kinds


def kind_of(error):
    """The kind of an exception of capture(), by the classes of its chain. The first row that applies decides."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    names = {type(one).__name__ for one in chain}
    return next((kind for classes, kind in KINDS if names.intersection(classes)), "internal-error")


def main():
    verdict, found = "not judged", None
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):  # torch prints graphs when it fails
        try:
            $eager
            verdict = "fails"
            capture()
            verdict = "passes"
        except ImportError as error:  # this torch does not have the stage
            verdict, found = "not judged", {"exception": str(error)}
        except Exception as error:
            found = {"kind": kind_of(error), "exception": type(error).__name__}
            found["message"] = str(error).strip().partition("\\n")[0]
            if verdict == "fails":
                verdict = "shows" if found["kind"] == EXPECTED["kind"] else "fails otherwise"
'''
    + ENDING
)


def case_script(subject: Subject, stage: Stage, kind: str, title: str) -> str:
    """The script of a case in a stage. `kind` is that of the expected failure, empty if the case has to pass.

    Raises `InputError` for a kind of failure that shows only when what was captured is called.
    """
    if kind and kind not in OF_CAPTURE:
        raise InputError(f"found the kind {kind}, expected one of {', '.join(OF_CAPTURE)}: only ddefuzz calls captures")
    marked = "marked_inputs()"
    if isinstance(subject, CallableSubject):
        path = real_path(subject.path)
        masked = _MASKED_STAGES.get(stage, "False")
        parts = {"path": repr(str(path)), "folder": repr(str(path.parent)), "case": repr(subject.case)}
        captured = "Masked()" if stage in _MASKED_STAGES else "CALL"
        text, marking, eager = (
            _CASE_MODULE.substitute(parts, masked=masked, captured=captured),
            "",
            "CALL(*CASE['args']())",
        )
        inputs = f"{marked}, dynamic_shapes=shapes()" if stage in _MASKED_STAGES else marked
    else:
        program = catalogue.parse(subject.text, title).program
        text, marking = module_of(program, stage), marking_of(program, stage)
        inputs, eager = marked if marking else "make_inputs()", "" if stage == "eager" else EAGER_CHECK
    return emitted(
        _CASE_SCRIPT,
        title,
        subject=text,
        marking=marking,
        capture=Template(CAPTURES[stage]).substitute(inputs=inputs),
        kind=repr(kind),
        kinds=repr(tuple((tuple(sorted(names)), kind) for names, kind in KINDS)),
        eager=eager,
        stage=stage,
    )
