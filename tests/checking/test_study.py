"""The study: its table and totals, and one run over a folder with two models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddefuzz.checking import study
from ddefuzz.checking.study import HeldOut, ModelResult, Plain, Settings, models_in, sections, study_view, totals
from ddefuzz.cli.main import main
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.show.markdown import markdown
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting

HERE = Settings("2.13.0", "unbacked", 120.0, 30.0, "transformers 5.23.0")

ROWS = (
    ModelResult("own", "fine", HERE, "ok", Plain("", 0.5), Plain("", 1.0), check_seconds=0.6),
    ModelResult(
        "own",
        "branch",
        HERE,
        "fail",
        Plain("GuardOnDataDependentSymNode: x", 0.5),
        Plain("", 1.0, 2),
        3,
        (HeldOut("rewrite", "drop", 7, 1),),
        4,
        0.5,
    ),
    ModelResult("own", "other", HERE, "ok", Plain("RuntimeError: x", 0.01), Plain("RuntimeError: x"), tried=0),
)


def test_the_totals_count_outcomes_changes_and_problems() -> None:
    assert totals(ROWS) == (
        "outcome as a plain capture: 2 of 3",
        "not captured: 1; with a change that passes: 1 (1 rewrite)",
        "rewrites offered: 1; that differ on held-out inputs: 1",
        "problems: 3 by check, 2 by draft_export, which fails on 1",
        "CPU ratio: 1.20 (median of 2)",
    )


def test_the_table_has_a_row_for_each_model() -> None:
    lines = markdown(study_view(ROWS, "ddefuzz study", "2026-11-22")).splitlines()
    assert "| own | fine | ok | ok | 0 | 0 |  |  |  | 1.20 |" in lines
    assert "| own | branch | fail | fails | 2 | 3 | rewrite | 1 | 7 of 8 | 1.00 |" in lines
    assert "| own | other | ok | fails | fails | 0 |  |  |  |  |" in lines


def test_each_torch_and_kind_of_sizes_has_a_table_with_the_last_row_of_a_model() -> None:
    backed = msgspec.structs.replace(HERE, sizes="backed")
    newer = msgspec.structs.replace(HERE, source="transformers 5.24.0")
    rows = [
        msgspec.structs.replace(ROWS[0], settings=backed),
        ROWS[0],
        msgspec.structs.replace(ROWS[0], settings=newer, check="fail"),
    ]
    (unbacked, of_unbacked), (other, _) = sections(rows).items()
    assert unbacked == "torch 2.13.0, unbacked sizes, 30 s of changes for each model, 120 s for each capture"
    assert [row.check for row in of_unbacked] == ["fail"]
    assert other.startswith("torch 2.13.0, backed sizes, ")


def studied_names(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """The models that `ddefuzz study` does, and does not take from the file of kept rows."""
    done = []

    def studied(pool: object, one: Any, live: object) -> ModelResult:
        done.append(one.target.case)
        return ModelResult(one.group, one.target.case, one.settings, "ok", Plain(), Plain())

    monkeypatch.setattr(study, "study_model", studied)
    monkeypatch.setattr("sys.argv", ["ddefuzz", "study", "--group", "own", "--format", "json", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return done


@pytest.mark.parametrize(
    "other", [("--budget", "9"), ("--timeout", "9"), ("--sizes", "backed")], ids=lambda words: words[0]
)
def test_a_kept_row_is_used_again_only_under_equal_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: tuple[str, str]
) -> None:
    file = tmp_path / "m.py"
    file.write_text("f_args = ()\ng_args = ()\n")
    words = ("--models", str(tmp_path), "--keep", str(tmp_path / "kept.jsonl"))
    assert studied_names(monkeypatch, *words) == ["f", "g"]
    assert studied_names(monkeypatch, *words) == []
    assert studied_names(monkeypatch, *words, *other) == ["f", "g"]
    file.write_text("f_args = (1,)\n")
    assert studied_names(monkeypatch, *words) == ["f"]


def test_a_model_that_cannot_be_made_does_not_end_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").write_text("f_args = ()\ng_args = ()\n")
    (tmp_path / "n.py").write_text("f_args = (\n")

    def studied(pool: object, one: Any, live: object) -> ModelResult:
        if one.target.case == "f":
            raise InputError("m.py: found arguments whose construction raises ValueError: no")
        return ModelResult(one.group, one.target.case, one.settings, "ok", Plain(), Plain())

    monkeypatch.setattr(study, "study_model", studied)
    monkeypatch.setattr("sys.argv", ["ddefuzz", "study", "--group", "own", "--models", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert "outcome as a plain capture: 1 of 1" in shown.out
    assert shown.err.splitlines()[-2:] == [
        f"ddefuzz: left out (1 of 2): {tmp_path}/n.py: found no Python ('(' was never closed), "
        "expected a file with models",
        "ddefuzz: left out (2 of 2): f: m.py: found arguments whose construction raises ValueError: no",
    ]


def test_findings_get_the_names_of_the_models_that_meet_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").write_text("f_args = ()\ng_args = ()\n")
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)

    def studied(pool: object, one: Any, live: object) -> ModelResult:
        keys = {"f": (CHUNK.key, "dde-0123456789"), "g": ()}[one.target.case]
        return ModelResult(one.group, one.target.case, one.settings, "fail", Plain(), Plain(), keys=keys)

    monkeypatch.setattr(study, "study_model", studied)
    words = ["ddefuzz", "study", "--group", "own", "--models", str(tmp_path), "--db", url]
    monkeypatch.setattr("sys.argv", words)
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        with Database.open(url) as database:
            assert [database.get(one.key).models for one in (CHUNK, ROLL)] == [("f",), ()]
    assert f"1 finding of {url} is met by models" in capsys.readouterr().err


def test_a_file_of_kept_rows_without_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text('{"group":"own","name":"f","check":"ok","plain":{},"draft":{}}\n')
    monkeypatch.setattr("sys.argv", ["ddefuzz", "study", "--keep", str(kept)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{kept}:1: found Object missing required field `settings`" in capsys.readouterr().err


def test_a_file_is_read_for_its_models_and_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("raise SystemExit\nf_args = ()\nother = 1\ng_args = (1,)\n")
    assert list(models_in(path)) == ["f", "g"]


@pytest.mark.slow
def test_backed_sizes_are_those_of_dim_auto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\n\n\ndef long(x):\n    return x * 2 if x.shape[0] > 3 else x\n\n\n"
        "long_args = (torch.ones(5),)\nlong_unbacked = {'x': [0]}\n\n\n"
        "def kept(x, keep):\n    return x + 1 if x[keep].shape[0] > 3 else x\n\n\n"
        "kept_args = (torch.ones(5), torch.arange(5) > 1)\n"
    )
    ended = {}
    for sizes in ("unbacked", "backed"):
        words = ["ddefuzz", "study", "--models", str(tmp_path), "--group", "own", "--sizes", sizes, "--budget", "0"]
        monkeypatch.setattr("sys.argv", [*words, "--format", "json"])
        with pytest.raises(SystemExit):
            main()
        rows = json.loads(capsys.readouterr().out)["models"]
        ended[sizes] = {row["name"]: (row["check"], not row["plain"]["error"]) for row in rows}
    assert ended == {
        "unbacked": {"long": ("fail", False), "kept": ("fail", False)},
        "backed": {"long": ("ok", True), "kept": ("fail", False)},
    }


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
