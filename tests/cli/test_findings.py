"""`ddefuzz findings`: text and JSON output, triage, and that torch is not imported."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.answers.model import Control
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.findings import command
from ddefuzz.cli.main import main
from ddefuzz.errors import DatabaseError, InputError, RowError, refusals
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.textform import KNOWN
from tests.findings.arbitrary_findings import (
    CHUNK,
    OTHER_PROGRAM,
    PROGRAM,
    ROLL,
    START,
    failure_of,
    sighting,
    with_failure,
)
from tests.typed import typed

SITE = SiteRecord("C++", "a.cpp", 3, "", "guard_or_true", fallbacks={"True": 2}, cases=2, example=PROGRAM, stage="fake")
HOSTILE = "[bold]]\x1b[31m"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database of two findings, one of them minimized and confirmed."""
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        database.set_minimal(CHUNK.key, PROGRAM, steps=1, attempts=11)
        database.set_confirmed(CHUNK.key, 3, 3)
    return url


def findings(url: str, *args: str, columns: int = 160) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(command, [*args, "--db", url], catch_exceptions=False)


def test_an_import_of_the_same_file_undoes_no_later_decision(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "findings"
    assert findings(url, "export", str(folder)).exit_code == 0
    (folder / KNOWN).write_text(f'[{CHUNK.key}]\nstate = "wont-fix"\nreason = "first thought"\n')
    for _ in range(2):
        assert findings(url, "import", str(folder)).exit_code == 0
    assert findings(url, "set", CHUNK.key, "reported", "--why", "filed after all").exit_code == 0
    for _ in range(2):
        assert findings(url, "import", str(folder)).exit_code == 0
    with Database.open(url) as database:
        known = database.get(CHUNK.key)
    assert known.state == "reported"
    assert [(one.who, one.after) for one in known.history if one.field == "state" and one.who == KNOWN] == [
        (KNOWN, "wont-fix")
    ]
    (folder / KNOWN).write_text(f'[{CHUNK.key}]\nstate = "by-design"\nreason = "second thought"\n')
    assert findings(url, "import", str(folder)).exit_code == 0
    with Database.open(url) as database:
        assert database.get(CHUNK.key).state == "by-design"


def test_a_merge_takes_each_decision_from_where_it_was_made(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with Database.open(url) as database, Database.open(other) as copy:
        copy.merge(database.findings())
    assert findings(url, "set", CHUNK.key, "reported", "--owner", "alice", "--by", "a").exit_code == 0
    assert findings(other, "link", CHUNK.key, "https://github.com/pytorch/pytorch/issues/7", "--by", "b").exit_code == 0
    assert findings(other, "set", CHUNK.key, "--priority", "high", "--by", "b").exit_code == 0
    for into, source in ((url, other), (other, url)):
        assert findings(into, "merge", source).exit_code == 0
        with Database.open(into) as database:
            known = database.get(CHUNK.key)
        assert (known.state, known.owner, known.priority, len(known.links)) == ("reported", "alice", "high", 1)


def test_duplicates_of_each_other_are_open_after_a_merge(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with Database.open(url) as database, Database.open(other) as copy:
        copy.merge(database.findings())
    assert findings(url, "dup", CHUNK.key, ROLL.key, "--by", "a").exit_code == 0
    assert findings(other, "dup", ROLL.key, CHUNK.key, "--by", "b").exit_code == 0
    assert findings(url, "merge", other).exit_code == 0
    with Database.open(url) as database:
        assert {one.id: (one.state, one.duplicate_of) for one in database.findings()} == {
            CHUNK.key: ("new", None),
            ROLL.key: ("new", None),
        }


def test_an_export_keeps_a_duplicate_of_a_damaged_finding(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "findings"
    assert findings(url, "dup", CHUNK.key, ROLL.key, "--by", "a").exit_code == 0
    assert findings(url, "export", str(folder)).exit_code == 0
    (folder / ROLL.key / "finding.toml").write_text("broken\n")
    with refusals() as refused:
        assert findings(f"sqlite:///{tmp_path}/new.db", "import", str(folder)).exit_code == 0
        assert findings(f"sqlite:///{tmp_path}/new.db", "export", str(folder)).exit_code == 0
    assert {place.name for place in folder.iterdir()} == {CHUNK.key, ROLL.key, KNOWN}
    assert len(refused) >= 2


@pytest.mark.parametrize("content", [b"\n", b"x" * 99])
def test_a_file_that_is_too_short_is_no_database(tmp_path: Path, content: bytes) -> None:
    """SQLite takes a file of one byte for a new database."""
    file = tmp_path / "short.db"
    file.write_bytes(content)
    for args in (("list",), ("import", str(tmp_path))):
        with pytest.raises((DatabaseError, InputError)):
            findings(f"sqlite:///{file}", *args)
    assert file.read_bytes() == content


def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table mine(a)")
        connection.commit()
    before = file.read_bytes()
    with pytest.raises(DatabaseError, match="expected a database of ddefuzz"):
        findings(f"sqlite:///{file}", "list")
    assert file.read_bytes() == before


def test_an_empty_file_is_no_database(tmp_path: Path) -> None:
    """It may be one that a full disk cut off: an export of it would remove every finding of the folder."""
    empty = tmp_path / "empty.db"
    empty.touch()
    for args in (("list",), ("export", str(tmp_path / "out")), ("merge", f"sqlite:///{empty}")):
        with pytest.raises(DatabaseError, match=r"empty\.db: found an empty file, expected a database"):
            findings(f"sqlite:///{tmp_path}/new.db" if args[0] == "merge" else f"sqlite:///{empty}", *args)
    assert empty.stat().st_size == 0


def test_a_state_that_it_has_already_is_no_error_beside_another_field(url: str) -> None:
    assert findings(url, "set", CHUNK.key, "triaged", "--by", "ada").exit_code == 0
    done = findings(url, "set", CHUNK.key, "triaged", "--owner", "bo", "--by", "bo")
    assert (done.exit_code, done.stderr) == (0, f"{CHUNK.key}: owner - → bo\n")
    with pytest.raises(InputError, match="cannot go from 'triaged' to 'triaged'"):
        findings(url, "set", CHUNK.key, "triaged")


def test_a_decision_cannot_have_ended_before_it_is_made(url: str) -> None:
    with pytest.raises(InputError, match="decision until: found 2020-01-31, expected a day from 20"):
        findings(url, "set", CHUNK.key, "wont-fix", "--expires", "2020-01-31")
    with Database.open(url) as database:
        assert database.get(CHUNK.key).state != "wont-fix"


def test_the_table_on_a_wide_page(url: str) -> None:
    shown = findings(url, "list").stdout
    header = next(line for line in shown.splitlines() if "state" in line)
    assert header.split() == ["id", "cause", "title", "stage", "steps", "confirmed", "state"]
    row = next(line for line in shown.splitlines() if CHUNK.key in line)
    assert row.split() == [
        *(CHUNK.key, "avoidable", "torch.chunk:", "at::native::chunk", "asks", "whether", "u0", "==", "0", "export"),
        *("1", "3/3", "new"),
    ]
    assert "2 findings. Next:" in shown
    assert f"ddefuzz findings show {CHUNK.key}" in shown


def test_by_impact_models_come_before_ops(url: str) -> None:
    """CHUNK is reached by three functions, ROLL by one and a model."""
    with Database.open(url) as database:
        for op in ("torch.split", "torch.tensor_split"):
            database.record(msgspec.structs.replace(sighting(CHUNK), ops=(op,)), START)

    def rows() -> list[list[str]]:
        lines = findings(url, "list", "--sort", "impact", columns=200).stdout.splitlines()
        return [line.split()[:4] for line in lines if line.startswith("dde-")]

    cause = "avoidable"
    assert rows() == [[CHUNK.key, cause, "0", "3"], [ROLL.key, cause, "0", "1"]]
    with Database.open(url) as database:
        database.decide(ROLL.key, lambda finding: msgspec.structs.replace(finding, models=("bert",)))
    assert rows() == [[ROLL.key, cause, "1", "1"], [CHUNK.key, cause, "0", "3"]]


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 160, 200])
def test_the_table_fits_the_page_and_shows_every_id(url: str, columns: int) -> None:
    lines = findings(url, "list", columns=columns).stdout.splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if "findings. Next:" in line)]
    assert max(map(len, table)) <= columns
    for signature in (CHUNK, ROLL):
        assert any(signature.key in line for line in table)


