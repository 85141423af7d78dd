"""Imports go one way: packages in pipeline order, no cycle between modules, no import hidden in a function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ddefuzz"

PACKAGES = (
    "errors",
    "files",
    "internal",
    "selfcheck",
    "formats",
    "program",
    "ops",
    "instrument",
    "speckey",
    "keycheck",
    "generate",
    "execute",
    "export_time",
    "classify",
    "oracles",
    "artifacts",
    "coverage",
    "answers",
    "minimize",
    "control",
    "findings",
    "repro",
    "view",
    "advice",
    "versions",
    "report",
    "study",
    "campaign",
    "sweep",
    "recompile",
    "web",
    "bench",
    "pytest_plugin",
    "cli",
    "__main__",
)
"""Upstream first: a package imports only from itself and the ones before it."""

LONGEST_MODULE = 600


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """The ddefuzz modules that the module at `path` imports, each with the statement that does it."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                yield from ((alias.name, node) for alias in names if alias.name.split(".")[0] == "ddefuzz")
            case ast.ImportFrom(module=str(module), names=names, level=0) if module.split(".")[0] == "ddefuzz":
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    yield (whole if whole in MODULES else module), node


def test_every_package_is_in_the_order() -> None:
    assert {package for package in map(package_of, MODULES) if package is not None} <= set(PACKAGES)


def test_the_documentation_lists_the_packages_in_this_order() -> None:
    section = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Packages")[2]
    listed = re.findall(r"^ {4}(\w+(?:, \w+)*)(?:  |$)", section.partition("`tests/test_layering.py`")[0], re.MULTILINE)
    assert tuple(name for names in listed for name in names.split(", ")) == PACKAGES


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downstream_only(module: str) -> None:
    package = package_of(module)
    if package is None:
        return
    wrong = [
        f"{module} imports {target}"
        for target, _ in imports(MODULES[module])
        if (other := package_of(target)) is not None and PACKAGES.index(other) > PACKAGES.index(package)
    ]
    assert not wrong


def test_no_module_is_in_an_import_cycle() -> None:
    graph = {module: {target for target, _ in imports(path)} for module, path in MODULES.items()}
    settled: set[str] = set()
    while ready := {module for module in graph if module not in settled and graph[module] - {module} <= settled}:
        settled |= ready
    assert set(graph) == settled


@pytest.mark.parametrize("module", [module for module in MODULES if package_of(module) not in {"cli", "pytest_plugin"}])
def test_no_import_of_ours_hides_in_a_function(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text())
    inner = [
        ast.unparse(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddefuzz")
    ]
    assert not inner


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_within_one_idea(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("module", MODULES)
def test_modules_say_their_purpose(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module].read_text()))
