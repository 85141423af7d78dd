"""Which arguments have no other value than the default: of functions of C++ and of Python, by position and by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ci.bench import arguments
from ci.bench.arguments import Arguments
from ci.bench.command import Session
from ddefuzz.cli.output import LiveLine
from ddefuzz.generate import opinfo
from ddefuzz.ops.spec import FLAG, DimOf, OpSpec, Tensor, choice, op
from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Call
from tests.bench.typed_bench import text_of

X = Tensor(3)


def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *rows: OpSpec, samples: str = "") -> dict[str, str]:
    """The values that rows and samples give, by function and argument, and the text of the table as `text`."""

    def of_samples(name: str) -> Iterator[Call]:
        yield from arguments._calls(parse_expression(name))

    monkeypatch.setattr(arguments, "OPS", rows)
    monkeypatch.setattr(arguments, "TEMPLATES", ())
    monkeypatch.setattr(opinfo, "entries", lambda: {samples: None} if samples else {})
    monkeypatch.setattr(arguments, "_of_samples", of_samples)
    with LiveLine("") as live:
        measured = arguments.run(Session(live, tmp_path))
    assert isinstance(measured.record, Arguments)
    made = {f"{one.function} {one.name}": " ".join((*one.catalogue, *one.opinfo)) for one in measured.record.arguments}
    return made | {"text": text_of(list(measured.blocks))}


@pytest.mark.parametrize(
    "row", [op("torch.sum(x, d, True)", x=X, d=DimOf("x")), op("x.sum(d, keepdim=k)", x=X, d=DimOf("x"), k=FLAG)]
)
def test_a_value_may_be_given_by_position_or_by_name_also_to_a_method(
    row: OpSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert values(tmp_path, monkeypatch, row)["torch.sum keepdim"] == "True"


def test_the_default_is_no_other_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = op("torch.nn.functional.interpolate(x, size=4, mode=m, antialias=False)", x=X, m=choice("nearest", "area"))
    given = values(tmp_path, monkeypatch, row, samples="torch.nn.functional.interpolate(x, size=4, align_corners=True)")
    prefix = "torch.nn.functional.interpolate"
    assert given[f"{prefix} mode"] == "'area'"
    assert given[f"{prefix} antialias"] == ""
    assert given[f"{prefix} align_corners"] == "True"
    assert f"{prefix} size" in given
    assert "No row of the catalogue gives 4 of them another value" in given["text"]
    assert "a sample of OpInfo for 3 of these" in given["text"].replace("\n", " ")


def test_modules_have_the_parameters_of_their_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = values(tmp_path, monkeypatch, op("torch.nn.Conv2d(2, 3, 2, padding_mode='reflect')(x)", x=X))
    assert given["torch.nn.Conv2d padding_mode"] == "'reflect'"
    assert given["torch.nn.Conv2d bias"] == ""