def test_json_lists_all_fields(url: str) -> None:
    documents = json.loads(findings(url, "list", "--format", "json").stdout)
    assert [json.loads(line) for line in findings(url, "list", "--format", "jsonl").stdout.splitlines()] == documents
    by_id = {document["id"]: document for document in documents}
    assert set(by_id) == {CHUNK.key, ROLL.key}
    chunk = by_id[CHUNK.key]
    assert chunk["schema"] == "ddefuzz.finding/3"
    assert chunk["site"] == {"language": "C++", "module": None, "function": "at::native::chunk"}
    assert (chunk["kind"], chunk["cause"], chunk["anchor"], chunk["state"]) == (
        "dde",
        "avoidable",
        CHUNK.anchor,
        "new",
    )
    assert (chunk["ops"], chunk["stages"], chunk["verdicts"]) == (["torch.chunk"], ["export"], {"export": "fails"})
    assert (chunk["steps"], chunk["program"], chunk["confirmed"]) == (1, PROGRAM, {"k": 3, "n": 3})
    assert (chunk["torch"], chunk["expression"]) == (["2.13.0"], "Eq(u0, 0)")
    assert by_id[ROLL.key]["program"] is None


def test_files_are_written_in_addition_to_stdout(url: str, tmp_path: Path) -> None:
    result = findings(url, "list", "--output", f"json={tmp_path}/a.json", "--output", f"text={tmp_path}/a.txt")
    assert len(json.loads((tmp_path / "a.json").read_text())) == 2
    assert (tmp_path / "a.txt").read_text() == result.stdout
    assert sorted(path.name for path in tmp_path.glob("[!d]*")) == ["a.json", "a.txt"]


