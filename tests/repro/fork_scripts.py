"""Runs stand-alone scripts in children of one process that has imported torch: `python fork_scripts.py < TASKS`.

A plain `python` needs 5 s per script, of which 4 s are the import of torch. A child needs 0.6 s, and like a new
process it has captured nothing yet.

A task is a line with a JSON object: `script` is a path. If a module of torch is to be changed, `file` is its path
and `text` its new source. For each task a line is printed with `script`, `code` and `result`: the last line that
the script printed, or the classes of the exceptions that ended it.
"""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import os
import runpy
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

PRELOADED = (
    "torch.export._trace",
    "torch._dynamo.convert_frame",
    "torch._decomp",
    "torch._export.non_strict_utils",
    "torch._inductor.compile_fx",
)

SECONDS = 300


def main() -> None:
    """Do every task, in order."""
    warnings.simplefilter("ignore")
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        task = json.loads(line)
        with tempfile.TemporaryFile() as output:
            code = forked(task, output.fileno())
            output.seek(0)
            printed = output.read().decode(errors="replace").splitlines()
        row = {"script": task["script"], "code": code, "result": printed[-1] if printed else ""}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def forked(task: dict[str, str], output: int) -> int:
    """The exit code of a script that runs in a child, with its stdout in a file."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        signal.alarm(SECONDS)
        os.dup2(output, 1)
        sys.argv = [task["script"]]
        if "file" in task:
            run_changed(task)
        runpy.run_path(task["script"], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException as error:  # noqa: BLE001 a child must not go on as its parent
        sys.stdout.write(json.dumps(classes(error)) + "\n")
    finally:
        sys.stdout.flush()
        os._exit(code)


def run_changed(task: dict[str, str]) -> None:
    """Run a script with torch unchanged in its eager run, and with the changed module in its capture."""
    script = ModuleType("script")
    script.__file__ = task["script"]
    sys.modules["script"] = script
    exec(compile(Path(task["script"]).read_text(), task["script"], "exec", dont_inherit=True), vars(script))
    capture = vars(script)["capture"]

    def changed() -> object:
        replace_source(task["file"], task["text"])
        return capture()

    vars(script)["capture"] = changed
    sys.exit(vars(script)["main"]())


def classes(error: BaseException | None) -> list[str]:
    """The names of the classes of an exception and of its causes."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return [type(one).__name__ for one in chain]


def replace_source(file: str, text: str) -> None:
    """Replace the code of every function of a module by the code that the text has for it.

    All functions are found, also those that decorators keep in closures and tables. The text must have as many
    lines as the file.
    """
    before, after = (
        list(codes(compile(source, file, "exec", dont_inherit=True))) for source in (Path(file).read_text(), text)
    )
    replaced = {name_of(old): new for old, new in zip(before, after, strict=True)}
    importlib.import_module(module_of(file))  # that capture imports only later
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == file:
            function.__code__ = replaced.get(name_of(function.__code__), function.__code__)


def module_of(file: str) -> str:
    """The name of a module of torch, from its file."""
    parts = Path(file).with_suffix("").parts
    at = len(parts) - 1 - parts[::-1].index("torch")
    return ".".join(part for part in parts[at:] if part != "__init__")


def name_of(code: CodeType) -> tuple[str, int]:
    """The key that identifies a function in its file."""
    return code.co_qualname, code.co_firstlineno


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects of all functions in a code object, outer ones first."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


if __name__ == "__main__":
    main()
