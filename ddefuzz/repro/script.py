"""Writes stand-alone scripts, which show a program's failure with torch alone, and check that it is the expected one.

A script has only the parts that the stage, the program and the failure need. It works unchanged under any torch from
2.6 on. It prints one JSON line, and exits with 1 if the failure shows, 0 if the capture passes, 3 if it fails
otherwise, and 125 if that cannot be judged, which `git bisect run` skips. The script of a stored case says only of
which kind the failure is, because a case stores no more.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Final

import black

from ddefuzz.classify.failure import KINDS
from ddefuzz.classify.recognition import ExpectedFailure, Recognizer
from ddefuzz.errors import InputError
from ddefuzz.escape import one_line
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Stage, Subject
from ddefuzz.files import real_path
from ddefuzz.oracles.capture import KINDS as OF_CAPTURE
from ddefuzz.oracles.capture import LOST
from ddefuzz.oracles.oracle import CAUGHT, Script
from ddefuzz.program.code import marks_of, module_of, values_of
from ddefuzz.program.expressions import SELF_COMPILING
from ddefuzz.program.model import Program, functions_in
from ddefuzz.program.sizes import MARKED, at_size, order_of
from ddefuzz.repro import by_message, by_native, by_python
from ddefuzz.repro.captures import AFTER_EXPORT, CALLED, CAPTURES

WIDTH: Final = 120

_SKELETON: Final = Template(
    '''\
"""$$title

Run it as it is: it needs $needs
  1  it shows: $shows
  0  it passes$passes
  3  it fails otherwise$otherwise
  125  it cannot be judged: $unjudged
`git bisect run` takes these codes: it skips what ends with 125.
"""

from __future__ import annotations

$$imports


$body

def main():
$start
    with contextlib.redirect_stdout(sys.stderr):$why
        try:
$attempt
$unless        except Exception as error:
$caught
    result = {"torch": torch.__version__, "stage": "$$stage", "verdict": verdict}
    print(json.dumps({**result, "expected": EXPECTED, "seen": found}))
    print(f"{verdict}: expected {EXPECTED}, seen {found}", file=sys.stderr)
    return {"shows": 1, "passes": 0, "fails otherwise": 3, "not judged": 125}[verdict]


if __name__ == "__main__":
    sys.exit(main())
'''
)
"""What every script has. Its `main` prints the verdict, and returns the exit code."""

_NO_STAGE: Final = """\
        except ImportError as error:  # this torch does not have the stage
            verdict, found = "not judged", {"exception": str(error)}
"""

_NO_OP_OR_STAGE: Final = "eager PyTorch raises for the program, or this torch has no such op or stage"


def emitted(script: Script, stage: Stage, title: str, *imports: str, **parts: object) -> str:
    """The text of a script, with more imports and parts. Parts are code: values in them are written by `repr`."""
    header, _, functions = script.copied.partition("# ---\n")
    own = [line for line in header.splitlines() if line.startswith(("import ", "from ")) and "__future__" not in line]
    lines = {*own, "import contextlib", "import json", "import sys", *imports} - {"import torch"}
    standard = sorted(lines, key=lambda line: (line.startswith("from "), line))
    shows, passes, otherwise, unjudged = script.verdicts
    text = _SKELETON.substitute(
        needs=script.needs,
        shows=shows,
        passes=passes,
        otherwise=otherwise,
        unjudged=unjudged,
        body=script.body,
        start=indent(script.start, " " * 4),
        why="  # torch prints graphs when it fails" if "set_num_threads" in script.start else "",
        attempt=indent(script.attempt, " " * 12),
        unless=_NO_STAGE if unjudged == _NO_OP_OR_STAGE else "",
        caught=indent(script.caught, " " * 12),
    )
    code = Template(text).substitute(
        # No quote and no backslash can end the docstring that begins with the title.
        {"imports": "\n".join([*standard, "", "import torch"]), "functions": functions, **script.parts, **parts},
        title=one_line(title).replace("\\", "\\\\").replace('"', "'"),
        expected=repr(dict(script.expected)),
        stage=stage,
    )
    return black.format_str(code, mode=black.Mode(line_length=WIDTH))


EAGER_CHECK: Final = "Captured()(*make_inputs())  # not judged if this torch does not have an op"

_MARKED: Final = """
def marked(inputs):
    from torch._dynamo.decorators import mark_unbacked

    $marks
    return inputs