@pytest.mark.parametrize(
    "args", [["--format", "xml"], ["--output", "xml=a"], ["--output", "json"], ["--state", "open"], ["--kind", "zzz"]]
)
def test_what_is_not_an_option_is_a_usage_error(url: str, args: list[str]) -> None:
    result = findings(url, "list", *args)
    assert result.exit_code == 2
    assert "expected" in result.stderr or "is not one of" in result.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--state", "new"], {CHUNK.key, ROLL.key}),
        (["--open"], {CHUNK.key, ROLL.key}),
        (["--state", "triaged"], set()),
        (["--cause", "avoidable", "--op", "torch.chunk"], {CHUNK.key, ROLL.key}),
        (["--op", "torch.roll"], set()),
        (["--kind", "crash"], set()),
    ],
)
def test_filters(url: str, args: list[str], expected: set[str]) -> None:
    documents = json.loads(findings(url, "list", "--format", "json", *args).stdout)
    assert {document["id"] for document in documents} == expected


def test_show_says_everything_and_what_to_type_next(url: str) -> None:
    shown = findings(url, "show", CHUNK.key[:8]).stdout
    for part in (
        f"{CHUNK.key}: torch.chunk: at::native::chunk asks whether u0 == 0",
        "at::native::chunk (C++)",
        "return torch.chunk(x, 2)",
        "3 of 3 runs of the smallest program in new processes show the failure, in export",
        "u0 == 0 (torch writes such a condition Eq(u0, 0))",
        "depends on data   yes",
        "Eq(u0, 0)",
        "torch/_refs/__init__.py:4098",
        f"ddefuzz minimize {CHUNK.key}",
        f"ddefuzz findings show {CHUNK.key} --repro --db {url} > repro.py",
    ):
        assert part in shown


def test_show_names_the_findings_of_the_function_with_the_same_smallest_program(url: str) -> None:
    with Database.open(url) as database:
        chunk = msgspec.structs.replace(database.get(CHUNK.key), minimal=PROGRAM)
        signature = msgspec.structs.replace(chunk.signature, anchor="guard_int")
        other = msgspec.structs.replace(chunk, id=signature.key, signature=signature)
        database.put([chunk, other], frozenset())
    assert f"same program      {other.id}: {other.title}" in findings(url, "show", CHUNK.key).stdout
    with Database.open(url) as database:
        database.put([msgspec.structs.replace(other, minimal=PROGRAM.replace("2)", "3)"))], frozenset())
    assert "same program" not in findings(url, "show", CHUNK.key).stdout


