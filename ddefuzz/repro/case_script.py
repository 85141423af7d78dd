"""Writes a stand-alone script for a stored case: whether it can be captured, and of which kind the failure is.

It knows less of the failure than the script of a finding, because a case stores only the kind and the site. It works
under any torch from 2.6 on.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from ddefuzz.classify.kind import KINDS
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CallableSubject, Stage, Subject
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import KINDS as OF_CAPTURE
from ddefuzz.program.arguments import module_of
from ddefuzz.repro.emitted import ENDING, emitted
from ddefuzz.repro.script import CAPTURES, EAGER_CHECK, marking_of

_MODULE: Final = Template(
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

_MASKED: Final[dict[Stage, str]] = {"export": "True", "export-strict": "SHAPES is not None"}
"""Where masks make dims unbacked: `dynamic_shapes` removes the marks of tensors. Elsewhere tensors are marked."""

_SCRIPT: Final = Template(
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
        path = Path(subject.path).resolve()
        masked = _MASKED.get(stage, "False")
        parts = {"path": repr(str(path)), "folder": repr(str(path.parent)), "case": repr(subject.case)}
        captured = "Masked()" if stage in _MASKED else "CALL"
        text, marking, eager = _MODULE.substitute(parts, masked=masked, captured=captured), "", "CALL(*CASE['args']())"
        inputs = f"{marked}, dynamic_shapes=shapes()" if stage in _MASKED else marked
    else:
        program = catalogue.parse(subject.text, title).program
        text, marking = module_of(program, stage), marking_of(program, stage)
        inputs, eager = marked if marking else "make_inputs()", "" if stage == "eager" else EAGER_CHECK
    return emitted(
        _SCRIPT,
        title,
        subject=text,
        marking=marking,
        capture=Template(CAPTURES[stage]).substitute(inputs=inputs),
        kind=repr(kind),
        kinds=repr(tuple((tuple(sorted(names)), kind) for names, kind in KINDS)),
        eager=eager,
        stage=stage,
    )
