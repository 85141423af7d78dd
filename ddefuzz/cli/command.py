"""A command from the signature of a function: each parameter is declared once, by its type and its default.

`jobs: int = option("Number of workers.", default=1)` is the option `--jobs` with a number. The type says what is read:
`bool` is a flag, a `Literal` has the values to choose from, and an option with a tuple can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import isfunction, signature
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import rich_click as click

from ddefuzz.errors import InputError
from ddefuzz.execute.limit import check_seconds
from ddefuzz.files import check_writable
from ddefuzz.findings.url import DatabaseUrl, parse_url

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def click_command(
    name: str,
    group: click.Group | None = None,
    help: str | None = None,  # noqa: A002 as click names it
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function, whose parameters have what `option`, `argument` or `formats` returns as default."""

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def call(**given: Any) -> None:
            if "format_" in given:
                given["output"] = Output(given.pop("format_"), given.pop("outputs", ()))
            function(**given)

        decorated: Any = call
        types = get_type_hints(function)
        defaults: dict[str, Any] = {one.name: one.default for one in signature(function).parameters.values()}
        for parameter in reversed([one for one, default in defaults.items() if isfunction(default)]):
            decorated = defaults[parameter](parameter, types[parameter])(decorated)
        command: click.Command = click.command(name, help=help)(decorated)
        if group is not None:
            group.add_command(command)
        return command

    return make


def option(
    said: str,
    name: str = "",
    *,
    default: Any = None,
    type_: Any = None,
    metavar: str = "",
    many: bool = True,
    required: bool = False,
) -> Any:
    """An option. Its name is that of the parameter, in the singular if it can be repeated. A default is shown.

    `type_` is what the type of the parameter does not say; a tuple of texts has the values to choose from.
    """

    def declare(parameter: str, hint: Any) -> Decorator:
        of, is_many = _element(hint)
        is_many &= many
        word = name or "--" + (parameter.removesuffix("s") if is_many else parameter).rstrip("_").replace("_", "-")
        kind = _click_type(of, type_)
        is_flag = kind is bool and "/" not in word
        return click.option(
            *(*word.split(), parameter),
            type=kind,
            metavar=metavar or (word[2:].upper() if is_many else None),
            default=False if is_flag else default,
            show_default=not is_flag and default not in (None, "", ()) and not callable(default),
            is_flag=is_flag or None,
            multiple=is_many,
            required=required,
            help=f"{said} Can be repeated." if is_many else said,
        )

    return declare


def argument(metavar: str = "", *, default: Any = None, type_: Any = None) -> Any:
    """An argument. It is optional with a default, a type that may be None, or a metavar such as `[PATH]...`."""

    def declare(parameter: str, hint: Any) -> Decorator:
        of, is_many = _element(hint)
        needed = default is None and NoneType not in get_args(hint) and not metavar.startswith("[")
        more = {"nargs": -1} if is_many else {} if needed else {"default": default}
        kind = _click_type(of, type_)
        return click.argument(parameter, type=kind, metavar=metavar or None, required=needed, **more)

    return declare


def typed_words(command: click.Command, values: Mapping[str, Any]) -> list[str]:
    """The words that give the parameters of a command these values. A default needs none."""
    options = {one.name: one for one in command.params}
    words: list[str] = []
    for name, value in values.items():
        option = options[name]
        several = tuple(value) if option.multiple else (value,)
        if value is None or (several if option.multiple else value) == option.default:
            continue
        if isinstance(value, bool):
            words.append((option.opts if value else option.secondary_opts)[0])
        else:
            words += [word for one in several for word in (option.opts[0], str(one))]
    return words