def refused(url: str) -> str:
    """Put in a finding that is not about data; returns its id."""
    observation = Observation("compile", EXPLICIT, "fail", "", (ExceptionInfo("Unsupported", "a skipped function"),))
    failure = Failure("unsupported", observation, "Unsupported: a skipped function")
    signature = Signature("unsupported", Site("Python", "torch/_dynamo", None), "a skipped function")
    with Database.open(url) as database:
        one = with_failure(sighting(signature, ops=("torch._refs.add",)), failure)
        name = database.record(one, START).finding_id
        database.set_minimal(name, PROGRAM, steps=1, attempts=3)
        database.set_confirmed(name, 1, 1, failure)
        database.set_control(name, Control("fails", "fails"))
    return name


def test_what_is_not_about_data_is_counted_and_not_listed(url: str) -> None:
    name = refused(url)
    listed = findings(url, "list").stdout
    assert name not in listed
    assert "2 findings. 1 finding more does not depend on data: --all lists it. Next:" in listed
    everything = findings(url, "list", "--all").stdout
    assert name in everything
    assert "3 findings. Next:" in everything
    documents = [json.loads(line) for line in findings(url, "list", "--format", "jsonl").stdout.splitlines()]
    assert {document["id"]: document["data_dependent"] for document in documents} == {
        CHUNK.key: True,
        ROLL.key: True,
        name: False,
    }
    (alone,) = (document for document in documents if document["id"] == name)
    assert (alone["stage"], alone["control"]) == ("compile", {"static": "fails", "backed": "fails"})
    assert alone["title"].endswith("(fails with static sizes, too)")
    shown = findings(url, "show", name).stdout
    assert "no. With static sizes and with backed dynamic sizes it fails in the same way" in shown


def test_only_what_is_not_about_data(url: str) -> None:
    refused(url)
    listed = findings(url, "list", "--kind", "unsupported").stdout
    assert listed.splitlines() == [
        "no findings that depend on data match --kind unsupported",
        "1 finding more does not depend on data: --all lists it.",
    ]


def test_filters_that_match_nothing_are_named(url: str) -> None:
    listed = findings(url, "list", "--op", "torch.nope", "--state", "new")
    assert (listed.exit_code, listed.stdout) == (
        0,
        "no findings match --state new --op torch.nope (2 in the database)\n",
    )


def test_a_narrow_table_has_titles_on_lines_of_their_own(url: str) -> None:
    lines = findings(url, "list", columns=80).stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if CHUNK.key in line)
    assert lines[at].split() == [CHUNK.key, "avoidable", "new"]
    assert lines[at + 1] == "    torch.chunk: at::native::chunk asks whether u0 == 0"


def test_a_fixed_finding_gets_more_versions(url: str) -> None:
    assert "fixed in all versions of torch" in findings(url, "set", CHUNK.key, "fixed").stderr
    assert "state fixed → fixed in 2.14.0" in findings(url, "set", CHUNK.key, "fixed", "--in", "2.14.0").stderr
    findings(url, "set", CHUNK.key, "fixed", "--in", "2.15.0")
    with Database.open(url) as database:
        assert database.get(CHUNK.key).fixed_in == ("2.14.0", "2.15.0")
    wrong = findings(url, "set", CHUNK.key, "fixed", "--in", "next")
    assert (wrong.exit_code, "found 'next', expected a version of torch such as 2.14.0" in wrong.stderr) == (2, True)
    with pytest.raises(InputError, match="cannot go from 'fixed' to 'fixed'"):
        findings(url, "set", CHUNK.key, "fixed")


def test_an_unknown_id_names_the_command_that_lists_this_database(url: str) -> None:
    with pytest.raises(InputError, match=f"findings list --db {re.escape(url)}` shows all"):
        findings(url, "show", "zzz")


def test_an_unconfirmed_guard_is_that_of_the_original_program(url: str) -> None:
    with Database.open(url) as database:
        name = database.record(sighting(CHUNK, torch="2.13.0"), START).finding_id
        database.set_minimal(name, PROGRAM + "\n", steps=1, attempts=3)
    shown = " ".join(findings(url, "show", name).stdout.split())
    assert "u0 == 0 (torch writes such a condition Eq(u0, 0)), in the program that it was found with" in shown


