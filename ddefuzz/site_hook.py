"""Measure any Python command with ddefuzz's hook: which guard sites its processes reach.

    export DDEFUZZ_SITES=sites.jsonl
    python -m ddefuzz.site_hook fuzzer.py ARGS
    python -m ddefuzz.site_hook -m some.module ARGS
    python -m pytest -p ddefuzz.site_hook test/test_it.py

Alternatively, `import ddefuzz.site_hook` first in a script. Each guard site is written as a JSON line
(`ledger.SiteLine`) when it is first reached, in one write, so a kill loses nothing. Processes that the command forks
write to the same file. torch's FakeTensor cache is off, as in a campaign: with it, sites depend on what ran before.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from ddefuzz.classify.site import site
from ddefuzz.errors import EXIT_USAGE, DdefuzzError, InputError
from ddefuzz.execute.worker import SYMBOLIZER, long_lived_symbolizer
from ddefuzz.files import is_file, real_path
from ddefuzz.findings.ledger import ENVIRONMENT, Line, ProcessLine, SiteLine, SiteVisit
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Place
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import Recorder

USAGE = f"{ENVIRONMENT}=SITES.jsonl python -m ddefuzz.site_hook (SCRIPT | -m MODULE) [ARGS …]"


@dataclass(slots=True)
class Hook:
    """The sites written so far. Every write to the file of `descriptor` appends."""

    descriptor: int
    watching: ExitStack = field(default_factory=ExitStack)
    recorder: Recorder | None = None
    known: set[SiteVisit] = field(default_factory=set)

    def on_fallback(self, place: Place, function: str, call: str, fallback: bool) -> None:
        """Write a site that fell back, once for each answer."""
        self._write_new(SiteVisit(place, function, call, "True" if fallback else "False"))

    def on_error(self, error: BaseException) -> None:
        """Write a call site that raised, once.

        It is classified now, while the native stack exists. torch may catch the error and continue.
        """
        raised = self.recorder.raised([error]) if self.recorder is not None else None
        if raised is not None:
            blamed, frame = site(raised)
            place = Place("Python", frame.file, frame.line) if blamed.language == "Python" else raised.place
            self._write_new(SiteVisit(place, blamed.function or "", raised.method, "raised", blamed=blamed))

    def process(self) -> None:
        """Write the CPU seconds that this process has used."""
        self._write(ProcessLine(os.getpid(), *_now(), str(torch.__version__)))

    def _write_new(self, reached: SiteVisit) -> None:
        if reached not in self.known:
            self.known.add(reached)
            self._write(SiteLine(os.getpid(), *_now(), reached))

    def _write(self, line: Line) -> None:
        os.write(self.descriptor, msgspec.json.encode(line) + b"\n")


def _now() -> tuple[float, float]:
    return round(time.process_time(), 3), round(time.time(), 3)


def install(path: Path) -> None:
    """Watch this process until it ends. Raises InputError if the file cannot be written, UnsupportedError if torch
    cannot be watched.
    """
    torch_api.require()
    os.environ.setdefault(SYMBOLIZER, long_lived_symbolizer())
    try:
        hook = Hook(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}, expected a file that can be written") from error
    hook.watching.enter_context(torch_api.changed_settings(torch_api.DYNAMO_CONFIG, {torch_api.FAKE_CACHE: False}))
    hook.recorder = hook.watching.enter_context(watch(listener=hook))
    hook.process()
    atexit.register(hook.process)


def main(arguments: list[str]) -> None:
    """Run a script or module under the hook."""
    if ENVIRONMENT not in os.environ:
        raise InputError(f"found no {ENVIRONMENT} in the environment, expected {USAGE}")
    match arguments:
        case ["-m", module, *rest]:
            install(Path(os.environ[ENVIRONMENT]))
            sys.argv = [module, *rest]
            sys.path.insert(0, "")
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *rest] if not script.startswith("-"):
            if not is_file(Path(script)):
                raise InputError(f"{script}: found no such file, expected a Python script")
            install(Path(os.environ[ENVIRONMENT]))
            sys.argv = [script, *rest]
            sys.path.insert(0, str(real_path(script).parent))
            runpy.run_path(script, run_name="__main__")
        case _:
            raise InputError(f"found {' '.join(arguments)[:80]!r}, expected {USAGE}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DdefuzzError as problem:
        sys.stderr.write(f"ddefuzz.site_hook: {problem}\n")
        sys.exit(EXIT_USAGE)
elif ENVIRONMENT in os.environ:
    install(Path(os.environ[ENVIRONMENT]))
