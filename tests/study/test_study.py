"""The study: its table and totals, and one run over a folder with two models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddefuzz.cli.main import main
from ddefuzz.cli.study import _models_in
from ddefuzz.study.model import Offered, Plain, Studied, page, totals

ROWS = (
    Studied("own", "fine", "ok", Plain("", 0.5), Plain("", 1.0), check_seconds=0.6),
    Studied(
        "own",
        "branch",
        "fail",
        Plain("GuardOnDataDependentSymNode: x", 0.5),
        Plain("", 1.0, 2),
        3,
        (Offered("rewrite", "drop", 7, 1),),
        4,
        0.5,
    ),
    Studied("own", "other", "ok", Plain("RuntimeError: x", 0.01), Plain("RuntimeError: x"), tried=0),
)


def test_the_totals_count_outcomes_changes_and_problems() -> None:
    assert totals(ROWS) == (
        "- outcome as a plain capture: 2 of 3",
        "- not captured: 1; with a change that passes: 1 (1 rewrite)",
        "- rewrites offered: 1; that differ on held-out inputs: 1",
        "- problems: 3 by check, 2 by draft_export, which fails on 1",
        "- CPU ratio: 1.20 (median of 2)",
    )


def test_the_table_has_a_row_for_each_model() -> None:
    lines = page(ROWS, "ddefuzz study", "2026-11-22").splitlines()
    assert "| own | fine | ok | ok | 0 | 0 |  |  |  | 1.20 |" in lines
    assert "| own | branch | fail | fails | 2 | 3 | rewrite | 1 | 7 of 8 | 1.00 |" in lines
    assert "| own | other | ok | fails | fails | 0 |  |  |  |  |" in lines


def test_a_file_is_read_for_its_models_and_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("raise SystemExit\nf_args = ()\nother = 1\ng_args = (1,)\n")
    assert list(_models_in(path)) == ["f", "g"]


@pytest.mark.slow
def test_a_folder_is_studied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\n\n\ndef f(x, keep):\n    kept = x[keep]\n    if kept.numel() == 0:\n        return x.sum()\n"
        "    return x.sum() + kept.sum()\n\n\nf_args = (torch.ones(5), torch.arange(5) > 1)\n"
    )
    words = ["ddefuzz", "study", "--models", str(tmp_path), "--group", "own", "--format", "json"]
    kept = tmp_path / "kept.jsonl"
    words += ["--keep", str(kept)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert [json.loads(line) for line in kept.read_text().splitlines()] == [row]
    assert (ended.value.code or 0, row["check"], row["plain"]["error"] != "") == (0, "fail", True)
    assert (row["offered"][0]["kind"], row["offered"][0]["differs"]) == ("rewrite", 0)
    assert row["offered"][0]["agrees"] >= 8