@pytest.mark.parametrize("columns", [40, 80, 120, 160])
def test_the_page_of_a_finding_folds_and_cuts_nothing(url: str, columns: int) -> None:
    code = "torch._check_that_this_is_a_very_long_line_of_code_for_a_page(" + "argument, " * 12 + "the_last_argument)"
    failure = failure_of(CHUNK, "Eq(u7, 3)")
    assert failure.observation.raised is not None
    (frame,) = failure.observation.raised.python
    raised = msgspec.structs.replace(failure.observation.raised, python=(msgspec.structs.replace(frame, code=code),))
    shown = msgspec.structs.replace(failure, observation=msgspec.structs.replace(failure.observation, raised=raised))
    with Database.open(url) as database:
        database.set_minimal(CHUNK.key, OTHER_PROGRAM, steps=1, attempts=3)
        database.set_confirmed(CHUNK.key, 3, 3, shown)
    text = findings(url, "show", CHUNK.key, columns=columns).stdout.partition("\nNext:")[0]
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    for part in ("u7 == 3", "the_last_argument)", "smallest program", "program that it was found with"):
        assert part in text
    assert "it failed in export, evaluating u0 == 0" in " ".join(text.split())


def test_show_prints_programs_alone(url: str) -> None:
    assert findings(url, "show", CHUNK.key, "--minimal").stdout == PROGRAM
    assert findings(url, "show", ROLL.key, "--original").stdout == PROGRAM
    with pytest.raises(InputError, match="found no smallest program yet"):
        findings(url, "show", ROLL.key, "--minimal")


def test_show_prints_the_repro_of_the_first_stage_that_fails(url: str) -> None:
    repro = findings(url, "show", CHUNK.key, "--repro").stdout
    compile(repro, "repro.py", "exec")
    assert "torch.chunk(x, 2)" in repro
    assert "strict=False" in repro
    assert "strict=True" in findings(url, "show", CHUNK.key, "--repro", "--stage", "export-strict").stdout


def test_a_note_has_a_text(url: str) -> None:
    with pytest.raises(InputError, match="note: found no text, expected some"):
        findings(url, "note", CHUNK.key, "")


def test_what_is_stored_cannot_style_the_terminal(url: str) -> None:
    findings(url, "set", CHUNK.key, "--title", HOSTILE)
    findings(url, "note", CHUNK.key, HOSTILE)
    for args in (["list"], ["show", CHUNK.key]):
        shown = findings(url, *args).stdout
        assert "\x1b" not in shown
    assert "[bold]]" in findings(url, "show", CHUNK.key).stdout


def test_triage(url: str) -> None:
    steps = (
        ("set", CHUNK.key[:8], "triaged", "--cause", "result-depends-on-data", "--title", "chunk asks", "--by", "ada"),
        ("note", CHUNK.key, "seen in a model", "--by", "ada"),
        ("link", CHUNK.key, "https://github.com/pytorch/pytorch/issues/1", "--by", "ada"),
        ("dup", ROLL.key, CHUNK.key, "--by", "ada"),
    )
    for step in steps:
        result = findings(url, *step)
        assert (result.exit_code, result.stdout) == (0, "")
    with Database.open(url) as database:
        chunk, roll = database.get(CHUNK.key), database.get(ROLL.key)
    assert (chunk.state, chunk.cause, chunk.title) == ("triaged", "result-depends-on-data", "chunk asks")
    assert ([note.text for note in chunk.notes], len(chunk.links)) == (["seen in a model"], 1)
    assert (roll.state, roll.duplicate_of) == ("duplicate", CHUNK.key)
    assert {entry.who for entry in (*chunk.history, *roll.history)} == {"ada"}
    assert "again new" in findings(url, "undup", ROLL.key).stderr


@pytest.mark.parametrize(
    "args", [[], ["triaged", "--in", "2.15.0"], ["duplicate"], ["--expires", "soon"], ["--label", "a b"]]
)
def test_triage_that_says_nothing_is_a_usage_error(url: str, args: list[str]) -> None:
    assert findings(url, "set", CHUNK.key, *args).exit_code == 2


