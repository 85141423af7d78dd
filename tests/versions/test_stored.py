"""`ddefuzz diff` of what databases keep: nothing is run."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.diff import command as diff
from ddefuzz.errors import EXIT_FOUND, InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import Answer, SiteRecord
from tests.findings.arbitrary_findings import CHUNK, OTHER_PROGRAM, PROGRAM, ROLL, START, sighting

OLD, NEW = "2.13.0+cpu", "2.15.0+cu132"
MOVED = Signature("dde", Site("C++", None, "at::native::split"), "guard_int operator==")


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def site(line: int, name: str, answer: Answer) -> SiteRecord:
    fallbacks: dict[Answer, int] = {} if answer == "raised" else {answer: 1}
    raised = int(answer == "raised")
    return SiteRecord("Python", "torch/a.py", line, name, "guard_or_false", fallbacks=fallbacks, raised=raised)


def record(
    path: Path, torch: str, found: dict[Signature, str], sites: list[SiteRecord], seed: int = 7, hours: int = 0
) -> int:
    """A campaign of 100 cases under a torch, with findings and their programs. Returns its number."""
    start = START + timedelta(hours=hours)
    with Database.open(url(path)) as database:
        number = database.start_campaign(
            profile="default", seed=seed, generator=f"generator=5 torch={torch} seed={seed}", options={}, when=start
        )
        for signature, program in found.items():
            seen = msgspec.structs.replace(sighting(signature, torch=torch), program=program)
            database.record(seen, start + timedelta(minutes=1))
        database.add_sites(torch, sites)
        database.advance(number, 100, start + timedelta(minutes=2))
        database.finish_campaign(number, start + timedelta(minutes=2))
    return number


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(diff, words, catch_exceptions=False)


def rows(result: Result) -> list[tuple[str, str]]:
    document = json.loads(result.stdout)
    return [(row["kind"], row["what"] or f"{row['old']} -> {row['new']}") for row in document["differences"]]


def test_two_databases(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    sites = [site(1, "same", "False"), site(2, "gone", "False"), site(3, "other", "False")]
    record(old, OLD, {CHUNK: PROGRAM, ROLL: OTHER_PROGRAM}, sites)
    record(new, NEW, {MOVED: PROGRAM}, [site(9, "same", "False"), site(3, "other", "raised"), site(4, "new", "True")])
    result = run(url(old), url(new), "--format", "json")
    assert result.exit_code == 0
    assert rows(result) == [
        ("gone finding", str(ROLL)),
        ("moved finding", f"{CHUNK} -> {MOVED}"),
        ("new guard site", "torch/a.py:new guard_or_false"),
        ("gone guard site", "torch/a.py:gone guard_or_false"),
        ("changed answer", "torch/a.py:other guard_or_false"),
    ]
    back = run(url(new), url(old), "--format", "json")
    assert back.exit_code == EXIT_FOUND
    assert rows(back)[0] == ("new finding", str(ROLL))
    text = run(f"before={url(old)}", f"after={url(new)}").stdout
    assert f"before (torch {OLD}): 100 cases in 1 campaign, 2 findings, 3 guard sites" in text
    assert "The campaigns differ" not in text


def test_sites_without_a_module_or_function_are_compared(tmp_path: Path) -> None:
    nowhere = Signature("dde", Site("C++", None, None), "guard_int operator==")
    record(tmp_path / "old.db", OLD, {CHUNK: PROGRAM, nowhere: PROGRAM}, [])
    record(tmp_path / "new.db", NEW, {MOVED: PROGRAM}, [])
    result = run(url(tmp_path / "old.db"), url(tmp_path / "new.db"), "--format", "json")
    assert [kind for kind, _ in rows(result)] == ["moved finding"] * 2


def test_two_campaigns_or_versions_of_one_database(tmp_path: Path) -> None:
    path = tmp_path / "both.db"
    first = record(path, OLD, {CHUNK: PROGRAM}, [])
    second = record(path, NEW, {CHUNK: PROGRAM, ROLL: OTHER_PROGRAM}, [], seed=8, hours=1)
    third = record(path, NEW, {CHUNK: PROGRAM}, [], hours=2)
    assert (first, second, third) == (1, 2, 3)
    by_number = run("1", "2", "--db", url(path), "--format", "json")
    assert rows(by_number) == [("new finding", str(ROLL))]
    assert "seed 7" in json.loads(by_number.stdout)["not_judged"][0]
    assert rows(run(f"{url(path)}#1", f"{url(path)}#3", "--format", "json")) == []
    by_version = run(f"{url(path)}#2.13.0", f"{url(path)}#{NEW}")
    assert by_version.exit_code == EXIT_FOUND
    assert "The campaigns differ, and so may their cases." in by_version.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{db}", "{db}#1", r"expected one version of torch \(URL#VERSION\) or one campaign, found 2\.13.*, 2\.15"),
        ("{db}#9", "{db}#1", "found no campaign 9, expected one of: 1, 2"),
        ("{db}#2.14", "{db}#1", r"expected one version of torch"),
        ("{db}#1", "/no/python", "found stored campaigns and also something to run"),
    ],
)
def test_what_is_typed_wrongly_is_said(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "both.db"
    record(path, OLD, {CHUNK: PROGRAM}, [])
    record(path, NEW, {CHUNK: PROGRAM}, [])
    with pytest.raises(InputError, match=message):
        run(old.format(db=url(path)), new.format(db=url(path)))
