"""Names are nouns of the field: no module or record is named by a bare participle, and no variable says nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.trees import trees

VAGUE = {"one", "found", "said"}
"""Names of variables that are only for comprehensions and lambdas, where the line says what they hold."""

PARTICIPLE = re.compile(
    "[A-Z]?[a-z]+ed|[A-Z][a-z]+ing|(?i:row|forms|kept|seen|made|ran|drawn|written|lost|left|known|held|chosen|broken|spent)"
)
"""Words that do not say what a module or a record holds."""

NOUNS = {"feed", "Finding", "Heading", "Everything", "Meaning", "Sighting", "Planting", "Timing"}
"""Nouns that end like participles. Modules may be named by what they do (`counting`)."""

STORED = {"planted"}
"""A module whose functions are named in stored cases (`keys.planted`)."""

OF_TORCH = {"_Captured"}
"""A class whose name torch writes into graphs, so that another name changes the digests of programs."""


def ours() -> dict[Path, ast.Module]:
    return trees("ddefuzz") | trees("ci")


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return bool(PARTICIPLE.fullmatch(word)) and word not in NOUNS


def vague(node: ast.AST, *, inside: bool = False) -> Iterator[int]:
    """The lines that bind a vague name outside of comprehensions and lambdas. A field may be a key of a document."""
    match node:
        case ast.Name(name, ast.Store()) | ast.arg(name) | ast.ExceptHandler(name=name) | ast.FunctionDef(name=name):
            is_vague = name in VAGUE
        case ast.MatchAs(name=name) | ast.MatchStar(name) | ast.MatchMapping(rest=name):
            is_vague = name in VAGUE
        case ast.alias(name, asname):
            is_vague = (asname or name) in VAGUE
        case _:
            is_vague = False
    if is_vague and not inside:
        yield getattr(node, "lineno", 0)
    scopes = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign):
            continue
        yield from vague(child, inside=inside or isinstance(node, scopes))


def test_modules_are_named_by_what_they_hold() -> None:
    assert not [str(path) for path in ours() if is_participle(path.stem) and path.stem not in STORED]


def test_records_are_named_by_what_they_hold() -> None:
    assert not [
        f"{path}:{node.lineno}: {node.name}"
        for path, tree in ours().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.islower()
        if is_participle(node.name) and node.name not in OF_TORCH
    ]


def test_variables_say_what_they_hold() -> None:
    assert not [f"{path}:{line}" for path, tree in ours().items() for line in vague(tree)]