def test_an_unknown_id_suggests_others(url: str) -> None:
    with pytest.raises(InputError, match=f"did you mean .*{CHUNK.key}"):
        findings(url, "show", CHUNK.key[:-2] + "zz")


def test_export_and_import_to_another_database(url: str, tmp_path: Path) -> None:
    findings(url, "export", str(tmp_path / "text"))
    other = f"sqlite:///{tmp_path}/other.db"
    assert "2 findings read" in findings(other, "import", str(tmp_path / "text")).stderr
    assert findings(other, "list", "--format", "json").stdout == findings(url, "list", "--format", "json").stdout


def test_merge_takes_what_is_new(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with Database.open(other) as database:
        database.record(sighting(CHUNK, torch="2.15.0"), START)
    with Database.open(url) as database:
        database.add_sites("2.13.0", [SITE])
    assert "2 findings, 1 of them new" in findings(other, "merge", str(tmp_path / "ddefuzz.db")).stderr
    (chunk,) = (one for one in json.loads(findings(other, "list", "--format", "json").stdout) if one["id"] == CHUNK.key)
    assert (chunk["torch"], chunk["steps"]) == (["2.13.0", "2.15.0"], 1)
    findings(other, "merge", str(tmp_path / "ddefuzz.db"))
    with Database.open(other) as database:
        assert database.sites("2.13.0") == (SITE,)


def test_merge_makes_no_database_without_all_sources(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"none\.db"):
        findings(f"sqlite:///{tmp_path}/new.db", "merge", url, f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "new.db").exists()


EDIT = "UPDATE documents SET document = json_set(document, '$.{}', {})"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (EDIT.format("fixed_in", "json('[\"x\"]')"), "found 'x', expected a version of torch"),
        ("UPDATE occurrences SET torch = 'x'", "found 'x', expected a version of torch"),
        (EDIT.format("former", "json('[\"../../x\"]')"), "found the former id '../../x'"),
        (EDIT.format("state", "'duplicate', '$.duplicate_of', finding_id"), "expected the id of another finding"),
        (
            EDIT.format("state", "'duplicate', '$.duplicate_of', 'dde-0'"),
            "a duplicate of 'dde-0', which cannot be read",
        ),
        (EDIT.format("links", "json('[\"javascript:1\"]')"), "found 'javascript:1'"),
        (EDIT.format("original", "'x'"), "expected"),
    ],
)
def test_merge_refuses_what_import_refuses(url: str, tmp_path: Path, change: str, message: str) -> None:
    path = tmp_path / "ddefuzz.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(change)
    connection.close()
    other = f"sqlite:///{tmp_path}/other.db"
    with pytest.raises((InputError, RowError), match=f"({CHUNK.key}|{ROLL.key}).*{re.escape(message)}"):
        findings(other, "merge", str(path))
    with Database.open(other) as database:
        assert database.findings() == ()


def test_a_duplicate_of_nothing_is_shown(url: str, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "ddefuzz.db")
    with connection:
        connection.execute(EDIT.format("state", "'duplicate'"))
        connection.execute(
            EDIT.format("state", "'duplicate'").replace("document =", "summary =").replace("(document", "(summary")
        )
    connection.close()
    assert f"findings undup {CHUNK.key}" in findings(url, "list").stdout
    assert f"findings undup {CHUNK.key}" in findings(url, "show", CHUNK.key).stdout


def test_a_lone_surrogate_in_a_row_is_refused(url: str, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "ddefuzz.db")
    with connection:
        connection.execute(
            "UPDATE documents SET document = replace(document, '\"known_in\":[]', ?)", (r'"known_in":["\ud800"]',)
        )
    connection.close()
    with Database.open(url) as database, pytest.raises(RowError, match=r"finding 'dde-.*surrogate"):
        database.findings()


