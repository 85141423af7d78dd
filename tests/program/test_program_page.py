"""The programs of docs/programs.md are programs, in the canonical form, and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddefuzz.ops.catalogue import GROUPS, parse
from ddefuzz.program.evaluate import materialize, run_steps
from ddefuzz.program.model import functions_in
from ddefuzz.program.recipes import ARRANGED, RECIPES

PAGE = (Path(__file__).parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_each_program_is_one_and_runs(text: str) -> None:
    program = parse(text, "programs.md").program
    run_steps(program, materialize(program))


def test_the_page_names_every_recipe_layout_and_placement() -> None:
    for name in (*RECIPES, *ARRANGED):
        assert re.search(rf"`{name}(\(.*?\))?`", PAGE), name


def test_the_page_shows_every_function_of_control_flow() -> None:
    rows = [row for group in ("control", "scans") for row in GROUPS[group]]
    shown = {name for text in PROGRAMS for name in functions_in(parse(text, "programs.md").program)}
    assert {row.callables[0] for row in rows} <= shown