"""

_MARKING: Final = _MARKED.replace("marked(inputs)", "marked_inputs()").replace(
    "    $", "    inputs = make_inputs()\n    $"
)


def marking_of(program: Program, stage: Stage, template: str = _MARKING) -> str:
    """The function that marks dims as unbacked. Empty if there is none, or masks do it."""
    marks = marks_of(program) if stage in MARKED else []
    return Template(template).substitute(marks="\n    ".join(marks)) if marks else ""


# The script of a failed capture


_CAPTURE: Final = Script(
    verdicts=("the failure is the one described at EXPECTED", "", "", _NO_OP_OR_STAGE),
    start="""\
verdict, found = "not judged", None
torch.set_num_threads(1)  # as observed: some branches in C++ ask for the number of threads""",
    body="""\
$subject
$marking
$capture

# The rest only distinguishes this failure from others.

EXPECTED = $expected

$internal
$functions


def verdict_of(error):
    \"""The verdict on an exception of capture(), and what was seen.\"""
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
""",
    attempt="""\
$eager
${native}verdict = "fails"
capture()
verdict = "passes\"""",
    caught=f"""\
{CAUGHT}
if verdict == "fails":
    verdict, found = verdict_of(error)""",
)
"""The script of a failed capture."""

_NATIVE_FRAMES: Final = """os.environ["TORCH_SYMBOLIZE_MODE"] = "fast"  # names static functions, too
            torch.fx.experimental._config.extended_debug_cpp = True  # C++ frames in the message
            """

_PLACE: Final = "INTERNAL = ()\n"  # a line that no text of a finding can be, because each is within one line

_RECOGNIZERS: Final = {"by_python": by_python, "by_native": by_native, "by_message": by_message}

_ARGUMENTS: Final[dict[Recognizer, tuple[str, ...]]] = {
    "by_python": ("EXPECTED", "INTERNAL"),
    "by_native": ("EXPECTED", "INTERNAL"),
    "by_message": ("EXPECTED",),
}
"""The constants of a script that each recognizer gets."""


def _eager_check(program: Program, stage: Stage) -> str:
    return "" if stage == "eager" or not SELF_COMPILING.isdisjoint(functions_in(program)) else EAGER_CHECK


def _keep_causes(program: Program, stage: Stage) -> str:
    """What lets the frames of causes be kept in a stage in which only control flow is compiled by dynamo."""
    is_inside = stage == "export" and not SELF_COMPILING.isdisjoint(functions_in(program))
    return "torch._dynamo.config.verbose = True  # keeps the frames of causes\n            " if is_inside else ""


def repro_script(program: Program, stage: Stage, expected: ExpectedFailure, title: str) -> str:
    """The script for one of the stages in `CAPTURES` and an expected failure."""
    marking = marking_of(program, stage)
    inputs = "marked_inputs()" if marking else "make_inputs()"
    is_native, arguments = expected.recognizer == "by_native", _ARGUMENTS[expected.recognizer]
    script = emitted(
        _CAPTURE._replace(expected=expected.seen, copied=inspect.getsource(_RECOGNIZERS[expected.recognizer])),
        stage,
        title,
        *(["import os"] if is_native else []),
        subject=module_of(program, stage),
        marking=marking,
        capture=Template(CAPTURES[stage]).substitute(inputs=inputs),
        internal=_PLACE if "INTERNAL" in arguments else "",
        known=", ".join(arguments),
        last="len(chain) - 1" if expected.is_root else 'names.index(EXPECTED["exception"])',
        native=f"{_NATIVE_FRAMES if is_native else ''}{_keep_causes(program, stage)}",
        eager=_eager_check(program, stage),
    )
    # A table that black would give a line for each name.
    return script.replace(f"\n{_PLACE}", f"\nINTERNAL = {_table(expected.internal)}\n", 1)


