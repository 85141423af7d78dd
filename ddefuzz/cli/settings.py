"""Defaults of options from the environment and from files. The options check the values, `--help` shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import rich_click as click
from click.core import ParameterSource

from ddefuzz.errors import InputError
from ddefuzz.files import is_there, read_toml
from ddefuzz.findings.url import parse_url

PREFIX = "DDEFUZZ_"
ENVIRONMENT = "the environment"


LIST = Annotated[list[str], msgspec.Meta(min_length=1)]


class Key(NamedTuple):
    """The parameter that a key sets in every command that has it, the type of its value, and what that is called."""

    parameter: str
    type_: Any = str
    expected: str = "a string"


KEYS: dict[str, Key] = {
    "db": Key("db"),
    "jobs": Key("jobs", int | str, "a number or a string"),
    "profile": Key("profile"),
    "seed": Key("seed", int | str, "a number or a string"),
    "budget": Key("budget"),
    "stage": Key("stages", LIST, "a list of strings"),
    "semantics": Key("semantics", LIST, "a list of strings"),
    "fail_on": Key("fail_on"),
    "known": Key("known_files", str | LIST, "a string or a list of strings"),
    "check.targets": Key("targets", LIST, "a list of strings"),
    "check.accepted": Key("accepted"),
    "ci.hook": Key("hook"),
    "serve.filters": Key("filters", LIST, "a list of strings"),
}
"""The keys. Those with a dot are in a table of that name."""


def _variables() -> Mapping[str, Any]:
    names = [name for name in os.environ if name.startswith(PREFIX) and name != f"{PREFIX}DEBUG"]
    of = {_name(name, ENVIRONMENT): name for name in KEYS}
    return {of.get(name, name.removeprefix(PREFIX).lower()): os.environ[name] for name in names if os.environ[name]}


def _file() -> Mapping[str, Any]:
    path = Path("ddefuzz.toml")
    return read_toml(path) if is_there(path) else {}


def _pyproject() -> Mapping[str, Any]:
    path = Path("pyproject.toml")
    tools = read_toml(path).get("tool", {}) if is_there(path) else {}
    return msgspec.convert(tools.get("ddefuzz", {}), dict[str, Any])


PLACES: dict[str, Callable[[], Mapping[str, Any]]] = {
    ENVIRONMENT: _variables,
    "ddefuzz.toml": _file,
    "[tool.ddefuzz] of pyproject.toml": _pyproject,
}
"""The places of settings, in order of precedence. Files are those of the current folder."""


def read() -> dict[str, Any]:
    """The settings by parameter. Raises InputError for invalid TOML, an unknown key, or a value of the wrong type."""
    return {
        key.parameter if (key := KEYS.get(name)) else name: _checked(name, place, value)
        for name, (place, value) in _settings().items()
    }


def texts() -> list[str]:
    """Every text in the places of settings, keys too, also where it is no setting. A message may repeat any of them."""
    every: list[str] = []
    for values in PLACES.values():
        with suppress(OSError, ValueError, AttributeError, InputError):
            every.extend(_texts_in(values()))
    return every


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield from (str(key), *_texts_in(inner))
        case list():
            for inner in value:
                yield from _texts_in(inner)


def _settings() -> dict[str, tuple[str, Any]]:
    """Each key with the first place that has it, and the value there."""
    return {name: (place, value) for place in reversed(PLACES) for name, value in _values(place).items()}


def _checked(name: str, place: str, value: Any) -> Any:
    shown = _name(name, place)
    if name not in KEYS:
        known = [_name(key, place) for key in KEYS]
        near = "".join(f"did you mean {_name(key, place)!r}? " for key in get_close_matches(name, KEYS, 1))
        raise InputError(f"{place}: found the unknown key {shown!r}, {near}expected one of {', '.join(known)}")
    if KEYS[name].type_ == LIST and isinstance(value, str):
        value = value.replace(",", " ").split()
    if name == "known" and isinstance(value, str):
        value = [value]
    try:
        msgspec.convert(value, KEYS[name].type_)
        return parse_url(value) if name == "db" else value
    except msgspec.ValidationError:
        secret = name == "db" and not isinstance(value, int | float)  # a list of URLs, with passwords
        shown_value = f"a {type(value).__name__}" if secret else repr(value)
        raise InputError(f"{place}: found {shown} = {shown_value}, expected {KEYS[name].expected}") from None
    except InputError as error:
        raise InputError(f"{place}: {shown}: {error}") from error


def default_map(command: click.Command, given: dict[str, Any]) -> dict[str, Any]:
    """Click's `default_map` of a command and, for a group, of its commands."""
    commands = command.commands if isinstance(command, click.Group) else {}
    return given | {name: default_map(one, given) for name, one in commands.items()}


def origin(context: click.Context, parameter: click.Parameter) -> str:
    """The place of a wrong value that was not typed: ` (jobs in ddefuzz.toml)`."""
    typed = context.get_parameter_source(parameter.name or "") not in (None, ParameterSource.DEFAULT_MAP)
    name = next((name for name, key in KEYS.items() if key.parameter == parameter.name), "")
    place, _ = _settings().get(name, ("", None))
    return f" ({_name(name, place)} in {place})" if place and not typed else ""


def _name(name: str, place: str) -> str:
    return f"{PREFIX}{name.upper().replace('.', '_')}" if place == ENVIRONMENT else name


TABLES = {name.partition(".")[0] for name in KEYS if "." in name}
"""The keys whose values are tables."""


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, those of tables with the table's name and a dot."""
    flat = dict[str, Any]()
    for name, value in values.items():
        if name in TABLES and isinstance(value, Mapping):
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return flat


def _values(place: str) -> Mapping[str, Any]:
    try:
        return _flat(PLACES[place]())
    except (OSError, ValueError, AttributeError) as error:  # AttributeError: [tool] is no table
        raise InputError(f"{place}: found an unreadable file ({error}), expected a table in TOML") from error
