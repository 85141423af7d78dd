"""Writes a stand-alone script that compares inductor's code for unbacked sizes with that for backed sizes.

The verdicts and exit codes are those of the scripts for failed captures (`repro.script`).
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from ddefuzz.classify.expected import Expected
from ddefuzz.execute import kernels
from ddefuzz.program.model import Program
from ddefuzz.repro.arguments import marks_of, symbols_of
from ddefuzz.repro.emitted import ENDING, emitted, source_of, subject_of

_SCRIPT: Final = Template(
    '''\
"""$title

Run it as it is: it needs only torch (2.6 or later) and a C++ compiler. It prints one JSON line, and exits with
  1  it shows: inductor's code for unbacked sizes is worse than that for backed sizes, as described at EXPECTED
  0  it passes: it is not worse
  3  it fails otherwise: torch.compile raises, or the code is worse in another way
  4  it cannot be judged: eager PyTorch raises for the program, or there is no C++ compiler
"""

from __future__ import annotations

$imports


$subject

def marked_inputs(mark):
    """The inputs, with the dims marked whose sizes are dynamic."""
    inputs = make_inputs()
    $marks
    return inputs


def code_for(mark):
    """The code that inductor generates."""
    from torch._dynamo import config
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    torch._inductor.config.force_disable_caches = True
    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    inputs = marked_inputs(mark)
    return run_and_get_code(torch.compile(Captured(), fullgraph=True), *inputs)[1][0]


# The rest only reads the kernels in the code.

EXPECTED = $expected

$functions


def main():
    verdict, found = "not judged", None
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):  # torch prints graphs when it fails
        try:
            Captured()(*make_inputs())
            verdict = "fails otherwise"
            from torch._dynamo import maybe_mark_dynamic
            from torch._dynamo.decorators import mark_unbacked

            unbacked, backed = kernels_in(code_for(mark_unbacked)), kernels_in(code_for(maybe_mark_dynamic))
            worse = worse_in(unbacked, backed)
            found = {"kind": ", ".join(worse), "kernels": str(unbacked.number)}
            if EXPECTED["kind"] in worse:
                verdict = "shows"
            elif not worse:
                verdict = "passes"
        except Exception as error:
            found = {"exception": type(error).__name__, "message": str(error).partition("\\n")[0]}
            if "InvalidCxxCompiler" in str(found):
                verdict = "not judged"
'''
    + ENDING
)


def kernels_script(program: Program, stage: str, expected: Expected, title: str) -> str:
    """The script for a kind of the lowering oracle."""
    imports, functions = source_of(Path(kernels.__file__).read_text(encoding="utf-8"))
    marks = (line.replace("mark_unbacked(", "mark(") for line in marks_of(symbols_of(program)))
    return emitted(
        _SCRIPT,
        title,
        imports=imports,
        subject=subject_of(program, "inductor"),
        marks="\n    ".join(marks),
        expected=repr(expected.seen),
        functions=functions,
        stage=stage,
    )
