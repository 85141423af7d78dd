"""Corpus tools: which cases are enough, and the commands that add, promote, prune, format and list case files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.campaign.replay import CaseFile, Coverage, enough
from ddefuzz.cli.corpus import command
from ddefuzz.errors import EXIT_FOUND, InputError, lines_of, refusals
from ddefuzz.findings.database import Database
from ddefuzz.ops import catalogue
from tests.findings.arbitrary_findings import OTHER_PROGRAM, PROGRAM, sighting

CASE = PROGRAM.replace("\n", "\n# expect: export/explicit dde at at::native::chunk\n", 1)
OTHER = OTHER_PROGRAM.replace("\n", "\n# expect: export/explicit ok\n", 1)


def covers(name: str, items: str, held: str = "", text: str = CASE) -> Coverage:
    return Coverage(
        CaseFile(Path(name), text, catalogue.parse(text, name), ()), frozenset(("export", one) for one in items), held
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([("a", "12"), ("b", "123"), ("c", "4")], "bc"),
        ([("a", "12"), ("b", "12")], "a"),
        ([("a", ""), ("b", "1")], "b"),
        ([("a", "12"), ("b", "34"), ("c", "123"), ("d", "4")], "bc"),
    ],
)
def test_the_kept_files_cover_what_all_cover(given: list[tuple[str, str]], kept: str) -> None:
    all_ = [covers(name, items) for name, items in given]
    stay, gone = enough(all_)
    assert "".join(str(one.file.path) for one in stay) == kept
    assert frozenset().union(*(one.items for one in stay)) == frozenset().union(*(one.items for one in all_))
    assert {str(path) for path in gone} == {name for name, _ in given} - set(kept)


def test_a_file_that_is_held_stays() -> None:
    stay, gone = enough([covers("a", "1", held="expected to pass"), covers("b", "1"), covers("c", "")])
    assert [str(one.file.path) for one in stay] == ["a"]
    assert dict(gone) == {Path("b"): (Path("a"),), Path("c"): ()}


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(command, list(map(str, words)), catch_exceptions=False)


def test_fmt_writes_the_canonical_form(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(CASE.replace("x, 2", "x,    2"))
    assert typed("fmt", "--check", tmp_path).exit_code == EXIT_FOUND
    assert typed("fmt", tmp_path).stdout == f"rewrote: {path}\n"
    assert path.read_text() == CASE
    assert typed("fmt", "--check", tmp_path).exit_code == 0


def test_fmt_writes_any_name_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "\x1b]0;x\x07\n::error::x.py").write_text(CASE.replace("x, 2", "x,    2"))
    name = tmp_path / r"\x1b]0;x\x07\n::error::x.py"
    assert typed("fmt", "--check", tmp_path).stdout == f"not in the canonical form: {name}\n"
    assert typed("fmt", tmp_path).stdout == f"rewrote: {name}\n"


def test_a_file_that_is_no_program_ends_no_list(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"bad{number}.py").write_text("# ddefuzz program v1\nimport os\n")
    (tmp_path / "good.py").write_text(CASE)
    with refusals() as left_out:
        (one,) = json.loads(typed("list", tmp_path, "--format", "json").stdout)
    assert one["path"] == str(tmp_path / "good.py")
    lines = "\n".join(lines_of(left_out))
    assert all(f"{tmp_path / f'bad{number}.py'}:" in lines for number in range(30))


def test_list_shows_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CASE)
    (tmp_path / "notes.py").write_text("print('no program')\n")
    (one,) = json.loads(typed("list", tmp_path, "--format", "json").stdout)
    assert (one["steps"], one["expect"]) == (0, ["export/explicit dde at at::native::chunk"])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'f.db'}"


def test_promote_makes_a_case_of_a_finding(tmp_path: Path, url: str) -> None:
    with Database.open(url) as database:
        name = database.record(sighting(), datetime.now(UTC)).finding_id
    corpus = tmp_path / "corpus"
    words = ("promote", name, "--db", url, "--corpus", corpus)
    assert typed(*words).stdout == f"wrote {corpus / name}.py\n"
    assert (corpus / f"{name}.py").read_text() == CASE
    with pytest.raises(InputError, match="found the same program there"):
        typed(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "CORPUS", "missing.py"), "missing.py: found no such file"),
        (("add", "CORPUS", "FILE"), "found no line '# ddefuzz program v1'"),
        (("prune", "missing"), "missing: found no such file or folder"),
        (("fmt", "BROKEN"), r"broken.py.*expected"),
        (("promote", "dde-0000000000", "--corpus", "CORPUS", "--db", "URL"), "found no finding|dde-0000000000"),
    ],
)
def test_bad_input_is_said_and_nothing_is_written(
    tmp_path: Path, url: str, words: tuple[str, ...], message: str
) -> None:
    Database.open(url).close()
    (tmp_path / "no_program.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("# ddefuzz program v1\n# expect: export/explicit perhaps\n")
    corpus = tmp_path / "corpus"
    places = {
        "CORPUS": str(corpus),
        "FILE": str(tmp_path / "no_program.py"),
        "BROKEN": str(tmp_path / "broken.py"),
        "URL": url,
    }
    with pytest.raises(InputError, match=message):
        typed(*(places.get(word, word) for word in words))
    assert not corpus.exists()


def test_two_programs_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder, text in {"a": PROGRAM, "b": OTHER_PROGRAM}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text(text)
    with pytest.raises(InputError, match=r"corpus/one\.py: found this file, expected none there"):
        typed("add", tmp_path / "corpus", tmp_path / "a" / "one.py", tmp_path / "b" / "one.py")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.slow
def test_add_and_prune_with_torch(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    for name, text in {"first": PROGRAM, "second": PROGRAM.replace("x, 2", "x, 3")}.items():
        (tmp_path / f"{name}.py").write_text(text)
        assert typed("add", corpus, tmp_path / f"{name}.py", "--stage", "export").exit_code == 0
    (corpus / "passes.py").write_text(OTHER.replace("roll(x, 1)", "relu(x)"))
    assert (corpus / "first.py").read_text() == CASE
    assert "would go: " in typed("prune", corpus, "--dry-run").stdout
    assert len(list(corpus.iterdir())) == 3
    document = json.loads(typed("prune", corpus, "--format", "json").stdout)
    assert sorted(path.name for path in corpus.iterdir()) == ["first.py", "passes.py"]
    assert list(document["gone"]) == [str(corpus / "second.py")]
    assert str(corpus / "first.py") in document["gone"][str(corpus / "second.py")]


def test_a_file_that_is_named_and_is_no_case_is_refused(tmp_path: Path) -> None:
    """Its first line may be almost a header. In a folder it is taken for code that lies beside the cases."""
    almost = tmp_path / "almost.py"
    almost.write_text(CASE.replace("# ddefuzz", "#ddefuzz"))
    with refusals() as refused:
        assert json.loads(typed("list", almost, "--format", "json").stdout) == []
        assert json.loads(typed("list", tmp_path, "--format", "json").stdout) == []
    assert list(lines_of(refused)) == [f"left out (1 of 1): {almost}:1: found no case, expected '# ddefuzz program v1'"]
