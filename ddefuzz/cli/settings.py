"""Defaults of options from the environment and from files. The options check the values, and `--help` shows them."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

import pydantic_settings as sources
import rich_click as click
from click.core import ParameterSource
from pydantic import BeforeValidator, Field, StrictInt, ValidationError

from ddefuzz.errors import InputError
from ddefuzz.files import read_toml
from ddefuzz.findings.url import DatabaseUrl, parse_url

PREFIX = "DDEFUZZ_"


class Variables(sources.EnvSettingsSource):
    """Returns unknown variables too, so that the model rejects them as it rejects unknown keys of files."""

    def __call__(self) -> dict[str, Any]:
        prefix, debug = PREFIX.lower(), "ddefuzz_debug"  # not the variable of an option
        names = [name for name in self.env_vars if name.startswith(prefix) and name != debug]
        return {name.removeprefix(prefix): self.env_vars[name] for name in names}


class TomlFile(sources.TomlConfigSettingsSource):
    """`ddefuzz.toml`, read with the size limit of all files."""

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        return read_toml(Path(str(file_path)))


class PyprojectFile(sources.PyprojectTomlConfigSettingsSource):
    """`[tool.ddefuzz]` of `pyproject.toml`, read with the size limit of all files."""

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        return read_toml(Path(str(file_path)))


PLACES: dict[str, type[Variables | TomlFile | PyprojectFile]] = {
    "the environment": Variables,
    "ddefuzz.toml": TomlFile,
    "[tool.ddefuzz] of pyproject.toml": PyprojectFile,
}
"""The places of settings, in order of precedence. Files are those of the current folder."""

Text = Annotated[str, Field(description="a string")]
Number = Annotated[StrictInt | str, Field(description="a number or a string")]
Words = Annotated[list[str], BeforeValidator(lambda v: v.replace(",", " ").split() if isinstance(v, str) else v)]


class Settings(sources.BaseSettings):
    """The keys. An alias is the name of the parameter that the key sets in every command that has it."""

    model_config = sources.SettingsConfigDict(
        extra="forbid",
        env_prefix=PREFIX,
        env_ignore_empty=True,
        toml_file="ddefuzz.toml",
        pyproject_toml_table_header=("tool", "ddefuzz"),
    )

    db: Text = ""
    jobs: Number = ""
    profile: Text = ""
    seed: Number = ""
    budget: Text = ""
    stage: Words = Field(default=[], serialization_alias="stages", description="a list of strings")
    semantics: Words = Field(default=[], serialization_alias="mechanisms", description="a list of strings")
    fail_on: Text = ""
    known: Text = Field(default="", serialization_alias="known_file", description="a string")

    @classmethod
    def settings_customise_sources(cls, *_: Any, **__: Any) -> tuple[sources.PydanticBaseSettingsSource, ...]:
        return tuple(map(_source, PLACES))


def read() -> dict[str, Any]:
    """The settings by parameter. Raises InputError for invalid TOML, an unknown key, or a value of the wrong type."""
    try:
        values = Settings().model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
    else:
        return values | {name: _url(name, str(value)) for name, value in values.items() if name == "db"}
    place, name = _found(key)
    if key in Settings.model_fields:
        expected = Settings.model_fields[key].description
        value = _source(place)()[key]
        secret = key == "db" and not isinstance(value, int | float)  # a list of URLs, with passwords
        found = f"a {type(value).__name__}" if secret else repr(value)
        raise InputError(f"{place}: found {name} = {found}, expected {expected}")
    known = [_name(one, place) for one in Settings.model_fields]
    near = "".join(f"did you mean {_name(one, place)!r}? " for one in get_close_matches(key, Settings.model_fields, 1))
    raise InputError(f"{place}: found the unknown key {name!r}, {near}expected one of {', '.join(known)}")


def _url(key: str, text: str) -> DatabaseUrl:
    try:
        return parse_url(text)
    except InputError as error:
        place, name = _found(key)
        raise InputError(f"{place}: {name}: {error}") from error


def default_map(command: click.Command, found: dict[str, Any]) -> dict[str, Any]:
    """Click's `default_map` of a command and, for a group, of its commands."""
    commands = command.commands if isinstance(command, click.Group) else {}
    return found | {name: default_map(one, found) for name, one in commands.items()}


def origin(context: click.Context, parameter: click.Parameter) -> str:
    """The place of a wrong value that was not typed: ` (jobs in ddefuzz.toml)`."""
    typed = context.get_parameter_source(parameter.name or "") not in (None, ParameterSource.DEFAULT_MAP)
    keys = {field.serialization_alias or key: key for key, field in Settings.model_fields.items()}
    place, name = _found(keys.get(parameter.name or "", ""))
    return f" ({name} in {place})" if place and not typed else ""


def _found(key: str) -> tuple[str, str]:
    """The first place that has a key, and the name of the key there."""
    place = next((place for place in PLACES if key in _source(place)()), "")
    return place, _name(key, place)


def _name(key: str, place: str) -> str:
    return f"{PREFIX}{key.upper()}" if place == "the environment" else key


def _source(place: str) -> sources.PydanticBaseSettingsSource:
    try:
        return PLACES[place](Settings)
    except (OSError, ValueError, AttributeError) as error:  # AttributeError: [tool.ddefuzz] is no table
        raise InputError(f"{place}: found an unreadable file ({error}), expected a table in TOML") from error