def quoted(text: str) -> str:
    """The literal of a string, in double quotes where black would write them."""
    return f'"{text}"' if repr(text) == f"'{text}'" and '"' not in text else repr(text)


def _table(names: tuple[str, ...]) -> str:
    """The source of a tuple of names, with several names a line."""
    lines: list[str] = []
    for name in names:
        item = f"{quoted(name)},"
        if lines and len(f"    {lines[-1]} {item}") <= WIDTH:
            lines[-1] += f" {item}"
        else:
            lines.append(item)
    return "".join(["(\n", *(f"    {line}\n" for line in lines), ")"])


# The script of a wrong captured program, which calls it and eager

_CALL: Final = Script(
    verdicts=(
        "in the call, the captured program and eager end as described at EXPECTED",
        ": they end alike",
        "",
        _NO_OP_OR_STAGE,
    ),
    start="""\
verdict, found = "not judged", None
torch.set_num_threads(1)  # as observed: sums and some branches in C++ depend on the number of threads""",
    body="""\
$subject

def call_inputs():
    \"""The inputs of the call that shows the difference. $what\"""
    return ($called)

$marking
$capture

# The rest only compares the two calls.

EXPECTED = $expected

$functions
""",
    attempt="""\
Captured()(*make_inputs())  # not judged if this torch does not have an op
eager = ended(Captured(), call_inputs(), $order)
verdict = "fails otherwise"
compute, captures = capture()
before = captures()
called = ended(compute, $marked, $order)
if captures() == before:
    found = seen(eager, called, lambda: ended(Captured(), in_float64(call_inputs()), $order))
    verdict = "shows" if is_as(EXPECTED, found) else verdict
    alike = found["eager"] == found["captured"] and "differs" not in found
    verdict = "passes" if alike else verdict
    if "differs" in found and compared(eager, ended(Captured(), call_inputs(), $order)):
        verdict = "not judged"  # eager differs from eager
else:  # the call tests another capture
    verdict, found = "not judged", {"captured": "again"}""",
    caught=f"""\
{CAUGHT}
if "InvalidCxxCompiler" in str(found):
    verdict = "not judged\"""",
)


CHILD_CPU: Final = 60  # CPU seconds of a call that is made in a child process. Most take 10, with the import.
CHILD_SECONDS: Final = 600  # how long it may wait

CALLING: Final = "calling the captured program"  # what the child process prints before that

_BEFORE: Final = "before = captures()\n"
_SAYS: Final = f"print({CALLING!r}, file=sys.stderr, flush=True)\n"

_WATCHED: Final = f"""\
def watched():
    \"""The verdict of this script in a child process, which the call may end, and what was seen.\"""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen([sys.executable, __file__, "child"], stdout=output, stderr=errors)
        try:
            code = child.wait({CHILD_SECONDS})
        except subprocess.TimeoutExpired:
            child.kill()
            code = -signal.SIGXCPU
        output.seek(0)
        errors.seek(0)
        said = errors.read()
        sys.stderr.write(said)
        if code >= 0:
            result = json.load(output)
            return result["verdict"], result["seen"]
    end = "{LOST["timeout-in-call"]}" if code == -signal.SIGXCPU else "{LOST["crash-in-call"]}"
    found = {{"captured" if {CALLING!r} in said.splitlines() else "capture": end}}
    return "shows" if found == EXPECTED else "fails otherwise", found
"""

