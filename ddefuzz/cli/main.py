"""The `ddefuzz` command: a table of subcommands, each imported only when it is called, and the exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

import rich_click as click
from rich_click import rich_click as help_pages

from ddefuzz import __version__, internal
from ddefuzz.cli.streams import EXIT_BROKEN_PIPE, check_streams, ends_by_exception, give_up_streams, said_of, say
from ddefuzz.errors import (
    EXIT_FOUND,
    EXIT_INTERNAL,
    EXIT_OK,
    EXIT_USAGE,
    DdefuzzError,
    InputError,
    NothingRanError,
    lines_of,
    refusals,
    unsupported_by,
)
from ddefuzz.execute.scratch import check_working_folder

PANELS = {
    "Search PyTorch": {
        "run": "Run a fuzzing campaign: generate programs, capture them, and save what fails.",
        "sweep": "Test every op of PyTorch's OpInfo and of the catalogue, and report which fail.",
        "recompiles": "Count how often torch.compile compiles each op with out= over calls of different sizes.",
        "sites": "List the guard sites of torch, and how often runs reached them.",
    },
    "Your own code": {
        "check": "Capture a program, or your own model, in several stages, and explain what fails.",
        "artifacts": "Write the graphs, guards and code of each stage of the compile stack to files and one HTML page.",
        "cost": "Measure what unbacked sizes cost: code, run time and compile time beside backed and static sizes.",
        "check-key": "Check a function that makes the keys of a cache of compiled kernels.",
        "check-op": "Check custom ops: fake kernels at every size, and what their schemas say.",
        "study": "Check many models, and compare the results with a plain export and with draft_export.",
    },
    "Findings": {
        "findings": "List, show and triage findings.",
        "triage": "Decide on findings in the terminal: one finding per screen, one key per decision.",
        "serve": "Show the findings in a browser, and decide on them there.",
        "tokens": "Make, list and revoke the tokens with which people decide in the dashboard.",
        "minimize": "Shrink a program while it still fails in the same way.",
        "answers": "Try which answer of a guard would fix a data-dependent error.",
        "fixes": "List the changes of PyTorch that mend findings, and write them as patches with tests.",
        "report": "Write findings in a format for other tools, or one finding as an issue or test for PyTorch.",
    },
    "Regression cases and CI": {
        "replay": "Run the saved cases again and compare them with what is expected.",
        "corpus": "Work on folders of case files: add, promote, prune, fmt, list.",
        "init": "Write the files with which a repository runs ddefuzz in its CI.",
        "ci": "Run the steps of a CI job: pull-request, fuzz, batch, prune, coverage, versions.",
    },
    "Versions of torch": {
        "matrix": "Run findings and cases under several versions of torch, and say in which they fail.",
        "diff": "Compare what the same programs do under two versions of torch.",
        "bisect": "Find the two versions of torch between which a finding was fixed, moved or appeared.",
        "fleet": "Run a day of the service: take new wheels of torch, search, compare, and report.",
    },
    "ddefuzz itself": {
        "doctor": "Check this installation: torch's private names, the workers, the classification, the database.",
    },
}
"""The subcommands with their help lines, by the group in which `ddefuzz --help` shows them. The subcommand is `command`
in the module of that name in `ddefuzz.cli`, with `_` for `-`, or named as it is in that of `HOMES`.
"""

HOMES = {"bisect": "matrix", "recompiles": "sweep", "study": "check", "tokens": "serve"}

COMMANDS = {name: said for commands in PANELS.values() for name, said in commands.items()}

help_pages.COMMAND_GROUPS = {
    "ddefuzz": [{"name": title, "commands": list(commands)} for title, commands in PANELS.items()]
}
help_pages.THEME = "default-slim"
help_pages.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"
help_pages.PADDING_HELPTEXT_FIRST_LINE = (0, 0, 1, 0)
help_pages.OPTIONS_TABLE_COLUMN_TYPES = ["opt_all_metavar", "help"]


def command_of(name: str) -> click.Command:
    """The subcommand, which is imported."""
    module = importlib.import_module(f"ddefuzz.cli.{HOMES.get(name, name).replace('-', '_')}")
    command: click.Command = getattr(module, name if name in HOMES else "command")
    return command


class LazyGroup(click.RichGroup):
    """A group that imports a subcommand only to run it. So commands that only read do not import torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The subcommands in the order of the table."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand, with the settings as its defaults."""
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return None, None, rest
        # Imported here, because reading settings takes longer than the rest of `--help`.
        from ddefuzz.classify.rules import use_rules_of_this_folder  # noqa: PLC0415
        from ddefuzz.cli import settings  # noqa: PLC0415

        use_rules_of_this_folder()
        command = command_of(name)
        ctx.default_map = {name: settings.default_map(command, settings.read())}
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand. The exit code says if rows were left out, or ddefuzz itself failed for some of them."""
        internal.take()
        check_working_folder()
        result = wrong = None
        with refusals() as refused:
            try:
                result = super().invoke(ctx)
            except InputError as error:
                # What is left out may be what was asked for.
                if max(refused.values(), default=EXIT_OK) <= error.exit_code:
                    raise
                wrong = error
            except (SystemExit, NothingRanError) as ended:
                if isinstance(ended, NothingRanError):
                    goes_on = bool(refused)  # nothing else was there
                else:
                    goes_on = ended.code in (None, EXIT_OK, EXIT_FOUND, EXIT_USAGE)
                if not goes_on or not (refused or internal.noted()):
                    raise
            finally:
                for line in lines_of(refused):
                    _say(f"ddefuzz: {line}")
        if wrong is not None:
            _say(f"ddefuzz: {wrong}")
        if internal.noted() or refused:
            raise SystemExit(EXIT_INTERNAL if internal.noted() else max(refused.values()))
        return result


@click.group(cls=LazyGroup, commands=[click.RichCommand(name=name, help=said) for name, said in COMMANDS.items()])
@click.version_option(__version__, prog_name="ddefuzz")
def cli() -> None:
    """Find data-dependent errors in PyTorch, and the code that raises them.

    torch.export and torch.compile raise a data-dependent error where code needs the value of a size that is known
    only at run time. `run` and `sweep` search for such errors in PyTorch itself. `check` captures your own model.

    Environment variables such as DDEFUZZ_DB and DDEFUZZ_JOBS, ddefuzz.toml, and [tool.ddefuzz] in pyproject.toml
    change the defaults of options.
    """


def main(command: click.Command = cli, name: str = "ddefuzz") -> None:
    """Run a command line. An error prints one line on stderr and sets the exit code."""
    internal.hiding[:] = [_without_passwords]
    try:
        check_streams()
        with ends_by_exception():
            sys.exit(command.main(prog_name=name, standalone_mode=False))
    except (click.Abort, KeyboardInterrupt) as error:
        # Click makes an Abort of a KeyboardInterrupt.
        line, code = said_of(error.__context__ if isinstance(error.__context__, KeyboardInterrupt) else error)
        say(f"ddefuzz: {line}")
        sys.exit(code)
    except click.ClickException as error:
        _say(_usage_line(error))
        sys.exit(EXIT_USAGE)
    except DdefuzzError as error:
        _say(f"ddefuzz: {error}")
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        # Click exits with 1 if the reader of stdout or stderr has ended. Here 1 has another meaning.
        give_up_streams()
        sys.exit(EXIT_BROKEN_PIPE)
    except Exception as error:  # noqa: BLE001 - any exception that arrives here is a bug of ddefuzz
        limited = unsupported_by(error, "cannot go on")
        if limited is not None:
            give_up_streams()
            _say(f"ddefuzz: {limited}")
            sys.exit(limited.exit_code)
        _say(_internal_line(error), kept="\n")
        sys.exit(EXIT_INTERNAL)


def _say(text: str, kept: str = "") -> None:
    say(_without_passwords(text), kept)


def _without_passwords(text: str) -> str:
    """An error without the passwords of databases, which may be anywhere in what was typed or set."""
    from ddefuzz.cli import settings  # noqa: PLC0415 SQLAlchemy takes longer than `--help`
    from ddefuzz.findings.url import text_without_passwords  # noqa: PLC0415

    return text_without_passwords(text, [*sys.argv, *settings.texts()])


def _usage_line(error: click.ClickException) -> str:
    """The error in what was typed or set, as one line."""
    context = getattr(error, "ctx", None)
    line = f"{context.command_path if context else 'ddefuzz'}: {' '.join(error.format_message().split())}"
    if context is None or line.endswith(("?", "?)")):
        return line
    origin = ""
    if isinstance(error, click.BadParameter) and error.param is not None:
        from ddefuzz.cli import settings  # noqa: PLC0415 for the same reason

        origin = settings.origin(context, error.param)
    return line + (origin or f" (see {context.command_path} --help)")


def _internal_line(error: Exception) -> str:
    """The error as one line. Its traceback is above it (DDEFUZZ_DEBUG=1), or in a file to send with a report."""
    if os.environ.get("DDEFUZZ_DEBUG", "") not in ("", "0"):
        report = "".join(traceback.format_exception(error))
        return f"{report}ddefuzz: {internal.said_with(error, 'this traceback')}"
    return f"ddefuzz: {internal.note(error).reason}"
