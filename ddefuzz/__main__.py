"""The command `ddefuzz`, and `python -m ddefuzz`.

A signal that arrives while the modules of the command are imported ends it when they are. An exception that it raised
then could be lost.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Run the command. Its exit codes are those of `ddefuzz.cli.main`."""
    arrived: list[int] = []
    usual: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    ours = [number for number, handler in usual.items() if signal.getsignal(number) == handler]  # none that is ignored
    for number in ours:
        signal.signal(number, lambda received, _frame: arrived.append(received))
    command = import_module("ddefuzz.cli.main")
    for number in ours:
        signal.signal(number, usual[number])
    if arrived:
        name = signal.Signals(arrived[0]).name
        sys.stderr.write(f"ddefuzz: {'interrupted' if name == 'SIGINT' else f'stopped by {name}'}\n")
        raise SystemExit(128 + arrived[0])
    command.main()


if __name__ == "__main__":
    main()