def _element(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there are many."""
    (of, *_), is_many = get_args(hint) or (hint,), get_origin(hint) is tuple
    return (of, is_many) if is_many or NoneType in get_args(hint) else (hint, False)


def _click_type(hint: Any, type_: Any) -> Any:
    if get_origin(hint) is Literal and type_ is None:
        type_ = get_args(hint)
    if isinstance(type_, tuple) and isinstance(type_[0], str):
        return click.Choice(type_)
    return type_ or {Path: click.Path(path_type=Path), DatabaseUrl: URL}.get(hint, hint)


class Jobs(click.ParamType[int]):
    """A number of processes, or `auto`: one for each core that this process may use."""

    name = "N|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Anything else is a usage error."""
        if isinstance(value, int):
            return value
        text = str(value)
        if text == "auto":
            return available_cores()
        if text.isdigit() and int(text) > 0:
            return int(text)
        self.fail(f"found {text!r}, expected a number of processes or auto", param, ctx)


class Seconds(click.ParamType[float]):
    """A time in seconds, and also 0 if `none` is set."""

    name = "SECONDS"

    def __init__(self, *, none: bool = False) -> None:
        self.none = none

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds. Anything else is a usage error."""
        try:
            seconds = float(str(value))
            check_seconds("", seconds, none=self.none)
        except ValueError:
            self.fail(f"found {value!r}, expected seconds", param, ctx)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return seconds


class UrlType(click.ParamType[DatabaseUrl]):
    """The URL of a database, or the path of an SQLite database if `paths` is set.

    A URL with `***`, as ddefuzz shows it, means the one in the settings if that is shown so.
    """

    name = "URL"

    def __init__(self, *, paths: bool = False) -> None:
        self.paths = paths

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> DatabaseUrl:
        """Parse the URL. A wrong one is a usage error, which does not repeat a password."""
        if isinstance(value, DatabaseUrl):
            return value
        text = str(value)
        configured = ctx.lookup_default("db") if ctx is not None else None
        if isinstance(configured, DatabaseUrl) and text == str(configured):
            return configured
        try:
            return parse_url(f"sqlite:///{text}" if self.paths and "://" not in text else text)
        except InputError as error:
            self.fail(str(error), param, ctx)


SECONDS = Seconds()
SECONDS_OR_NONE = Seconds(none=True)
URL = UrlType()
URL_OR_PATH = UrlType(paths=True)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Output(NamedTuple):
    """What was typed: the format of stdout, and the files with theirs."""

    format: str
    files: tuple[tuple[str, Path], ...] = ()

    @property
    def formats(self) -> set[str]:
        """All formats that are written."""
        return {self.format, *(name for name, _ in self.files)}


class OutputFile(click.ParamType[Any]):
    """The type of an option for a file that is written in the end: `FILE`, or `FORMAT=PATH` with one of the formats.

    A place that cannot be is an error at once.
    """

    def __init__(self, *formats: str) -> None:
        self.formats = formats
        self.name = "FORMAT=PATH" if formats else "FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split and check the value. A wrong value is a usage error."""
        name, separator, path = str(value).partition("=") if self.formats else ("", "", str(value))
        if self.formats and not (separator and path):
            self.fail(f"found {value!r}, expected FORMAT=PATH", param, ctx)
        if self.formats and name not in self.formats:
            self.fail(f"found the format {name!r}, expected one of {', '.join(self.formats)}", param, ctx)
        try:
            check_writable(Path(path))
        except InputError as error:
            self.fail(str(error), param, ctx)
        return (name, Path(path)) if self.formats else Path(path)


def formats(*names: str, files: bool = True) -> Any:
    """The options `--format` for stdout, by default the first, and `--output`. The parameter is an `Output`."""

    def declare(parameter: str, hint: Any) -> Decorator:
        del parameter, hint
        said = f"The format of stdout: {', '.join(names)}."
        for_stdout = option(said, "--format", default=names[0], type_=names, metavar="FORMAT")("format_", str)
        kind = OutputFile(*names)
        for_files = option("Also write this format to a file.", "--output", type_=kind, metavar=kind.name)
        return lambda function: for_stdout(for_files("outputs", tuple[Any, ...])(function) if files else function)

    return declare
