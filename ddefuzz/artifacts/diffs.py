"""Unified diffs of the graphs of two stages, two semantics or two versions of torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff

from ddefuzz.artifacts.graph import normalized
from ddefuzz.artifacts.model import Artifacts, Diff, Made
from ddefuzz.execute.protocol import Stage


def between_stages(made: tuple[Made, ...], first: Stage, second: Stage) -> Iterator[Diff]:
    """The graphs of two stages, under each semantics that both have."""
    for one in made:
        for other in made:
            if (one.stage, other.stage) == (first, second) and one.semantics == other.semantics:
                suffix = f" ({one.semantics})" if len({each.semantics for each in made}) > 1 else ""
                yield diff_of(f"{first} to {second}{suffix}", one, other, first, second)


def between_semantics(made: tuple[Made, ...]) -> Iterator[Diff]:
    """The graph of each stage under the first semantics, and under each of the others."""
    for at, one in enumerate(made):
        if any(before.stage == one.stage for before in made[:at]):
            continue
        for other in made[at + 1 :]:
            if other.stage == one.stage:
                name = f"{one.stage}: {one.semantics} to {other.semantics}"
                yield diff_of(name, one, other, one.semantics, other.semantics)


def between_versions(here: Artifacts, name: str, there: Artifacts) -> Iterator[Diff]:
    """The graph of each stage here, and under another torch."""
    for one in here.stages:
        for other in there.stages:
            if (one.stage, one.semantics) == (other.stage, other.semantics):
                title = f"{one.stage}: torch {here.torch} to {name} ({there.torch})"
                yield diff_of(title, one, other, here.torch, there.torch)


def diff_of(name: str, one: Made, other: Made, first: str, second: str) -> Diff:
    """The diff of two graphs with positions for names, or why there is none."""
    file = f"diffs/{re.sub(r'[^a-zA-Z0-9.+-]+', '-', name).strip('-')}.diff"
    missing = [said for made, said in ((one, first), (other, second)) if made.graph is None]
    if one.graph is None or other.graph is None:
        return Diff(name, file, "", f"no graph: {', '.join(missing)}")
    lines = unified_diff(
        normalized(one.graph.text).splitlines(keepends=True),
        normalized(other.graph.text).splitlines(keepends=True),
        first,
        second,
    )
    text = "".join(lines)
    return Diff(name, file, text, "" if text else "the same graph")
