"""A wrapper around a callable that states promises about its inputs, and the edit that makes a file use it."""

from __future__ import annotations

import ast

from ddefuzz.checking.change_text import replaced
from ddefuzz.checking.changes import Described

CLASS = "Promised"


def wrapper(described: Described, conditions: tuple[str, ...]) -> str:
    """The source of a module that checks the conditions and calls the callable. It takes the example's parameters."""
    parameters = ", ".join(["self", *described.positional, *(["*", *described.keywords] if described.keywords else [])])
    passed = ", ".join([*described.positional, *(f"{name}={name}" for name in described.keywords)])
    checks = "".join(f"        torch._check({condition})\n" for condition in conditions)
    return (
        f"class {CLASS}(torch.nn.Module):\n"
        '    """A model with what is promised about its inputs."""\n\n'
        "    def __init__(self, model):\n"
        "        super().__init__()\n"
        "        self.model = model\n\n"
        f"    def forward({parameters}):\n"
        f"{checks}"
        f"        return self.model({passed})\n"
    )


def in_use(source: str, name: str, text: str) -> str | None:
    """The source of a file in which `name` is wrapped: a factory's callable, or a value assigned to the name.

    None if the file makes it in another way.
    """
    tree = ast.parse(source)
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=found) if found == name:
                made = _returned(node)
            case ast.Assign(targets=[ast.Name(found)], value=made_by) if found == name:
                made = made_by
            case _:
                continue
        if made is None:
            return None
        wrapped = replaced(source, made, f"{CLASS}({ast.get_source_segment(source, made)})")
        lines = wrapped.splitlines(keepends=True)
        at = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
        before = "" if "\nimport torch\n" in f"\n{source}" else "import torch\n\n\n"
        return "".join([*lines[:at], before, text, "\n\n", *lines[at:]])
    return None


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    """The callable among what a factory returns."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    match returns[-1].value if returns else None:
        case ast.Tuple([first, *_]):
            return first
        case ast.Dict(keys, values):
            found = [
                value
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "callable"
            ]
            return found[0] if found else None
        case ast.Call(func=ast.Name("dict"), keywords=given):
            return next((one.value for one in given if one.arg == "callable"), None)
        case _:
            return None
