"""A database of each schema that there was opens, and keeps what it has. One of a newer ddefuzz is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import alembic.command
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from ddefuzz.campaign.launch import resume
from ddefuzz.campaign.plan import Budget, Plan
from ddefuzz.errors import DatabaseError, InputError
from ddefuzz.findings.connection import MIGRATIONS, SCHEMA_REVISION
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import stamp
from ddefuzz.findings.rows import to_json
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, START, failure_of

NOW = stamp(START)
SITE = ("C++", "aten/src/ATen/native/TensorShape.cpp", 1, "chunk")


def configuration() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config


REVISIONS = sorted(script.revision for script in ScriptDirectory.from_config(configuration()).walk_revisions())


def rows(revision: str) -> dict[str, dict[str, object]]:
    """A row of each table, in the words of a schema. Columns that a schema has not are left out by `stored`."""
    owner = {"finding_id": CHUNK.key}
    changed = {"when": NOW, "who": "ada"}
    failure = to_json(failure_of(CHUNK))
    return {
        "findings": {
            "id": CHUNK.key,
            "key": CHUNK.key,
            "sequence": 1,
            "kind": "dde",
            "cause": "framework" if revision < "0005" else "avoidable",
            "language": "C++",
            "function": "at::native::chunk",
            "anchor": CHUNK.anchor,
            "title": "chunk needs a size",
            "given_title": "chunk needs a size",
            "state": "known" if revision < "0007" else "triaged",
            "fixed_in": "[]",
            "expression": "Eq(u0, 0)",
            "original": PROGRAM,
            "failure": failure,
            **dict.fromkeys(("owner", "priority", "expires"), ""),
            **dict.fromkeys(("labels", "known_in", "former"), "[]"),
        },
        "occurrences": {
            **owner,
            **{"torch": "2.13.0", "stage": "export", "semantics": "explicit", "op": "torch.chunk"},
            "verdict": "open" if revision < "0003" else "fails",
            **{"count": 3, "first_seen": NOW, "last_seen": NOW},
        },
        "links": {**owner, "url": "https://example.org/1"},
        "notes": {**owner, **changed, "text": "seen in a model"},
        "history": {
            **{**owner, **changed, "before": "", "after": "chunk needs a size", "why": ""},
            "field": "title" if revision < "0007" else "given_title",
        },
        "campaigns": {
            **{"profile": "default", "seed": 7, "generator": "1", "options": "{}", "next_index": 4, "ahead": "[]"},
            **{"finished": 0, "started": NOW, "updated": NOW},
        },
        "sites": {
            **dict(zip(("language", "file", "line", "function"), SITE, strict=True)),
            **{"torch": "2.13.0", "call": "guard_or_false", "fallbacks": "{}", "old": "{}", "raised": 1, "cases": 2},
            **{"blamed": "[]", "example": PROGRAM, "stage": "export"},
        },
    }


def stored(path: Path, revision: str) -> None:
    """A database as the ddefuzz of that schema left it."""
    engine = create_engine(f"sqlite:///{path}")
    config = configuration()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, revision)
    engine.dispose()
    database = sqlite3.connect(path)
    for table, row in rows(revision).items():
        columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})") if name in row]
        if columns:
            names, holes = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
            database.execute(f"INSERT INTO {table} ({names}) VALUES ({holes})", [row[name] for name in columns])
    database.commit()
    database.close()


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_each_schema_opens_and_keeps_what_it_has(tmp_path: Path, revision: str) -> None:
    stored(tmp_path / "old.db", revision)
    with Database.open(f"sqlite:///{tmp_path / 'old.db'}", create=False) as database:
        (finding,) = database.findings()
        assert (finding.id, finding.signature, finding.original) == (CHUNK.key, CHUNK, PROGRAM)
        assert finding.failure == failure_of(CHUNK)
        assert (finding.state, finding.cause) == ("triaged", "unclassified" if revision < "0005" else "avoidable")
        assert finding.given_title == "chunk needs a size"
        assert (finding.count, finding.verdicts) == (3, {"export": "fails"})
        assert finding.links == ("https://example.org/1",)
        assert [note.text for note in finding.notes] == ["seen in a model"]
        assert [(entry.field, entry.after) for entry in finding.history] == [("given_title", "chunk needs a size")]
        sites = [(*site.key, site.cases) for site in database.sites("2.13.0")]
        assert sites == ([(*SITE, 2)] if revision >= "0002" else [])
        (campaign,) = database.unfinished()
        assert (campaign.next_index, campaign.ahead, campaign.seed) == (4, (), 7)
    with sqlite3.connect(tmp_path / "old.db") as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_REVISION,)]
    connection.close()


def test_a_campaign_without_results_of_its_cases_is_not_resumed(tmp_path: Path) -> None:
    stored(tmp_path / "old.db", REVISIONS[0])
    plan = Plan("default", 7, Budget(cases=8), 1, ("export",), ())
    with Database.open(f"sqlite:///{tmp_path / 'old.db'}") as database:
        (entry,) = database.unfinished()
        with pytest.raises(InputError, match="campaign 1 was begun by an older ddefuzz, which saved no results"):
            resume(plan, entry, database, lambda event, tally: None, lambda: False)


def test_a_newer_schema_is_refused_with_the_way_on(tmp_path: Path) -> None:
    stored(tmp_path / "new.db", REVISIONS[-1])
    with sqlite3.connect(tmp_path / "new.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(DatabaseError, match=r"schema 9999 is newer than this ddefuzz .*: upgrade ddefuzz") as caught:
        Database.open(f"sqlite:///{tmp_path / 'new.db'}")
    assert "\n" not in str(caught.value)
    with sqlite3.connect(tmp_path / "new.db") as connection:
        assert connection.execute("SELECT id, state FROM findings").fetchall() == [(CHUNK.key, "triaged")]
    connection.close()
