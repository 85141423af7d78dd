"""Defaults of options from the environment and from files: a setting is what an option is when it is not typed.

Command line, then `DDEFUZZ_*`, then `ddefuzz.toml`, then `[tool.ddefuzz]` of `pyproject.toml`, both of the current
folder, then the option's own default. The option itself checks the value: there is no second definition of what is
allowed, and `--help` shows the default that holds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import rich_click as click
from click.core import ParameterSource

from ddefuzz.errors import InputError

PREFIX = "DDEFUZZ_"

NOT_SETTINGS = frozenset({"DDEFUZZ_DEBUG"})

KEYS: MappingProxyType[str, str] = MappingProxyType(
    {
        "db": "db",
        "jobs": "jobs",
        "profile": "profile",
        "seed": "seed",
        "budget": "budget",
        "stage": "stages",
        "semantics": "mechanisms",
        "fail_on": "fail_on",
    }
)
"""Key → the parameter that it is the default of, in every command that has it."""

LISTS = frozenset({"stages", "mechanisms"})
NUMBERS = frozenset({"jobs", "seed"})


class Setting(NamedTuple):
    """A value, and where it was found: `jobs in ddefuzz.toml`."""

    value: str | int | list[str]
    origin: str


def read(folder: Path, environment: Mapping[str, str]) -> dict[str, Setting]:
    """Parameter → setting. Raises InputError for a file that is no TOML, an unknown key or a value of no option."""
    found: dict[str, Setting] = {}
    pyproject = _toml(folder / "pyproject.toml").get("tool", {}).get("ddefuzz", {})
    for place, values in (
        ("[tool.ddefuzz] of pyproject.toml", pyproject),
        ("ddefuzz.toml", _toml(folder / "ddefuzz.toml")),
        ("the environment", _of_environment(environment)),
    ):
        for key, value in values.items():
            parameter = KEYS[_known(key, place)]
            found[parameter] = Setting(_checked(key, value, place, parameter), f"{_shown(key, place)} in {place}")
    return found


def default_map(command: click.Command, found: Mapping[str, Setting]) -> dict[str, Any]:
    """Click's `default_map`: of a command the settings of its options, of a group that of each of its commands."""
    if isinstance(command, click.Group):
        return {name: default_map(one, found) for name, one in command.commands.items()}
    return {one.name: found[one.name].value for one in command.params if one.name in found}


def origin(context: click.Context, parameter: click.Parameter) -> str:
    """Where the wrong value of a parameter came from, if it was not typed: ` (jobs in ddefuzz.toml)`."""
    found: Mapping[str, Setting] = context.obj or {}
    name = parameter.name or ""
    typed = context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT_MAP)
    return f" ({found[name].origin})" if name in found and not typed else ""


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path.name}: found a file that cannot be read ({error}), expected TOML") from error


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in sorted(environment) if name.startswith(PREFIX) and name not in NOT_SETTINGS)
    return {name.removeprefix(PREFIX).lower(): environment[name] for name in names if environment[name]}


def _shown(key: str, place: str) -> str:
    return f"{PREFIX}{key.upper()}" if place == "the environment" else key


def _known(key: str, place: str) -> str:
    if key in KEYS:
        return key
    near = get_close_matches(key, KEYS, 1)
    known = ", ".join(_shown(name, place) for name in KEYS)
    hint = f"did you mean {_shown(near[0], place)!r}? " if near else ""
    raise InputError(f"{place}: found the unknown key {_shown(key, place)!r}, {hint}expected one of {known}")


def _checked(key: str, value: object, place: str, parameter: str) -> str | int | list[str]:
    if parameter in LISTS:
        words = value.replace(",", " ").split() if isinstance(value, str) else value
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return words
        raise InputError(f"{place}: found {key} = {value!r}, expected a list of strings")
    if isinstance(value, str) or (parameter in NUMBERS and isinstance(value, int) and not isinstance(value, bool)):
        return value
    expected = "a number or a string" if parameter in NUMBERS else "a string"
    raise InputError(f"{place}: found {key} = {value!r}, expected {expected}")
