"""Writes a stand-alone script for a wrong captured program. The script calls it and eager, with torch alone.

The verdicts and exit codes are those of the scripts for failed captures (`repro.script`).
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from ddefuzz.classify.expected import Expected
from ddefuzz.program.arguments import MARKED, at_size, marks_of, module_of, symbols_of, values_of
from ddefuzz.program.model import Program
from ddefuzz.repro.script import ENDING, emitted, source_of

_EXPORT: Final = """
def capture():
    from torch.export import export

    program = export(Captured(), $inputs, strict=$strict)
    return program.module(), lambda: 1
"""

_COMPILE: Final = """
def capture():
    from torch._dynamo import config
    from torch._dynamo.backends.registry import lookup_backend

    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    captured = []

    def backend(graph, inputs):
        compiled = lookup_backend("$backend")(graph, inputs)
        captured.append(graph)
        return compiled

    compiled = torch.compile(Captured(), backend=backend, fullgraph=True)
    try:
        compiled(*$inputs)
    except Exception:
        if not captured:  # else the captured program raises, as the call shows
            raise
    return compiled, lambda: len(captured)
"""

_INDUCTOR: Final = _COMPILE.replace("$backend", "inductor").replace(
    "    config.capture_scalar_outputs",
    "    torch._inductor.config.force_disable_caches = True  # a kept file may pass what fails cold\n"
    "    config.capture_scalar_outputs",
)

CAPTURES: Final[dict[str, str]] = {
    "export": _EXPORT.replace("$strict", "False"),
    "export-strict": _EXPORT.replace("$strict", "True"),
    "compile": _COMPILE.replace("$backend", "eager"),
    "aot": _COMPILE.replace("$backend", "aot_eager"),
    "inductor": _INDUCTOR,
}
"""How each stage captures a program to call it: `capture` returns what was captured, and a count of the captures."""

COMPARISON: Final = Path(__file__).with_name("by_call.py")
"""It is read and not imported, because it imports torch."""

BACKWARD: Final = frozenset({"aot", "inductor"})
"""The stages that capture gradients too."""

_MARKED: Final = """
def marked(inputs):
    from torch._dynamo.decorators import mark_unbacked

    $marks
    return inputs
"""

CALLING: Final = "calling the captured program"
"""The line that a script prints to stderr before that call, which may end the process."""

_SCRIPT: Final = Template(
    '''\
"""$title

Run it as it is: it needs only torch (2.6 or later). It prints one JSON line, and exits with
  1  it shows: in the call, the captured program and eager end as described at EXPECTED
  0  it passes: they end alike
  3  it fails otherwise
  4  it cannot be judged: eager PyTorch raises for the program, or this torch has no such op or stage
"""

from __future__ import annotations

$imports


$subject

def call_inputs():
    """The inputs of the call that shows the difference. $what"""
    return ($called)

$marking
$capture

# The rest only compares the two calls.

EXPECTED = $expected

$functions


def main():
    verdict, found = "not judged", None
    torch.set_num_threads(1)  # as observed: sums and some branches in C++ depend on the number of threads
    with contextlib.redirect_stdout(sys.stderr):  # torch prints graphs when it fails
        try:
            Captured()(*make_inputs())  # not judged if this torch does not have an op
            eager = ended(Captured(), call_inputs(), $backward)
            verdict = "fails otherwise"
            compute, captures = capture()
            before = captures()
            print("$calling", file=sys.stderr, flush=True)
            called = ended(compute, $marked, $backward)
            if captures() == before:
                found = seen(eager, called, lambda: ended(Captured(), in_float64(call_inputs()), $backward))
                verdict = "shows" if is_as(EXPECTED, found) else verdict
                alike = found["eager"] == found["captured"] and "differs" not in found
                verdict = "passes" if alike else verdict
                if "differs" in found and compared(eager, ended(Captured(), call_inputs(), $backward)):
                    verdict = "not judged"  # eager differs from eager
            else:  # the call tests another capture
                verdict, found = "not judged", {"captured": "again"}
        except ImportError as error:  # this torch does not have the stage
            verdict, found = "not judged", {"exception": str(error)}
        except Exception as error:
            found = {"exception": type(error).__name__, "message": str(error).partition("\\n")[0]}
            if "InvalidCxxCompiler" in str(found):
                verdict = "not judged"
'''
    + ENDING
)


def call_script(program: Program, stage: str, expected: Expected, title: str) -> str:
    """The script for one of the stages in `CAPTURES` and an expected end of a call at the data size `expected.size`."""
    assert expected.size is not None
    symbols = symbols_of(program)
    is_marked = bool(symbols) and stage in MARKED
    resized, kept = at_size(program, stage, expected.size)
    imports, functions = source_of(COMPARISON.read_text(encoding="utf-8"))
    return emitted(
        _SCRIPT,
        title,
        imports=imports,
        subject=module_of(program, stage, "The inputs with which it is captured."),
        called="".join(f"{value}, " for value in values_of(resized, stage, kept)),
        what=f"Their data size is `{expected.size}`.",
        marking=Template(_MARKED).substitute(marks="\n    ".join(marks_of(symbols))) if is_marked else "",
        capture=Template(CAPTURES[stage]).substitute(inputs="marked(make_inputs())" if is_marked else "make_inputs()"),
        marked="marked(call_inputs())" if is_marked else "call_inputs()",
        expected=repr(expected.seen),
        functions=functions,
        backward=stage in BACKWARD,
        calling=CALLING,
        stage=stage,
    )
