"""`ddefuzz check-key`: try a key function of a kernel cache on drawn tensors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
import rich_click as click

from ddefuzz.cli.layout import counted, folded
from ddefuzz.cli.output import Page, deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import EXIT_FOUND
from ddefuzz.speckey.options import Options, SizeParts, StrideParts

Command = TypeVar("Command", bound=Callable[..., Any])


def _flag(name: str, default: bool, said: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}/--no-{name}", default=default, show_default=True, help=said)


@click.command("check-key")
@click.argument("target")
@click.option("--examples", type=click.IntRange(1), metavar="N", default=300, show_default=True,
              help="Number of tensors or pairs that each property is tried on.")  # fmt: skip
@click.option("--sizes", type=click.Choice(get_args(SizeParts)), default="all", show_default=True,
              help="Which sizes the key must distinguish: all, or only 0, 1, and 2 or more.")  # fmt: skip
@click.option("--strides", type=click.Choice(get_args(StrideParts)), default="all", show_default=True,
              help="Which strides the key must distinguish: all, only their pattern (0, 1, order, dense), or "
              "none.")  # fmt: skip
@_flag("divisible", False, "Whether the key must distinguish sizes that are divisible by 16 from others.")
@_flag(
    "alignment", True, "Whether the key must distinguish data at an address that is divisible by 16 from other data."
)
@_flag("dtype", True, "Whether the key must distinguish dtypes.")
@_flag("device", True, "Whether the key must distinguish devices.")
@_flag("requires-grad", True, "Whether the key must distinguish tensors that require a gradient from others.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True,
              help="Draw only this kind of tensors, such as tensor, parameter or sparse. Can be repeated.")  # fmt: skip
@output_options("text", "json")
def command(
    target: str,
    examples: int,
    kinds: tuple[str, ...],
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
    **parts: Any,
) -> None:
    """Check a function that makes the keys of a cache of compiled kernels.

    TARGET is MODULE:FUNCTION or FILE:FUNCTION, a function of one tensor that returns its key. Its code is executed.
    Each property is tried on drawn tensors of every dtype, layout and kind. A violation is printed with the smallest
    tensors that show it, and the exit code is 1.

    Examples: `ddefuzz.speckey.key:key` is correct. The functions in `ddefuzz.keycheck.planted` have planted faults.
    """
    options = Options(**parts)
    # Imported here: `ddefuzz check-key --help` must not import torch.
    checking = import_module("ddefuzz.keycheck.check")
    with LiveLine("importing torch") as live:
        checked = checking.checked(target, options, examples, kinds, live.update)
    document = msgspec.json.format(msgspec.json.encode(checked), indent=2).decode() + "\n"
    deliver({"text": lambda page: key_text(checked, page), "json": lambda _page: document}, format_, outputs)
    if any(one.violations for one in checked.properties):
        raise SystemExit(EXIT_FOUND)


def key_text(checked: Any, page: Page) -> str:
    """One line for each property; below it the smallest violation."""
    lines = [f"{checked.function}, torch {checked.torch}"]
    for one in checked.properties:
        verdict = "violated" if one.violations else "ok"
        lines.append(f"{verdict:9} {one.name}: {one.meaning} ({counted(one.tried, 'try', 'tries')})")
        for violation in one.violations:
            said = [violation.why, *(f"tensor {text}" for text in violation.tensors)]
            said += [f"key    {text}" for text in violation.keys]
            lines += [f"          {line}" for text in said for line in folded(text, page.width - 10).split("\n")]
    return "\n".join(lines) + "\n"
