"""The list of passes, in the order in which they are tried: those that remove most come first.

A pass is a pure generator of smaller candidates. It runs nothing, and does not repeat itself; both are the driver's
task. To add a pass, write the function and list it here. `tests/quality` states what the minimizer must achieve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ddefuzz.minimize.arguments import (
    drop_arguments,
    hoist,
    lower_numbers,
    public_functions,
    sensible_arguments,
    share_names,
    shorten,
    to_constants,
)
from ddefuzz.minimize.facts import Facts
from ddefuzz.minimize.inputs import (
    back_dims,
    drop_dims,
    fit_outputs,
    plain_inputs,
    plain_values,
    shrink_sizes,
    tie_sizes,
)
from ddefuzz.minimize.structure import cut, drop_dead, drop_steps, inline, isolate, isolate_any, promote, return_less
from ddefuzz.program.model import Program

Pass: TypeAlias = Callable[[Program, Facts], Iterator[Program]]

PASSES: tuple[Pass, ...] = (
    isolate,
    promote,
    isolate_any,
    return_less,
    drop_dead,
    cut,
    drop_steps,
    plain_inputs,
    drop_arguments,
    to_constants,
    hoist,
    public_functions,
    sensible_arguments,
    fit_outputs,
    drop_dims,
    tie_sizes,
    shrink_sizes,
    share_names,
    back_dims,
    shorten,
    lower_numbers,
    plain_values,
    inline,
)
