"""The common parts of emitted scripts: how they end, and how their text is assembled."""

from __future__ import annotations

from string import Template
from typing import Final

import black

from ddefuzz.escape import one_line

WIDTH: Final = 120

ENDING: Final = """\
    result = {"torch": torch.__version__, "stage": "$stage", "verdict": verdict}
    print(json.dumps({**result, "expected": EXPECTED, "seen": found}))
    print(f"{verdict}: expected {EXPECTED}, seen {found}", file=sys.stderr)
    return {"shows": 1, "passes": 0, "fails otherwise": 3, "not judged": 4}[verdict]


if __name__ == "__main__":
    sys.exit(main())
"""
"""The end of `main` in a script: it prints the verdict, and returns the exit code."""

MARKER: Final = "# ---\n"
"""The line of a module after which its text goes into scripts."""


def emitted(script: Template, title: str, **parts: object) -> str:
    """The text of a script. `parts` are code: values in them are written by `repr`."""
    # No quote and no backslash can end the docstring that begins with the title.
    text = script.substitute(title=one_line(title).replace("\\", "\\\\").replace('"', "'"), **parts)
    return black.format_str(text, mode=black.Mode(line_length=WIDTH))


def source_of(module: str, *more: str) -> tuple[str, str]:
    """The imports for a script, and the functions of a module that it copies. `module` is the module's text, `more` are
    further imports.
    """
    header, _, functions = module.partition(MARKER)
    own = [line for line in header.splitlines() if line.startswith(("import ", "from ")) and "__future__" not in line]
    lines = {*own, "import contextlib", "import json", "import sys", *more} - {"import torch"}
    standard = sorted(lines, key=lambda line: (line.startswith("from "), line))
    return "\n".join([*standard, "", "import torch"]), functions
