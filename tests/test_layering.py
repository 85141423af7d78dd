"""Imports follow a declared map of packages, no module is in a cycle, and no import hides in a function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.trees import trees

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ddefuzz"

ALLOWED = {
    "program": "",
    "ops": "program",
    "instrument": "",
    "keys": "program instrument",
    "generate": "program ops instrument",
    "execute": "program ops instrument",
    "classify": "program instrument execute",
    "oracles": "program ops instrument keys execute classify",
    "minimize": "program ops",
    "answers": "program instrument execute classify oracles minimize",
    "findings": "instrument execute classify oracles answers",
    "repro": "program execute classify oracles findings",
    "fixes": "program instrument generate execute classify oracles answers findings repro",
    "show": "classify oracles answers findings repro",
    "artifacts": "instrument execute classify oracles show",
    "checking": "program instrument execute classify oracles answers findings show",
    "custom_ops": "instrument execute findings show checking",
    "cost": "program ops instrument generate execute oracles show artifacts checking",
    "campaign": "program ops instrument generate execute classify oracles minimize answers findings show",
    "versions": "generate execute classify oracles findings repro show campaign",
    "fleet": "generate findings show campaign versions",
    "sweep": "program ops instrument generate execute classify oracles findings show artifacts campaign",
    "web": "oracles findings fixes repro show campaign versions sweep",
    "cli": (
        "program ops instrument keys generate execute classify oracles answers findings repro show artifacts "
        "checking custom_ops campaign cost versions fleet sweep web fixes"
    ),
}
"""What each package imports from. Modules beside the packages (`errors`, `files` …) are for all.

An entry is deleted as soon as no import needs it (`test_the_map_has_no_arrow_too_many`).
"""

TOPMOST = {
    "ddefuzz.__main__",
    "ddefuzz.api",
    "ddefuzz.pytest_items",
    "ddefuzz.pytest_plugin",
    "ddefuzz.site_hook",
    "ddefuzz.strategies",
}
"""Modules beside the packages that are above them all."""

LONGEST_MODULE = 600
"""Lines. A longer module has more than one idea."""

HIDDEN_IMPORTS = {"cli"}
"""Packages, besides `TOPMOST`, that may import inside functions, so that what only reads does not import torch."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def by_module() -> dict[str, ast.Module]:
    return {module_of(ROOT / path): tree for path, tree in trees("ddefuzz").items()}


def package_of(module: str) -> str | None:
    """The package that a module is in; None for one beside the packages."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else None


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules of ddefuzz that a module imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] == "ddefuzz")
            case ast.ImportFrom(module=str(module), names=names, level=0) if module.split(".")[0] == "ddefuzz":
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    yield whole if whole in MODULES else module


@cache
def imported() -> dict[str, set[str]]:
    """What each module imports. `ddefuzz` itself has public names that are imported when they are used."""
    return {module: set(imports(tree)) if module != "ddefuzz" else set() for module, tree in by_module().items()}


def test_every_package_is_on_the_map() -> None:
    assert {package for package in map(package_of, MODULES) if package is not None} == set(ALLOWED)


def test_the_map_has_no_cycle() -> None:
    assert set(TopologicalSorter({package: allowed.split() for package, allowed in ALLOWED.items()}).static_order())


def test_packages_import_what_the_map_allows() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, targets in imported().items()
        for target in sorted(targets)
        if (package := package_of(module)) is not None
        and package_of(target) not in {None, package, *ALLOWED[package].split()}
    ]
    assert not wrong


def test_the_map_has_no_arrow_too_many() -> None:
    needed = {(package_of(module), package_of(target)) for module, targets in imported().items() for target in targets}
    assert not [
        f"{package} -> {other}"
        for package, allowed in ALLOWED.items()
        for other in allowed.split()
        if (package, other) not in needed
    ]


def test_modules_beside_the_packages_import_no_package() -> None:
    lower = [module for module in MODULES if package_of(module) is None and module not in {"ddefuzz", *TOPMOST}]
    assert not [f"{module} imports {target}" for module in lower for target in imported()[module] if package_of(target)]


def test_the_documentation_has_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert drawn_map() in text, f"expected this in docs/architecture.md:\n\n{drawn_map()}"


def drawn_map() -> str:
    """The map as Mermaid draws it, without the arrows that follow from others."""
    reached: dict[str, set[str]] = {}
    for package in TopologicalSorter({package: allowed.split() for package, allowed in ALLOWED.items()}).static_order():
        reached[package] = {*ALLOWED[package].split()}.union(*(reached[other] for other in ALLOWED[package].split()))
    arrows = [
        f"    {package} --> {other}"
        for package, allowed in ALLOWED.items()
        for other in allowed.split()
        if not any(other in reached[between] for between in allowed.split())
    ]
    return "\n".join(["```mermaid", "flowchart BT", *arrows, "```"])


def test_the_documentation_lists_every_package() -> None:
    section = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("In the list, ")[2]
    listed = re.findall(
        r"^ {4}(\w+(?:, \w+)*)(?:  |$)", section.partition("`tests/test_layering.py` fails")[0], re.MULTILINE
    )
    beside = {module.split(".")[1] for module in MODULES if package_of(module) is None and module != "ddefuzz"}
    assert {name for names in listed for name in names.split(", ")} == {*ALLOWED, *beside}


def test_no_module_is_in_an_import_cycle() -> None:
    settled: set[str] = set()
    while ready := {at for at, targets in imported().items() if at not in settled and targets - {at} <= settled}:
        settled |= ready
    assert set(imported()) == settled


def test_no_import_of_ours_hides_in_a_function() -> None:
    assert not [
        f"{module}: {ast.unparse(node)}"
        for module, tree in by_module().items()
        if package_of(module) not in HIDDEN_IMPORTS and module not in TOPMOST
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddefuzz")
    ]


def test_modules_stay_within_one_idea() -> None:
    paths = [*MODULES.values(), *sorted((ROOT / "ci").rglob("*.py"))]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in paths}
    assert not {path: length for path, length in lengths.items() if length > LONGEST_MODULE}


def test_modules_say_their_purpose() -> None:
    assert not [module for module, tree in by_module().items() if not ast.get_docstring(tree)]


def test_the_dashboard_parses_python_in_one_thread_at_a_time() -> None:
    reached: set[str] = set()
    ahead = [module for module in MODULES if package_of(module) == "web"]
    while ahead:
        module = ahead.pop()
        ahead += imported()[module] - reached
        reached |= {module, *imported()[module]}
    assert "ddefuzz.findings.inventory" in reached
    excepted = {"ddefuzz.syntax", "ddefuzz.repro.by_python"}  # the second is text of scripts and runs only there
    assert not [
        f"{module}: {ast.unparse(node)}"
        for module in reached - excepted
        for node in ast.walk(by_module()[module])
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "ast.parse"
    ]
