"""A command from the signature of a function: each parameter is declared once, by its type and its default.

`jobs: int = option("Number of workers.", default=1)` is the option `--jobs` with a number. The type says what is read:
`bool` is a flag, a `Literal` has the values to choose from, and an option with a tuple can be repeated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import isfunction, signature
from itertools import combinations
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import rich_click as click
from click import get_current_context

from ddefuzz.errors import InputError
from ddefuzz.escape import whole_number
from ddefuzz.execute.limit import check_seconds
from ddefuzz.files import check_writable, is_folder, is_there, real_path
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
            _check_places(get_current_context())
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
    help_text: str,
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
        # click takes a default of None for a value, so that a required option would never be missing.
        defaults: dict[str, Any] = {} if required else {"default": False if is_flag else default}
        return click.option(
            *(*word.split(), parameter),
            type=kind,
            metavar=metavar or (word[2:].upper() if is_many else None),
            **defaults,
            show_default=not is_flag and default not in (None, "", ()) and not callable(default),
            is_flag=is_flag or None,
            multiple=is_many,
            required=required,
            help=f"{help_text} Can be repeated." if is_many else help_text,
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
    return type_ or {Path: PathType(), DatabaseUrl: URL}.get(hint, hint)


class ValueType(click.ParamType[Any]):
    """What a function reads from a value that is typed or set. Its `InputError` is a usage error."""

    def __init__(self, name: str, read: Callable[[Any], Any], *, is_written: bool = False) -> None:
        self.name = name
        self.read = read
        self.is_written = is_written

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the function makes of the value."""
        try:
            return self.read(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


class PathType(click.Path):
    """A path, with what click tests of it. A URL of a database is none: as a path its password would be shown."""

    def __init__(self, **tests: bool) -> None:
        super().__init__(**tests, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of what was typed."""
        try:
            return super().convert(_path(value), param, ctx)
        except InputError as error:
            self.fail(str(error), param, ctx)


def _path(value: object) -> Path:
    text = str(value)
    if not text or "://" in text:
        raise InputError(f"found {'a URL' if text else repr(text)}, expected a path")
    return Path(text)


def _jobs(value: object) -> int:
    """A number of processes, or `auto`: one for each core that this process may use."""
    if value == "auto":
        return available_cores()
    if number := whole_number(str(value)):
        return number
    raise InputError(f"found {str(value)!r}, expected a number of processes or auto")


def _seconds(value: object, *, none: bool = False) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        raise InputError(f"found {value!r}, expected seconds") from None
    check_seconds("", seconds, none=none)
    return seconds


def _url(value: object, *, paths: bool = False) -> DatabaseUrl:
    """A URL with `***`, as ddefuzz shows it, means the one in the settings if that is shown so."""
    context, text = get_current_context(silent=True), str(value)
    configured = context.lookup_default("db") if context is not None else None
    if isinstance(value, DatabaseUrl):
        url = value
    elif isinstance(configured, DatabaseUrl) and text == str(configured):
        url = configured
    else:
        is_path = paths and "://" not in text and (is_there(Path(text)) or not re.search(":.*@", text, re.DOTALL))
        url = parse_url(f"sqlite:///{text}" if is_path else text)
    if url.is_in_memory():
        raise InputError(f"found {url}, a database in memory, which ends with the command, expected sqlite:///PATH")
    return url


def output_file(*names: str) -> ValueType:
    """A file that is written in the end: `FILE`, or `FORMAT=PATH` with one of the formats.

    A place that cannot be is an error at once.
    """

    def read(value: object) -> tuple[str, Path] | Path:
        name, separator, path = str(value).partition("=") if names else ("", "", str(value))
        if names and not (separator and path):
            raise InputError(f"found {value!r}, expected FORMAT=PATH")
        if names and name not in names:
            raise InputError(f"found the format {name!r}, expected one of {', '.join(names)}")
        place = _path(path)
        check_writable(place)
        return (name, place) if names else place

    return ValueType("FORMAT=PATH" if names else "FILE", read, is_written=True)


PROCESSES = ValueType("N|auto", _jobs)
SECONDS = ValueType("SECONDS", _seconds)
SECONDS_OR_NONE = ValueType("SECONDS", partial(_seconds, none=True))
URL = ValueType("URL", _url)
URL_OR_PATH = ValueType("URL", partial(_url, paths=True))


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


READ_BY_ALL = ("ddefuzz.toml", "pyproject.toml", "findings/rules.toml")
"""The files of the current folder that every command reads."""

CASE_ENDS = frozenset({".gz", ".py", ".toml"})
"""How the names of the files end that a command reads in a folder."""


def _check_places(context: click.Context) -> None:
    """Raise click's error if two files that the command writes in the end are one, or one is a file that it reads."""
    written, read = list[tuple[str, Path]](), [("settings", Path(name)) for name in READ_BY_ALL]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        word = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.make_metavar(context)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(parameter.type, ValueType) and parameter.type.is_written:
                place = item[1] if isinstance(item, tuple) else item
                written += [] if place is None else [(word, place)]
            else:
                read += [(word, path) for path in _files_of(item)]
    for (name, first), (other, second) in combinations(written, 2):
        if real_path(first) == real_path(second):
            names = name if name == other else f"{name} and {other}"
            raise click.UsageError(f"found {names} with {first} and {second}, expected a file of its own for each")
    for name, place in written:
        for word, path in read:
            if _is_of(real_path(place), real_path(path)):
                raise click.UsageError(
                    f"found {name} with {place}, which the command reads ({word}), expected another file"
                )


def _is_of(place: Path, read: Path) -> bool:
    """Whether a file is the one that is read, or one of those in the folder that is read."""
    if place == read:
        return True
    return place.suffix in CASE_ENDS and place.is_relative_to(read) and is_there(place) and is_folder(read)


def _files_of(value: object) -> list[Path]:
    """The files that a value may name: a path, `FILE:NAME`, `NAME=FILE`, the file of a database and those beside it."""
    match value:
        case DatabaseUrl():
            path = value.path()
            places = [] if path is None else [path, real_path(path)]  # SQLite follows a link, then adds the ends
            return [place.with_name(place.name + end) for place in places for end in ("", "-wal", "-shm", "-journal")]
        case Path() | str():
            text = str(value)
            return [Path(one) for one in (text, text.rpartition(":")[0], text.partition("=")[2]) if one]
        case _:
            return []


def formats(*names: str, files: bool = True) -> Any:
    """The options `--format` for stdout, by default the first, and `--output`. The parameter is an `Output`."""

    def declare(parameter: str, hint: Any) -> Decorator:
        del parameter, hint
        help_text = f"The format of stdout: {', '.join(names)}."
        for_stdout = option(help_text, "--format", default=names[0], type_=names, metavar="FORMAT")("format_", str)
        kind = output_file(*names)
        for_files = option("Also write this format to a file.", "--output", type_=kind, metavar=kind.name)
        return lambda function: for_stdout(for_files("outputs", tuple[Any, ...])(function) if files else function)

    return declare
