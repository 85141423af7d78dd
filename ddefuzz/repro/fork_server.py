"""Runs scripts in children of one process that has imported torch: `python fork_server.py SECONDS < TASKS`.

A plain `python` needs about 5 s for a script, of which 4 s are the import of torch. A child needs about 1 s. Like a new
process it has captured nothing yet. This file needs only torch, because it also runs where ddefuzz is not installed.

A task is a line with a JSON object, in which `script` is a path. For each task a line with a JSON object is printed:
`script`, the exit `code` (negative: the number of the signal that ended it), and the ends of its `output` and `errors`.
SIGALRM ends a child that runs for more than SECONDS. SIGTERM ends this process and the child.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import IO

PRELOADED = (
    "torch",
    "torch.export._trace",
    "torch._dynamo.convert_frame",
    "torch._decomp",
    "torch._export.non_strict_utils",
    "torch._inductor.compile_fx",
    "torch._dynamo.backends.common",
    "torch._dynamo.backends.debugging",
    "torch._dynamo.functional_export",
    "torch._dynamo.repro.after_aot",
    "sympy.tensor.tensor",
)
"""Modules that captures import. Some versions of torch do not have all of them."""

MOST_BYTES = 100_000


def run_script(task: dict[str, str]) -> None:
    """Run the script as a program."""
    runpy.run_path(task["script"], run_name="__main__")


def main(run: Callable[[dict[str, str]], None] = run_script) -> None:
    """Do every task, in order. `run` does it in a child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOADED:
            with suppress(ModuleNotFoundError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # without it, each collection in a child would visit and copy all of torch's objects
    seconds = int(sys.argv[1])
    for line in sys.stdin:
        task = json.loads(line)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            code = forked(task, run, (output.fileno(), errors.fileno()), seconds)
            row = {"script": task["script"], "code": code, "output": end_of(output), "errors": end_of(errors)}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def end_of(file: IO[bytes]) -> str:
    """The last bytes of a file as text."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_BYTES))
    return file.read().decode(errors="replace")


def forked(task: dict[str, str], run: Callable[[dict[str, str]], None], files: tuple[int, int], seconds: int) -> int:
    """The exit code of a child that does the task in a process group of its own. `files` get stdout and stderr."""
    ending = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)  # until both processes have their handlers
    child = os.fork()
    if child:

        def end(*_: object) -> None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            os._exit(1)

        signal.signal(signal.SIGTERM, end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # inductor starts processes
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return code
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        signal.alarm(seconds)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        sys.argv = [task["script"]]
        run(task)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001 a child must not continue as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
