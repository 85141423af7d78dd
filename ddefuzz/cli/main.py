"""The `ddefuzz` command: a table of commands, each imported when it is asked for, and the exit codes."""

from __future__ import annotations

import importlib
import sys

import rich_click as click

from ddefuzz import __version__
from ddefuzz.errors import EXIT_INTERRUPTED, EXIT_USAGE, DdefuzzError

COMMANDS = {
    "run": ("ddefuzz.cli.run", "Run a campaign: generate, capture, judge, minimize, remember."),
    "check": ("ddefuzz.cli.check", "Put one program or your own code through all stages."),
    "minimize": ("ddefuzz.cli.minimize", "Make the smallest program with the same signature."),
    "replay": ("ddefuzz.cli.replay", "Replay the corpora and the known findings."),
    "findings": ("ddefuzz.cli.findings", "List, show and triage findings."),
    "bench": ("ddefuzz.cli.bench", "Measure ddefuzz: generation, throughput."),
    "doctor": ("ddefuzz.cli.doctor", "Check this environment and every private torch API in use."),
}
"""Name → module (which has a click command called `command`) and the line that `--help` shows without importing it."""


class LazyGroup(click.RichGroup):
    """A group that imports a command when it runs: the commands that only read must never import torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = importlib.import_module(module).command
        return command


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="ddefuzz")
def cli() -> None:
    """Find framework data-dependent errors in PyTorch before its users do."""


def main() -> None:
    """Run the command line; every `DdefuzzError` is one line on stderr and its own exit code."""
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.exceptions.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except DdefuzzError as error:
        sys.stderr.write(f"ddefuzz: {error}\n")
        sys.exit(error.exit_code)
