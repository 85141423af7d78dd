"""Make the golden files: the raw failure of every golden case in every stage, with its classification.

    python tests/classify/collect.py [ID ...]

A file is named after its case. Under another torch than 2.13, the version follows the name (`kron@2.15.json`).
Without an ID, only `OTHER_TORCHES` are collected under such a torch.

Run it again for another torch or after a change of rules, and read the difference. It shows which failures the
change merges, splits or attributes to another site.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import golden_cases  # type: ignore[import-not-found] # noqa: E402
import torch  # noqa: E402

from ddefuzz.execute.observe import observe  # noqa: E402
from ddefuzz.execute.protocol import CallableSubject, Observation, Run, Semantics  # noqa: E402
from ddefuzz.execute.worker import SYMBOLIZER, long_lived_symbolizer  # noqa: E402
from ddefuzz.instrument.events import RaisedError  # noqa: E402
from ddefuzz.oracles.capture import classify, judge  # noqa: E402

INNER = 30
"""How many frames of a stack are kept."""

LOCAL = re.compile(r"[\w./-]*tests/classify/")
"""This folder as torch writes it: the end of a path on the machine that collects."""

MESSAGE = 1600
"""How many characters of a message are kept: its title, explanation and context, or the inner end of the C++ stack
in it.
"""


def main(ids: list[str]) -> None:
    """Write the files of the given cases, or of all cases."""
    path = Path(golden_cases.__file__).resolve().relative_to(ROOT)
    os.environ.setdefault(SYMBOLIZER, long_lived_symbolizer())
    ids = ids or (list(golden_cases.OTHER_TORCHES) if version() else [])
    for case in golden_cases.CASES:
        if ids and case["id"] not in ids:
            continue
        failures = {}
        for stage in case["stages"]:
            run = Run(CallableSubject(str(path), case=case["id"]), stage, Semantics(case["semantics"]))
            observation = trimmed(observe(run))
            for failure in judge([observation]):
                named = classify(failure)
                failures[stage] = {
                    "signature": msgspec.to_builtins(named.signature),
                    "cause": named.cause,
                    "rule": named.rule,
                    "observation": msgspec.to_builtins(observation),
                }
                sys.stdout.write(f"{case['id']:24} {stage:14} {named.signature}  {named.cause} ({named.rule})\n")
        if not failures:
            sys.stdout.write(f"{case['id']:24} passes in every stage\n")
        golden = {"schema": "ddefuzz-golden-1", "torch": torch.__version__, "why": case["why"], "failures": failures}
        text = json.dumps(golden, indent=1, ensure_ascii=False)
        (HERE / "golden" / f"{case['id']}{version()}.json").write_text(f"{text}\n")


def version() -> str:
    """The part of a file's name that depends on this torch."""
    release = torch.__version__.rpartition(".")[0]
    return "" if release == "2.13" else f"@{release}"


def trimmed(observation: Observation) -> Observation:
    """The parts of an observation that classification reads, without what differs from run to run."""
    return msgspec.structs.replace(
        observation,
        exceptions=tuple(
            msgspec.structs.replace(
                exception,
                message=LOCAL.sub("tests/classify/", exception.message)[:MESSAGE],
                frames=exception.frames[-INNER:],
            )
            for exception in observation.exceptions
        ),
        raised=None if observation.raised is None else innermost(observation.raised),
        guards=(),
        cpu_seconds=0.0,
        peak_rss_mb=0.0,
        output="",
    )


def innermost(raised: RaisedError) -> RaisedError:
    """The inner ends of the stacks. The outer frames are the same for all cases."""
    return msgspec.structs.replace(raised, python=raised.python[-INNER:], native=raised.native[-INNER:])


if __name__ == "__main__":
    main(sys.argv[1:])