_LOST_CALL: Final = _CALL._replace(
    body=f"{_CALL.body}\n{_WATCHED}\n",
    attempt=f"""\
if sys.argv[1:] == ["child"]:
    resource.setrlimit(resource.RLIMIT_CPU, ({CHILD_CPU}, {CHILD_CPU + 5}))  # then SIGXCPU
{indent(_CALL.attempt.replace(_BEFORE, _BEFORE + _SAYS), " " * 4)}
else:
    verdict, found = watched()""",
)
"""The same for a call that ends its process, or does not end."""


def call_script(program: Program, stage: Stage, expected: ExpectedFailure, title: str) -> str:
    """The script for one of the stages in `CALLED` and an expected end of a call at the data size `expected.size`."""
    assert expected.size is not None
    marking = marking_of(program, stage, _MARKED)
    resized, kept = at_size(program, stage, expected.size)
    # It is read and not imported, because it imports torch.
    comparison = (Path(__file__).parents[1] / "execute" / "comparison.py").read_text(encoding="utf-8")
    is_lost = expected.seen["captured"] in LOST.values()
    return emitted(
        (_LOST_CALL if is_lost else _CALL)._replace(expected=expected.seen, copied=comparison),
        stage,
        title,
        *(["import resource", "import signal", "import subprocess", "import tempfile"] if is_lost else []),
        subject=module_of(program, stage, "The inputs with which it is captured."),
        called="".join(f"{value}, " for value in values_of(resized, stage, kept)),
        what=f"Their data size is `{expected.size}`.",
        marking=marking,
        capture=Template(CALLED[stage]).substitute(inputs="marked(make_inputs())" if marking else "make_inputs()"),
        marked="marked(call_inputs())" if marking else "call_inputs()",
        # These stages capture gradients too.
        order=order_of(expected.size, backward=stage in ("aot", "aot-decomposed", "inductor", "cpp-wrapper")),
    )


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

_MASKED_STAGES: Final[dict[Stage, str]] = {
    "export": "True",
    "export-strict": "SHAPES is not None",
    **dict.fromkeys(AFTER_EXPORT, "True"),
}
"""Where masks make dims unbacked: `dynamic_shapes` removes the marks of tensors. Elsewhere tensors are marked."""

_CASE: Final = Script(
    verdicts=("the capture fails, and the failure is of the kind at EXPECTED", "", "", _NO_OP_OR_STAGE),
    body="""\
$subject
$marking
$capture

EXPECTED = $expected

KINDS = $kinds


def kind_of(error):
    \"""The kind of an exception of capture(), by the classes of its chain. The first row that applies decides.\"""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    names = {type(one).__name__ for one in chain}
    return next((kind for classes, kind in KINDS if names.intersection(classes)), "internal-error")
""",
    attempt="""\
$eager
verdict = "fails"
capture()
verdict = "passes\"""",
    caught="""\
found = {"kind": kind_of(error), "exception": type(error).__name__}
found["message"] = str(error).strip().partition("\\n")[0]
if verdict == "fails":
    verdict = "shows" if found["kind"] == EXPECTED["kind"] else "fails otherwise\"""",
)


def case_script(subject: Subject, stage: Stage, kind: str, title: str) -> str:
    """The script of a case in a stage. `kind` is that of the expected failure, empty if the case has to pass.

    Raises `InputError` for a stage of an oracle, and for a kind of failure that shows only when what was captured is
    called.
    """
    if stage not in CAPTURES:
        raise InputError(f"found the stage {stage}, expected one of {', '.join(CAPTURES)}")
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
        program = ProgramSubject(subject.text).program(title)
        text, marking = module_of(program, stage), marking_of(program, stage)
        inputs, eager = marked if marking else "make_inputs()", _eager_check(program, stage)
    return emitted(
        _CASE._replace(expected={"kind": kind}),
        stage,
        title,
        "import importlib.util",
        subject=text,
        marking=marking,
        capture=Template(CAPTURES[stage]).substitute(inputs=inputs),
        kinds=repr(tuple((tuple(sorted(names)), kind) for names, kind in KINDS)),
        eager=eager,
    )
