"""Runs stand-alone scripts in children of one process that has imported torch: `python fork_scripts.py < TASKS`.

A plain `python` takes 4 s a script, a child 0.3 s. A child has captured nothing, as a new process has not. Each line of
TASKS is a JSON object with `script`, a path, and, if a module of torch is to be another, `file`, its path, and `text`,
its source. Each line of the output has `script`, `code` and `result`, the last line that the script printed.
"""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import os
import runpy
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PRELOADED = ("torch", "torch.export", "torch._dynamo", "torch._decomp", "torch._refs", "torch._export.non_strict_utils")

SECONDS = 120


def main() -> None:
    """Run every task, in order."""
    warnings.simplefilter("ignore")
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        task = json.loads(line)
        with tempfile.TemporaryFile() as output:
            code = _forked(task, output.fileno())
            output.seek(0)
            printed = output.read().decode(errors="replace").splitlines()
        row = {"script": task["script"], "code": code, "result": printed[-1] if printed else ""}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def _forked(task: dict[str, str], output: int) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        os.dup2(output, 1)
        sys.argv = [task["script"]]
        if "file" in task:
            replace_source(task["file"], task["text"])
        runpy.run_path(task["script"], run_name="__main__")
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:  # noqa: BLE001 a child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def replace_source(file: str, text: str) -> None:
    """Give every function of a module that is already imported the code that the text has for it.

    Functions are found by their qualified names wherever they are: a decomposition's decorators keep it in closures and
    tables. What is defined more than once under one name is matched by its order in the file.
    """
    old, new = Path(file).read_text(), text
    before, after = (list(_codes(compile(source, file, "exec", dont_inherit=True))) for source in (old, new))
    replaced = {_name(code): changed for code, changed in zip(before, after, strict=True)}
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == file:
            function.__code__ = replaced.get(_name(function.__code__), function.__code__)


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Any:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


if __name__ == "__main__":
    main()
