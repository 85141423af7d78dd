"""Runs scripts in children of one process, as `ddefuzz.repro.fork_server` does, also with a changed module of torch.

A task is a line with a JSON object: `script` is a path. If a module of torch is to be changed, `file` is its path and
`text` its new source. The last line of the output is that of the script, or the classes of the exceptions that ended
it.
"""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from ddefuzz.repro.fork_server import main, run_script


def run(task: dict[str, str]) -> None:
    """Run a script. Exit code 70 for an exception."""
    try:
        if "file" in task:
            run_changed(task)
        run_script(task)
    except Exception as error:  # noqa: BLE001 it may be any of torch's
        sys.stdout.write(json.dumps(classes(error)) + "\n")
        sys.exit(70)


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
    gc.unfreeze()  # frozen objects are not listed
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
    main(run)
