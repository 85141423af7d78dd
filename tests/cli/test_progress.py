"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from ddefuzz.cli.output import LiveLine

LONG = f"{'torch/_decomp/decompositions.py:slice_forward ' * 4}[red]\x1b[2J[/]"
SHOWN = LONG.replace("\x1b", r"\x1b")


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, force_terminal=terminal)


def written(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_plain_lines_are_whole_and_as_they_are() -> None:
    stderr = console(terminal=False)
    with LiveLine("starting", stderr) as live:
        live.say(LONG)
        live.update("1 of 2")
        live.update(LONG, is_last=True)
    assert written(stderr) == f"{SHOWN}\n{SHOWN}\n"


def test_a_row_is_one_line_and_not_too_long() -> None:
    stderr = console(terminal=False)
    with LiveLine("starting", stderr) as live:
        live.say("a\nb: export captured")
        live.say(f"{'a' * 100_000}: export captured")
    assert written(stderr) == f"a\\nb: export captured\n{'a' * 2000}…\n"


def test_a_plain_line_comes_when_it_is_time() -> None:
    stderr, times = console(terminal=False), iter([0.0, 9.0, 10.0, 19.0, 25.0, 34.0])
    with LiveLine("starting", stderr, lambda: next(times)) as live:
        for number in range(1, 6):
            live.update(f"{number} of 5")
    assert written(stderr) == "2 of 5\n4 of 5\n"


def test_a_terminal_has_the_live_line_below_what_was_said() -> None:
    stderr = console(terminal=True)
    with LiveLine("starting", stderr) as live:
        live.say("found")
        live.update("1 of 2")
    assert written(stderr).index("found\n") < written(stderr).index("starting") < written(stderr).rindex("1 of 2")