@pytest.mark.parametrize(
    "words", [("findings", "list"), ("findings", "export"), ("report", "--format", "jsonl")], ids=" ".join
)
def test_a_damaged_row_is_left_out_and_named(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    findings(url, "set", CHUNK.key, "wont-fix", "--why", "it is slow")
    findings(url, "export")
    with closing(sqlite3.connect(tmp_path / "ddefuzz.db")) as connection, connection:
        for edit in (EDIT, EDIT.replace("document =", "summary =").replace("(document", "(summary")):
            connection.execute(edit.format("state", "'odd'") + " WHERE finding_id = ?", (CHUNK.key,))
    monkeypatch.setattr("sys.argv", ["ddefuzz", *words, "--db", url])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    shown = capsys.readouterr()
    said = f"ddefuzz: left out (1 of 1): finding {CHUNK.key!r} in the database: Invalid enum value 'odd' - at `$.state`"
    assert [line for line in shown.err.splitlines() if "left out" in line] == [said]
    assert "export" in words or (ROLL.key in shown.out and CHUNK.key not in shown.out)
    # It may be the only copy.
    assert (tmp_path / "findings" / CHUNK.key / "finding.toml").exists()
    assert "it is slow" in (tmp_path / "findings" / KNOWN).read_text()


@pytest.mark.parametrize("verb", ["export", "merge"])
def test_a_duplicate_of_a_damaged_row_is_left_out_with_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    third = msgspec.structs.replace(CHUNK, anchor="another")
    with Database.open(url) as database:
        database.record(sighting(third), START)
    findings(url, "dup", ROLL.key, CHUNK.key)
    with closing(sqlite3.connect(tmp_path / "ddefuzz.db")) as connection, connection:
        connection.execute(EDIT.format("state", "'odd'") + " WHERE finding_id = ?", (CHUNK.key,))
    folder, other = str(tmp_path / "text"), f"sqlite:///{tmp_path}/other.db"
    words = ["export", folder, "--db", url] if verb == "export" else ["merge", url, "--db", other]
    monkeypatch.setattr("sys.argv", ["ddefuzz", "findings", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    assert f"left out (2 of 2): finding {ROLL.key!r} in the database: a duplicate of" in capsys.readouterr().err
    if verb == "export":
        assert "1 finding read" in findings(other, "import", folder).stderr
    with Database.open(other) as database:
        assert [finding.id for finding in database.findings()] == [third.key]


def test_reclassify_writes_nothing_if_a_row_is_damaged(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "ddefuzz.db")) as connection, connection:
        for edit in (EDIT, EDIT.replace("document =", "summary =").replace("(document", "(summary")):
            connection.execute(edit.format("state", "'odd'") + " WHERE finding_id = ?", (CHUNK.key,))
    monkeypatch.setattr("sys.argv", ["ddefuzz", "findings", "reclassify", "--write", "--db", url])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    assert "expected a row that can be read, because all findings are written" in capsys.readouterr().err


def test_a_screen_that_was_not_compared_has_no_verdict(url: str) -> None:
    screened = sighting(CHUNK)
    seen = msgspec.structs.replace(screened.failure.observation, stage="fake")
    with Database.open(url) as database:
        database.record(
            msgspec.structs.replace(
                with_failure(screened, msgspec.structs.replace(screened.failure, observation=seen)), verdict=""
            ),
            START,
        )
    shown = findings(url, "show", CHUNK.key).stdout
    assert next(line for line in shown.splitlines() if line.startswith("verdicts")).split() == [
        *("verdicts", "fails", "in", "export", "(not", "captured)"),
    ]


@pytest.mark.slow
def test_reading_findings_never_imports_torch(url: str) -> None:
    program = (
        "import sys; from ddefuzz.cli.findings import command\n"
        f"command(['show', {CHUNK.key!r}, '--repro', '--db', {url!r}], standalone_mode=False)\n"
        "import ddefuzz.cli.fixes\n"
        "sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_exit_codes_and_one_line_errors(tmp_path: Path) -> None:
    for args, code, line in (
        (["--db", f"sqlite:///{tmp_path}/none.db"], 4, "no such file"),
        (["--db", "none"], 2, "found a text that is no URL, expected the URL of a database such as sqlite:///PATH"),
        (["--format", "xml"], 2, "Invalid value for '--format'"),
    ):
        result = typed("findings", "list", *args, folder=tmp_path)
        assert (result.returncode, result.stdout) == (code, ""), result.stderr
        assert line in result.stderr
        assert "Traceback" not in result.stderr
