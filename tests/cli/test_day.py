"""A day with findings, typed as a person and a CI job would: from a campaign to a finding that is fixed in another
torch, closed, and comes back.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.planted_torch import Change, planted
from tests.typed import end, typed

SEED = "66"
CASES = "10x"
"""The cases of this seed have the finding that is followed, and others."""

FUZZED = "ddefuzz-report/fuzz.db"
FOLLOWED = "torch/nn/functional.py:local_response_norm"
FILE = "nn/functional.py"
BRANCH = "    if input.numel() == 0:\n        return input\n\n    div = input.mul(input)\n"
FIXED = "    div = input.mul(input)\n"
BROKEN = "    if input.numel() == 7:\n        return input\n\n" + BRANCH


def ran(folder: Path, *words: str, keys: str = "", python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """`ddefuzz WORDS`, by another Python if one is named."""
    return typed(*words, folder=folder, keys=keys, python=python)


def lines(ran: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in ran.stdout.splitlines()]


def reported(folder: Path) -> dict[str, bool]:
    """The findings in the report of a campaign, with whether each is new."""
    texts = (folder / "ddefuzz-report" / "run.jsonl").read_text().splitlines()
    return {one["finding"]: one["is_new"] for one in map(json.loads, texts)}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_day(tmp_path: Path) -> None:  # noqa: PLR0915 one day, one story
    repository = tmp_path / "repository"
    repository.mkdir()
    database = repository / ".ddefuzz" / "ddefuzz.db"
    assert ran(repository, "init", "--no-baseline").returncode == 0
    with (repository / "ddefuzz.toml").open("a") as settings:
        settings.write('stage = ["export"]\n')

    # A campaign: everything is new.
    campaign = ran(repository, "run", "--budget", CASES, "--seed", SEED, "--no-minimize", "--fail-on", "new")
    assert campaign.returncode == 1, campaign.stderr
    found = {str(one["id"]): one for one in lines(ran(repository, "findings", "list", "--format", "jsonl"))}
    assert len(found) > 2
    (followed,) = (name for name, one in found.items() if FOLLOWED in str(one["title"]))

    # Triage, one key a finding.
    keys = "r https://github.com/pytorch/pytorch/issues/1\n" + "t\n" * (len(found) - 1)
    triage = ran(repository, "triage", "--all", "--by", "ada", followed, *(found.keys() - {followed}), keys=keys)
    assert triage.returncode == 0, triage.stderr
    assert f"{len(found)} findings decided, 0 left" in triage.stderr
    assert ran(repository, "findings", "export").returncode == 0
    known = tomllib.loads((repository / "findings" / "known.toml").read_text())
    assert known.keys() == found.keys()
    assert known[followed]["state"] == "reported"

    # A pull request elsewhere, with a new database: green, because all is known.
    database.unlink(missing_ok=True)
    green = ran(repository, "ci", "pull-request")
    assert green.returncode == 0, green.stderr
    assert "replay exit 0" in green.stderr
    green = ran(repository, "ci", "fuzz", "--seed", SEED, "--budget", CASES)
    assert green.returncode == 0, green.stderr
    assert "import exit 0, run exit 0" in green.stderr
    assert reported(repository)[followed] is False

    # A torch with another data-dependent branch: red, and only by what is not known.
    broken = planted(tmp_path / "broken", "2.13.0", Change(FILE, BRANCH, BROKEN))
    database.unlink(missing_ok=True)
    red = ran(repository, "ci", "fuzz", "--seed", SEED, "--budget", CASES, python=broken)
    assert red.returncode == 1, red.stderr
    (new,) = (name for name, is_new in reported(repository).items() if is_new)
    assert new not in found
    shown = ran(repository, "findings", "show", new, "--db", f"sqlite:///{FUZZED}").stdout
    assert FOLLOWED in shown
    assert "input.numel() == 7" in shown
    end(broken)

    # A newer torch has a fix, and the matrix sees it.
    database.unlink(missing_ok=True)
    assert ran(repository, "findings", "import").returncode == 0
    fixed = planted(tmp_path / "fixed", "2.13.1", Change(FILE, BRANCH, FIXED))
    other = next(name for name in found if name.startswith("dde-") and name != followed)
    pythons = ("--python", sys.executable, "--python", fixed)
    matrix = ran(repository, "matrix", "--id", followed, "--id", other, *pythons, "--runs", "1", "--format", "jsonl")
    assert matrix.returncode == 0, matrix.stderr
    rows = {row["id"]: row for row in lines(matrix)}
    assert (rows[followed]["change"], rows[followed]["fixed_in"]) == ("fixed", ["2.13.1"])
    assert (rows[other]["change"], rows[other]["fixed_in"]) == ("fails", [])

    # It is closed. A replay under that torch expects that it passes.
    closed = ran(repository, "findings", "set", followed, "fixed", "--in", "2.13.1", "--why", "matrix", "--by", "ada")
    assert closed.returncode == 0, closed.stderr
    assert ran(repository, "findings", "export").returncode == 0
    assert tomllib.loads((repository / "findings" / "known.toml").read_text())[followed]["state"] == "fixed"
    (replayed,) = lines(ran(repository, "replay", f"findings/{followed}", "--format", "jsonl", python=fixed))
    assert (replayed["status"], replayed["expected"]) == ("as expected", "export/explicit ok")
    end(fixed)

    # The branch is back in that torch: replay and campaign are red, and the finding is open again under the next id.
    database.unlink(missing_ok=True)
    regressed = planted(tmp_path / "regressed", "2.13.1")
    back = ran(repository, "ci", "pull-request", python=regressed)
    assert back.returncode == 1, back.stderr
    assert "replay exit 1" in back.stderr
    back = ran(repository, "ci", "fuzz", "--seed", SEED, "--budget", CASES, python=regressed)
    assert back.returncode == 1, back.stderr
    again = f"{followed}-2"
    opened = ran(repository, "findings", "list", "--open", "--db", f"sqlite:///{FUZZED}", "--format", "jsonl")
    listed = {one["id"]: one for one in lines(opened)}
    assert listed[again]["state"] == "new"
    assert (
        f"{followed} was fixed, and the failure occurred again"
        in ran(repository, "findings", "show", again, "--db", f"sqlite:///{FUZZED}").stdout
    )
    end(regressed)
