"""Writes a stand-alone script for a needless compilation: it counts compilations over calls of several sizes.

The verdicts and exit codes are those of the scripts for failed captures (`repro.script`).
"""

from __future__ import annotations

from string import Template
from typing import Final

from ddefuzz.classify.expected import Expected
from ddefuzz.program.model import Program
from ddefuzz.program.resize import at_data_size
from ddefuzz.program.text import print_function
from ddefuzz.repro.arguments import values_of
from ddefuzz.repro.emitted import ENDING, emitted

DYNAMIC: Final = {"recompile": "None", "recompile-dynamic": "True"}
"""The argument `dynamic` of torch.compile in each stage. With None, torch's own default, the first graph is static."""

_SCRIPT: Final = Template(
    '''\
"""$title

Run it as it is: it needs only torch (2.6 or later). It prints one JSON line, and exits with
  1  it shows: more calls compile a graph than needed (see EXPECTED)
  0  it passes: no more calls compile a graph than needed
  3  it fails otherwise: torch.compile raises
  4  it cannot be judged: eager PyTorch raises for the program
"""

from __future__ import annotations

import contextlib
import json
import sys

import torch


$function


def inputs_of_calls():
    """The inputs of each call. They differ in sizes and values alone."""
    return [$calls]


EXPECTED = $expected


def compiling_calls():
    """How many of the calls compile a graph."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(program, backend=backend, dynamic=$dynamic)
    number = 0
    for inputs in inputs_of_calls():
        before = len(graphs)
        compiled(*inputs)
        number += len(graphs) > before
    return number


def main():
    verdict, found = "not judged", None
    with contextlib.redirect_stdout(sys.stderr):
        try:
            for inputs in inputs_of_calls():
                program(*inputs)
            verdict = "fails otherwise"
            number = compiling_calls()
            found = {"compilations": str(number)}
            verdict = "shows" if number > int(EXPECTED["needed"]) else "passes"
        except Exception as error:
            found = {"exception": type(error).__name__, "message": str(error).partition("\\n")[0]}
'''
    + ENDING
)


def count_script(program: Program, stage: str, expected: Expected, title: str) -> str:
    """The script for one of the stages in `DYNAMIC`, with a call at each of the data sizes `expected.sizes`."""
    calls = [values_of(at_data_size(program, size), "compile") for size in expected.sizes]
    return emitted(
        _SCRIPT,
        title,
        function=print_function(program),
        calls="".join(f"({''.join(f'{value}, ' for value in values)}), " for values in calls),
        expected=repr(expected.seen),
        dynamic=DYNAMIC[stage],
        stage=stage,
    )
