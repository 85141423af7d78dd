"""Issues and tests for PyTorch: what they say about each kind of finding.

`DDEFUZZ_GOLDEN=write python -m pytest tests/repro/test_upstream.py -k golden` writes the golden files anew.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ddefuzz.errors import InputError
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import read_finding
from ddefuzz.oracles.table import kinds
from ddefuzz.repro.finding import exportdb_example, issue, unit_test

FOLDER = Path(__file__).parents[2] / "findings"

CAPTURES = "Capturing this program fails in"


def finding(id_: str) -> Finding:
    return read_finding(FOLDER / id_)


def of_kind(kind: str) -> Finding:
    """A finding as if it were of another kind: one of a captured program, or of a failed capture for `regressed`."""
    found = finding("dde-0281d59a74" if kind == "regressed" else "missing-assertion-5a18ae232c")
    assert found.evidence is not None
    evidence = msgspec.structs.replace(found.evidence, kind=kind)
    return msgspec.structs.replace(found, signature=msgspec.structs.replace(found.signature, kind=kind), shown=evidence)


GOLDEN = Path(__file__).parent / "golden"

FORMS: dict[str, Callable[[Finding], str]] = {
    "issue.md": lambda one: issue(one, "(what collect_env prints)", "2.13.0 fails, 2.15.0 passes"),
    "unittest.py": unit_test,
    "exportdb.py": exportdb_example,
}


@pytest.mark.parametrize(
    ("form", "id_"),
    [
        ("issue.md", "dde-08f7b02bbb"),
        ("issue.md", "dde-15a767252d"),
        ("issue.md", "recompiles-05043ab947"),
        ("issue.md", "missing-assertion-5a18ae232c"),
        ("unittest.py", "dde-08f7b02bbb"),
        ("unittest.py", "dde-15a767252d"),
        ("unittest.py", "recompiles-05043ab947"),
        ("exportdb.py", "dde-08f7b02bbb"),
    ],
)
def test_the_whole_text_is_the_golden_one(form: str, id_: str) -> None:
    text, kept = FORMS[form](finding(id_)), GOLDEN / f"{id_}.{form}.txt"
    if os.environ.get("DDEFUZZ_GOLDEN") == "write":
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(text)
    assert text == kept.read_text()


def test_a_failed_capture_is_said_to_fail() -> None:
    text = issue(finding("dde-0281d59a74"))
    assert f"{CAPTURES} export, export-strict, compile, aot:" in text
    assert "which evaluates `u0` on an unbacked size" in text


def test_compiling_again_is_told_with_its_count() -> None:
    text = issue(finding("recompiles-05043ab947"))
    assert CAPTURES not in text
    assert "(seen in torch.compile, torch.compile(dynamic=True)):" in text
    assert "makes torch.compile compile again: Eq(s77, 7): compiles 3 times at sizes 5, 7, 9; 2 would do." in text
    assert "assert counter.frame_count <= 2" in text
    assert "size-oblivious" not in text
    assert "was not judged" not in text


def test_what_the_capture_alone_shows_has_the_capture() -> None:
    text = issue(finding("repeated-assertion-62861a96b9"))
    assert "The captured program checks one condition twice (seen in inductor):" in text
    assert "torch.compile(program, fullgraph=True)(*inputs)" in text
    assert "repeats an assertion: 16777216 >= u0 in the generated form." in text
    assert "With all sizes static the same program does not show this" in text


@pytest.mark.parametrize(
    "kind", [kind for kind, row in kinds().items() if row.cause is not None and isinstance(row.title, str)]
)
def test_a_kind_that_is_no_failed_capture_is_told_by_its_own_row(kind: str) -> None:
    text, row = issue(of_kind(kind)), kinds()[kind]
    assert CAPTURES not in text
    assert f"{row.meaning[1:]} (seen in " in text
    assert isinstance(row.title, str)
    assert row.title.partition("}")[2].partition("{")[0].rstrip() in text


def test_a_test_that_counts_compilations_is_python() -> None:
    text = unit_test(finding("recompiles-05043ab947"))
    ast.parse(text)
    assert "class TestKronRecompiles" in text
    assert "assert counter.frame_count <= 2" in text


@pytest.mark.parametrize("name", ["recompiles-05043ab947", "missing-assertion-5a18ae232c"])
def test_exportdb_is_for_failed_exports(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: found the kind .*, expected a failed export for ExportDB"):
        exportdb_example(finding(name))


def test_what_no_script_shows_has_no_test() -> None:
    with pytest.raises(InputError, match="only the captured graph shows it"):
        unit_test(finding("repeated-assertion-62861a96b9"))
