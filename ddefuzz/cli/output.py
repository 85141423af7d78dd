"""Progress on stderr, what writes stdout and the files of `--output`, and the commands that pages print."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from threading import Event as Flag
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import rich_click as click
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from ddefuzz.cli.command import Output
from ddefuzz.cli.options import DEFAULT_DB
from ddefuzz.cli.streams import in_log, log_line, write_stdout
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, InputError
from ddefuzz.escape import html_text, json_text, markdown_text, shell_word, shell_words, visible
from ddefuzz.files import check_writable, is_there, real_path, write_atomically
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, UnknownFindingError
from ddefuzz.findings.url import parse_url, without_passwords
from ddefuzz.internal import InternalError, noted
from ddefuzz.show.blocks import Block, Invocation, counted
from ddefuzz.show.markdown import markdown
from ddefuzz.show.record import Report, Result, Rule
from ddefuzz.show.terminal import terminal


def current_invocation() -> Invocation:
    """The invocation of this process and of the command that it runs."""
    context = click.get_current_context(silent=True)
    program = program_words(sys.argv[0], sys.executable, Path.cwd(), os.environ.get("PATH", ""))
    python = _shortest(Path(sys.executable), Path.cwd(), os.environ.get("PATH", ""))
    return Invocation(program, python, typed_db(context) if context is not None else "")


def program_words(called: str, python: str, folder: Path, search: str) -> str:
    """The words that start ddefuzz again in `folder`, shell-quoted.

    `called` is `sys.argv[0]`: the path of the script `ddefuzz`, or of a module if Python was called with one. In the
    second case the script next to Python is named, if there is one.
    """
    script = Path(called)
    if script.name != "ddefuzz":
        script = Path(python).parent / "ddefuzz"
        if not is_there(script):
            return "ddefuzz"
    elif not script.is_absolute():
        return shell_word(called)
    return _shortest(script, folder, search)


def _shortest(program: Path, folder: Path, search: str) -> str:
    """The bare name if PATH leads to this program, else its path, relative if it is below `folder`."""
    on_path = shutil.which(program.name, path=search)
    # Folders are compared, because the python of a virtual environment is a link to another one.
    if on_path is not None and real_path(Path(on_path).parent) == real_path(program.parent):
        return program.name
    below = program.is_relative_to(folder)
    return shell_word(str(program.relative_to(folder) if below else program))


def typed_db(context: click.Context) -> str:
    """The database that was typed, if a command without `--db` would use another one."""
    if context.get_parameter_source("db") is not ParameterSource.COMMANDLINE:
        return ""
    db = context.params.get("db")
    return "" if db == (context.lookup_default("db") or parse_url(DEFAULT_DB)) else str(db or "")


def resolve(database: Database, typed: str) -> Finding:
    """The finding of a typed id. The error for an unknown one names the command that lists those of this database."""
    try:
        return database.resolve(typed)
    except UnknownFindingError as error:
        raise InputError(f"{error}; `{current_invocation().command('findings', 'list')}` shows all") from error


LINE_SECONDS = 10.0
"""The time between plain lines without a terminal."""


class LiveLine:
    """The line. Use it in a `with` block. Markup is not interpreted, and lines are not wrapped."""

    def __init__(
        self, starting: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or progress_console()
        self._status = self._console.status(plain(starting))
        self._clock = clock
        self._last = clock()

    def __enter__(self) -> LiveLine:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, line: str | Text) -> None:
        """Write a permanent line. As any on stderr it is one, and not too long."""
        self._console.print(Text(log_line(line)) if isinstance(line, str) else line, soft_wrap=True)

    def counter(self, of: int, noun: str) -> Callable[[str], None]:
        """What is called when one of so many is done, with more to say of it."""
        numbers = count(1)

        def tick(about: str) -> None:
            done = next(numbers)
            self.update(f"{done} of {counted(of, noun)}{about}", is_last=done == of)

        return tick

    def update(self, line: str, *, is_last: bool = False) -> None:
        """Change the live line. Without a terminal, write it if enough time has passed or it is the last."""
        if self._console.is_terminal:
            self._status.update(Text(log_line(line)))
            return
        now = self._clock()
        if is_last or now - self._last >= LINE_SECONDS:
            self._last = now
            self.say(line)


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM (a cancelled job) requests a stop, so that current results are saved. The second one
    stops at once.
    """
    requested = Flag()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        sys.stderr.write("\nstopping, and saving what was found (press Ctrl-C again to stop at once)\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, old in before.items():
            signal.signal(number, old)


FILE_WIDTH = 160
"""The width of text in files and pipes, in columns."""

Command = TypeVar("Command", bound=Callable[..., Any])


class Page(NamedTuple):
    """What text is laid out for."""

    width: int
    color: bool = False


Writer: TypeAlias = str | Callable[[Page], str]
"""The text in a format, or what makes it for a page."""


FOR_PEOPLE: Final = frozenset({"text", "markdown", "issue"})
"""The formats that no program parses. On stdout they have no commands for the runner of a GitHub workflow."""


def deliver(writers: Mapping[str, Writer], output: Output, exits: Mapping[int, object] = {}) -> None:
    """Write the files, each completely or not at all, then stdout. Then exit with the first code that holds."""
    for _, path in output.files:
        check_writable(path)
    for name, path in output.files:
        write_atomically(path, _written(writers, name, Page(FILE_WIDTH)))
    text = _written(writers, output.format, stdout_page())
    is_document = output.format != "text"
    write_stdout(in_log(text) if output.format in FOR_PEOPLE else text, is_document=is_document)
    for code, holds in exits.items():
        if holds:
            raise SystemExit(code)


def _written(writers: Mapping[str, Writer], name: str, page: Page) -> str:
    """The text in a format. In text for people, the only control characters are newlines and rich's colors."""
    writer = writers[name]
    text = _with_errors(name, writer if isinstance(writer, str) else writer(page))
    if name != "text":
        return text
    parts = re.split(r"(\x1b\[[0-9;]*m)", text)
    return "".join(part if page.color and part.startswith("\x1b[") else visible(part) for part in parts)


def _with_errors(name: str, content: str) -> str:
    """What is written, with a row for each exception of ddefuzz itself. The other formats have them as results."""
    errors = noted()
    if not errors:
        return content
    match name:
        case "text":
            return content + "".join(f"{one}\n" for one in errors)
        case "json":  # `errors` of the document; a list has them as items
            document, rows = json.loads(content), [one.document() for one in errors]
            whole = document | {"errors": rows} if isinstance(document, dict) else document + rows
            return json_text(whole, indent=True) + "\n"
        case "jsonl":
            return content + "".join(json_text(one.document()) + "\n" for one in errors)
        case "markdown":
            return f"{content}\n## Not judged\n\n" + "".join(f"- {markdown_text(str(one))}\n" for one in errors)
        case "html":
            items = "".join(f"<li>{html_text(str(one))}</li>\n" for one in errors)
            body, end, rest = content.rpartition("</body>")
            return f"{body}<h2>not judged</h2>\n<ul>\n{items}</ul>\n{end}{rest}"
        case _:
            return content


def stdout_page() -> Page:
    """The width and color of the terminal, or those of files without a terminal.

    `NO_COLOR` and `TERM=dumb` are respected. `COLUMNS` overrides the width.
    """
    console = Console()
    if console.is_terminal:
        return Page(console.width, console.color_system is not None and not console.no_color)
    return Page(console.width if os.environ.get("COLUMNS") else FILE_WIDTH)


def progress_console() -> Console:
    """The console on stderr for progress. It has live lines only on a terminal, and not in a CI log."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return Console(stderr=True, highlight=False, force_terminal=False if in_ci else None)


def plain(text: str, style: str = "") -> Text:
    """Text without markup, with control characters escaped."""
    return Text(visible(text), style=style)


def page_writers(
    title: str, blocks: Iterable[Block], document: object = None, *, indent: bool = False
) -> dict[str, Writer]:
    """The formats `text`, `markdown` and `html` of blocks, which are made when the first of them is written.

    With a document also `json`.
    """
    view = cache(lambda: tuple(blocks))

    def html(_page: Page) -> str:
        # Imported here, because the templates and the highlighting take longer to import than most commands.
        from ddefuzz.show.html import html  # noqa: PLC0415

        return html(title, view())

    return {
        "text": lambda page: terminal(view(), page.width, color=page.color),
        "markdown": lambda _page: markdown(view()),
        "html": html,
        **({} if document is None else {"json": lambda _page: json_text(document, indent=indent) + "\n"}),
    }


def json_writers(documents: list[dict[str, Any]]) -> dict[str, Writer]:
    """`json`: one array; `jsonl`: a line for each."""
    return {
        "json": lambda _page: json_text(documents, indent=True) + "\n",
        "jsonl": lambda _page: "".join(json_text(one) + "\n" for one in documents),
    }


INTERNAL = Rule("internal-error", "not judged, because an exception of ddefuzz itself ended it")
"""The rule of what a bug of ddefuzz ended."""


def writers_of(report: Report, view: Iterable[Block] = ()) -> dict[str, Writer]:
    """A writer for each format of the table, and for text, which shows the view.

    Exceptions of ddefuzz itself are among the results.
    """
    # Imported here for the same reason as in `page_writers`.
    from ddefuzz.show.table import FORMATS  # noqa: PLC0415

    when = datetime.now(UTC).isoformat(timespec="seconds")
    report = msgspec.structs.replace(report, command=command_line(), when=when)
    errors = tuple(map(_of_error, noted()))
    if errors:
        all_rules, results = (*report.rules, INTERNAL), (*report.results, *errors)
        report = msgspec.structs.replace(report, rules=all_rules, results=results)
    formats = {one.name: partial(lambda write, _page: write(report), one.write) for one in FORMATS}
    return page_writers(report.title, view) | formats


def deliver_report(report: Report, view: Iterable[Block], output: Output, *, interrupted: bool = False) -> None:
    """Write a report. Exits with 130 if it was interrupted, and with 1 if a result failed."""
    exits = {EXIT_INTERRUPTED: interrupted, EXIT_FOUND: report.of("failed")}
    deliver(writers_of(report, view), output, exits)


def _of_error(error: InternalError) -> Result:
    return Result(
        id=error.where or INTERNAL.id,
        rule=INTERNAL.id,
        outcome="error",
        title=f"{error.where}: not judged",
        message=error.reason,
        facts=(("report", error.report),) if error.report else (),
    )


def command_line() -> str:
    """The command line of this process, without the passwords of databases."""
    return shell_words(["ddefuzz", *map(without_passwords, sys.argv[1:])])
