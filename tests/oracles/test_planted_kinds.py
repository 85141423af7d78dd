"""Each kind of failure occurs if its fault is planted in torch, and its golden file still gets its signature.

    DDEFUZZ_GOLDEN=write python -m pytest -n 0 tests/oracles/test_planted_kinds.py

writes the golden files: what was observed with the fault, the runs that looked for the site, and what was reported.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Kind
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import Observation, Run
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import attributed
from ddefuzz.oracles.program import observe
from ddefuzz.oracles.table import kinds, oracle_of
from tests.oracles.planted_kinds import CODE, NOT_PLANTED, PLANTS, InWorker, Planted, lost, seen

GOLDEN = Path(__file__).parent / "golden"
COSTLY = {"key-differs-by-process", "slow-export"}
"""Kinds whose faults need more than 10 CPU seconds."""

INNER = 20
"""How many frames of a stack a golden file keeps."""

FOLDERS = re.compile(
    rf"{re.escape(str(Path(__file__).parents[2]))}/|/[^\s\"':,]*/(?:site-packages/|pytest-of-[^/]+/[^\s\"':,]*/(?=[^/]+\.py)|lib/python3\.\d+/)"
)
"""Folders of one machine: of this repository, of installed packages, of Python's library and of pytest."""


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was observed with a planted fault, and the runs that the search for the site made, in order."""

    torch: str
    text: str
    observation: Observation
    second: Observation | None
    runs: tuple[Observation, ...]
    signature: Signature
    cause: Cause
    evidence: str


def reported(kind: Kind, found: OracleInput, runner: Any) -> Classification:
    """The failure of this kind that its oracle reports, with its site."""
    oracle = oracle_of(kind)
    failure = next(one for one in oracle.judge(found) if one.kind == kind)
    return attributed(oracle, failure, found, runner)


def path_of(kind: Kind) -> Path:
    return GOLDEN / f"{kind}.json.gz"


def portable(text: str) -> str:
    """The text with paths that are the same on each machine."""
    return FOLDERS.sub("", text)


def trimmed(value: Any) -> Any:
    """Builtins without what no oracle reads, with the inner frames of each stack, and with portable paths."""
    if isinstance(value, str):
        return portable(value)
    if isinstance(value, dict):
        left = {key: trimmed(one) for key, one in value.items() if key not in {"graph", "output", "peak_rss_mb"}}
        if "stage" in value and value.get("outcome") in {"crash", "timeout"}:
            left["output"] = portable(value.get("output", ""))
        return left
    if isinstance(value, list | tuple):
        stack = bool(value) and isinstance(value[0], dict) and {"function", "file", "line"} <= set(value[0])
        return [trimmed(one) for one in (value[-INNER:] if stack else value)]
    return value


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(one, marks=pytest.mark.long if one in COSTLY else ()) for one in PLANTS])
def test_a_planted_fault_shows_the_kind(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    planted, runs = PLANTS[kind], []

    def runner(run: Run) -> Observation:
        runs.append(observe(run))
        return runs[-1]

    if isinstance(planted, InWorker):
        path = tmp_path / "code.py"
        path.write_text(CODE)
        found = lost(planted, str(path), request.getfixturevalue("pool"))
        named = reported(kind, found, runner)
    else:
        with seen(planted, oracle_of(kind), monkeypatch, tmp_path) as found:
            named = reported(kind, found, runner)
    if os.environ.get("DDEFUZZ_GOLDEN") == "write":
        golden = Golden(
            str(torch.__version__),
            found.text,
            found.observation,
            found.second,
            tuple(runs),
            named.signature,
            named.cause,
            named.failure.evidence,
        )
        GOLDEN.mkdir(exist_ok=True)
        path_of(kind).write_bytes(gzip.compress(msgspec.json.encode(trimmed(msgspec.to_builtins(golden))), mtime=0))
    golden = read(kind)
    assert portable(str(named.signature)) == str(golden.signature)
    assert named.cause == golden.cause


def read(kind: Kind) -> Golden:
    return msgspec.json.decode(gzip.decompress(path_of(kind).read_bytes()), type=Golden)


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_has_a_golden_file_with_its_signature(kind: Kind) -> None:
    golden = read(kind)
    assert not FOLDERS.search(gzip.decompress(path_of(kind).read_bytes()).decode())
    runs = iter(golden.runs)
    named = reported(kind, OracleInput(golden.text, golden.observation, golden.second), lambda run: next(runs))
    assert named.signature == golden.signature
    assert (named.cause, named.failure.evidence) == (golden.cause, golden.evidence)
    assert next(runs, None) is None, "the site was found with fewer runs"


def test_every_kind_has_a_planted_fault_or_a_reason() -> None:
    assert set(PLANTS) | set(NOT_PLANTED) == set(kinds())
    assert not set(PLANTS) & set(NOT_PLANTED)
    assert len(NOT_PLANTED) <= 2, f"too many kinds that nothing plants: {dict(NOT_PLANTED)}"
    assert all(len(reason.split()) > 3 for reason in NOT_PLANTED.values())
    assert all(isinstance(one, Planted | InWorker) for one in PLANTS.values())
