"""`python ci/bench`, as typed and in this process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner

from ci.bench.command import group
from ddefuzz.errors import EXIT_OK
from ddefuzz.show.blocks import Block
from ddefuzz.show.terminal import terminal
from tests.typed import BENCH, typed


def bench(*words: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """What `python ci/bench WORDS` does in a folder, at 80 columns."""
    return typed(*words, folder=folder, environment={"COLUMNS": "80"}, before=before, program=BENCH)


def invoked(*words: str, code: int = EXIT_OK) -> str:
    """What `python ci/bench WORDS` prints, run in this process."""
    ended = CliRunner().invoke(group, words, catch_exceptions=False)
    assert ended.exit_code == code
    return ended.stdout


def text_of(blocks: list[Block]) -> str:
    """Blocks on a wide terminal."""
    return terminal(blocks, 200)
