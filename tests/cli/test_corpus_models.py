"""`ddefuzz corpus add` with models of the user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.campaign.replay import kept_cases
from ddefuzz.cli import corpus, replay
from ddefuzz.errors import InputError

MODELS = """\
import torch


def model(x):
    return torch.diff(x[x > 0])


def other(x):
    return torch.relu(x[x > 0])


model_args = other_args = (torch.tensor([1.0, -1.0, 2.0]),)
"""


def add(*words: str) -> Result:
    return CliRunner().invoke(corpus.command, ["add", *words], catch_exceptions=False)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text(MODELS)
    (tmp_path / "elsewhere.py").write_text(MODELS)
    return tmp_path / "models"


@pytest.mark.slow
def test_a_model_is_a_case_of_what_it_does_today(models: Path) -> None:
    assert add("models", "models/net.py:model", "--stage", "export").exit_code == 0
    assert add("models", "models/net.py:other", "--stage", "export").exit_code == 0
    listed = (models / "trusted.toml").read_text()
    assert listed.count("[[module]]\n") == 2
    assert listed.endswith('path = "net.py"\nexpected = "net.other.json"\nname = "other"\n')
    outcome = json.loads((models / "net.model.json").read_text())["model"]["export"]
    assert (outcome["kind"], outcome["site"]["function"]) == ("dde", "at::native::diff_helper")
    cases = kept_cases([models], trust=True)
    assert [case.id for case in cases] == [f"{models}/net.py:{name}@export" for name in ("model", "other")]
    assert kept_cases([models]) == ()

    # A model that changes is seen.
    again = CliRunner().invoke(replay.command, ["models", "--trust"], catch_exceptions=False)
    assert "2 cases: 2 as expected" in again.stdout
    (models / "net.py").write_text(MODELS.replace("torch.relu", "torch.diff"))
    changed = CliRunner().invoke(replay.command, ["models", "--trust"], catch_exceptions=False)
    assert changed.exit_code == 1
    assert "net.py:other@export" in changed.stdout

    with pytest.raises(
        InputError, match=r"net\.py:model: found it in models, expected a model that the corpus does not"
    ):
        add("models", "models/net.py:model")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("models/none.py:model", "models/none.py: found no such file, expected one with the model 'model'"),
        (
            "elsewhere.py:model",
            "elsewhere.py: found a file that is not below models, expected one",
        ),
        ("models/net.py:a/b", "models/net.py:a/b: found the name 'a/b', expected that of a function or model"),
        ("models/net.py:", "found the name '', expected that of a function or model in models/net.py"),
    ],
)
def test_a_wrong_model_is_one_line(models: Path, typed: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        add("models", typed)
    assert said in str(caught.value)
    assert [path.name for path in models.iterdir()] == ["net.py"]
