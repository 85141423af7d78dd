"""No text that is stored executes: payloads in every text field of every record, through every command that reads it.

Each payload makes a file, the canary, if it runs as Python or as a shell command. What a test counts is printed at its
end: fields, texts and commands (`pytest -s tests/cli/test_canary.py`).
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import black
import click
import msgspec
import pytest
import tomli_w
from click.testing import CliRunner, Result
from msgspec import inspect as types

from ddefuzz.campaign.replay import ExpectedOutcome, TrustFile
from ddefuzz.classify.recognition import ExpectedFailure
from ddefuzz.classify.rules import Rules
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.main import cli
from ddefuzz.errors import DdefuzzError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, id_of
from ddefuzz.findings.schema import METADATA
from ddefuzz.findings.textform import KnownDecision, read_finding
from ddefuzz.keys.case import parse_key, print_key
from ddefuzz.ops import catalogue
from ddefuzz.oracles.oracle import Script
from ddefuzz.oracles.table import oracle_of
from ddefuzz.program.text import is_key, print_program
from ddefuzz.repro.finding import (
    capture_snippet,
    expected_of,
    exportdb_example,
    finding_script,
    finding_snippet,
    own_script,
    unit_test,
)
from ddefuzz.repro.run import ForkServers
from ddefuzz.show.table import NAMES
from tests.cli import canary_fields as fields
from tests.cli.canary_fields import FINDING_FIELDS, Field, payloads
from tests.web.served import client_of

ROOT = Path(__file__).parents[2] / "findings"

EMITTERS: tuple[Callable[[Finding], str], ...] = (
    finding_script,
    finding_snippet,
    capture_snippet,
    unit_test,
    exportdb_example,
)
"""What writes Python for a finding."""


WAYS = (
    "by_call",
    "by_message",
    "by_native",
    "by_keys",
    "by_lowering",
    "by_recompilation",
    "by_python",
    "by_growth",
    "by_agreement",
)


@cache
def bases() -> dict[str, Finding]:
    """A committed finding for each way to recognize a failure, with the name of that way."""
    first: dict[str, Finding] = {}
    of_kinds = {re.sub(r"-[0-9a-f]+$", "", one.name): one for one in sorted(ROOT.glob("*-*")) if one.is_dir()}
    for place in (*of_kinds.values(), *sorted(ROOT.glob("dde-*"))[:20]):
        finding = read_finding(place)
        with suppress(DdefuzzError):
            own = own_script(finding, finding.stage)
            way = expected_of(finding).recognizer if own is None else f"by_{oracle_of(finding.kind).name}"
            first.setdefault(way, finding)
    return first


def base(name: str) -> dict[str, Any]:
    return small(read_finding(next(iter(sorted(ROOT.glob(f"{name}-*"))))))


def small(finding: Finding) -> dict[str, Any]:
    """A finding as a document, with its first occurrence alone."""
    document: dict[str, Any] = msgspec.to_builtins(finding)
    return {**document, "occurrences": document["occurrences"][:1]}


def with_id(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The document with the id of its signature, as an attacker writes it."""
    signature = document["signature"]
    site = Site(signature["site"]["language"], signature["site"].get("module"), signature["site"].get("function"))
    return {**document, "id": id_of(Signature(signature["kind"], site, signature["anchor"]).key, number)}


def hostile(document: dict[str, Any], field: Field, text: str, number: int = 1) -> dict[str, Any]:
    found = fields.hostile(document, field, text)
    return found if field == ("id",) else with_id(found, number)


def emitted(finding: Finding) -> Iterator[str]:
    """The texts of Python that are written for a finding."""
    for emit in EMITTERS:
        with suppress(DdefuzzError):
            yield emit(finding)


def assert_inert(code: str) -> None:
    """No code of a payload is code in a text: all of it is in literals and comments."""
    for node in ast.walk(ast.parse(code)):
        assert not (isinstance(node, ast.Name) and node.id == "__import__"), code
        assert not (isinstance(node, ast.Attribute) and node.attr == "touch"), code


def is_shown(parts: str) -> bool:
    """Whether a script shows the failure of a finding with these parts."""
    return "Expected(" in parts or "Script(" in parts


def parts_of(finding: Finding) -> str:
    """What is written for a finding is made of this alone."""
    expected: ExpectedFailure | Script | None = None
    with suppress(DdefuzzError):
        expected = own_script(finding, finding.stage) or expected_of(finding)
    parts = (finding.title, finding.site, finding.minimal, finding.original, finding.stage, finding.shown_ops, expected)
    return repr(parts)


def emitted_of(finding: Finding, known: set[str]) -> Iterator[str]:
    """The same, without those of findings for which the same is written."""
    parts = parts_of(finding)
    if parts not in known:
        known.add(parts)
        yield from emitted(finding)


def converted(document: dict[str, Any]) -> Finding | None:
    """The record, if the document is one with programs that are read."""
    try:
        finding = msgspec.convert(document, Finding)
        for text in filter(None, (finding.minimal, finding.original)):
            parsed(text)
        str(finding.title)
    except (DdefuzzError, msgspec.ValidationError):
        return None
    return finding


@cache
def parsed(text: str) -> str:
    """A stored case as it is printed again."""
    if is_key(text):
        return print_key(parse_key(text, "x"))
    case = catalogue.parse(text, "x")
    return print_program(case.program, case.expect)


def printed(table: Counter[str]) -> None:
    """The counts of a test."""
    sys.stdout.write("\n" + "".join(f"{number:>8} {what}\n" for what, number in table.items()))


def test_every_kind_of_field_of_a_finding_is_found() -> None:
    """A new field of a record is one of these without a change here."""
    assert {("given_title",), ("notes", "*", "text"), ("shown", "observation", "raised", "asked")} < set(FINDING_FIELDS)
    assert ("occurrences", "*", "observed", "observation", "exceptions", "*", "message") in FINDING_FIELDS
    assert ("shown", "observation", "measured", "asked", "code") in FINDING_FIELDS
    assert len(set(FINDING_FIELDS)) == len(FINDING_FIELDS) > 1_000


@pytest.mark.parametrize("name", ["dde", "key-confuses"])
def test_a_field_of_a_finding_does_not_execute_in_what_is_emitted(name: str, tmp_path: Path) -> None:
    """One payload for each field: all of them are in the slow test."""
    table, document, known = Counter[str](), base(name), set[str]()
    texts = itertools.cycle(payloads(tmp_path / "canary").values())
    for field, text in zip(FINDING_FIELDS, texts, strict=False):
        finding = converted(hostile(document, field, text))
        table["fields refused" if finding is None else "fields read"] += 1
        for code in emitted_of(finding, known) if finding is not None else ():
            assert_inert(code)
            table["texts of Python"] += 1
    printed(table)
    assert table["texts of Python"] > 10
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ["dde", "key-confuses"])
def test_a_token_of_a_case_file_does_not_execute(name: str, tmp_path: Path) -> None:
    table, document = Counter[str](), base(name)
    expecting = "# expect: export/explicit dde at at::native::chunk\n"
    text = document["minimal"].replace("# inputs", f"{expecting}# inputs", 1)
    for payload in payloads(tmp_path / "canary").values():
        for _, changed in fields.hostile_texts(text, payload):
            try:
                again = parsed(changed)
            except DdefuzzError:
                table["refused"] += 1
                continue
            table["read"] += 1
            assert_inert(again)
            with suppress(DdefuzzError):
                assert_inert(finding_snippet(msgspec.convert({**document, "minimal": changed}, Finding)))
                table["snippets"] += 1
    printed(table)
    assert table["read"] > 10
    assert not (tmp_path / "canary").exists()


# Commands


def run(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, words, input=given)


def assert_said(result: Result, words: Sequence[str], wrong: list[str]) -> None:
    """A command ends with results or with one line, and is one that there is."""
    assert not re.search("No such (option|command)", result.output), (words, result.output)
    error = result.exception
    if error is not None and not isinstance(error, DdefuzzError | SystemExit | click.ClickException):
        wrong.append(f"{' '.join(words)[:200]}: {type(error).__name__}: {error}"[:400])


def of_all(folder: Path, db: str, out: Path) -> Iterator[tuple[str, ...]]:
    """The commands about all findings of a folder or a database that run no program."""
    yield "findings", "import", str(folder), "--db", db
    for format_ in ("text", *NAMES):
        yield "findings", "list", "--all", "--db", db, "--format", format_
        yield "report", "--all", "--db", db, "--format", format_ if format_ != "text" else "markdown"
    yield "findings", "export", str(out / "exported"), "--db", db
    yield "findings", "import", str(out / "exported"), "--db", f"sqlite:///{out}/again.db"
    yield "findings", "merge", db, "--db", f"sqlite:///{out}/merged.db"
    yield "findings", "reclassify", "--db", db
    yield "triage", "--all", "--db", db, "--by", "ada"
    yield "answers", "--stored", "--db", db
    yield "answers", "--stored", "--db", db, "--format", "markdown"
    yield "fixes", "--db", db
    yield "fixes", "--db", db, "--format", "markdown"
    yield "sites", "--db", db
    yield "sites", "--db", db, "--format", "html"
    yield "corpus", "list", str(folder)
    yield "corpus", "fmt", "--check", str(folder)


def of_one(name: str, db: str, out: Path) -> Iterator[tuple[str, ...]]:
    """The commands about one finding that run no program."""
    for option in ("--repro", "--snippet", "--minimal", "--original"):
        yield "findings", "show", name, "--db", db, option
    yield "findings", "show", name, "--db", db
    yield "findings", "show", name, "--db", db, "--format", "json"
    yield "fixes", "show", name, "--db", db
    for format_ in ("issue", "unittest", "exportdb", *NAMES):
        yield "report", name, "--db", db, "--format", format_
    yield "findings", "note", name, "seen", "--db", db, "--by", "ada"
    yield "corpus", "promote", name, "--db", db, "--corpus", str(out / "corpus")


PAGES = ("/", "/findings", "/findings?data=all&q=x", "/sites", "/versions", "/census", "/campaigns")


def pages_of(db: str, ids: Iterable[str]) -> Counter[str]:
    """How often each page of the dashboard is shown."""
    table = Counter[str]()
    with Database.open(db) as database:
        client = client_of(database)
        for path in (*PAGES, *(f"/findings/{name}{rest}" for name in ids for rest in ("", "/repro.py"))):
            answer = client.get(path)
            table["dashboard"] += 1
            if path.endswith(".py") and answer.status_code == 200:
                assert_inert(answer.text)
    return table


def commands_in(text: str) -> Iterator[str]:
    """The commands below `Next:`, which people paste."""
    yield from re.findall(r"^Next.*:\n((?:  .+\n)+)", text, re.MULTILINE)


def paste(texts: Sequence[str], folder: Path) -> None:
    """Run what people paste, where no program is ddefuzz."""
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.sh").write_text(f"ddefuzz() {{ :; }}\npython() {{ :; }}\n{text}", errors="replace")
        subprocess.run(["bash", f"{number}.sh"], cwd=folder, capture_output=True, check=False, timeout=200)


def is_read(document: dict[str, Any]) -> bool:
    """Whether the document is read from files."""
    with TemporaryDirectory() as folder, suppress(DdefuzzError):
        fields.write_folder(Path(folder), document)
        return bool(read_finding(Path(folder) / document["id"]).title)
    return False


def free_of(document: dict[str, Any]) -> list[Field]:
    """The fields that take any text and do not keep a script from being written. Programs stay: they are run."""
    left = {*("id", "minimal", "original", "state", "duplicate_of", "expires"), *fields.FOR_READERS}
    is_expected = is_shown(parts_of(msgspec.convert(document, Finding)))
    found = []
    for field in FINDING_FIELDS:
        is_left = field[0] in left or field[-1] == "kind"
        read = None if is_left else converted(hostile(document, field, "any text"))
        if read is not None and is_shown(parts_of(read)) == is_expected:
            found.append(field)
    return read_of(document, found)


def read_of(document: dict[str, Any], among: list[Field]) -> list[Field]:
    """Those of the fields with which the document is read from files."""
    found = document
    for field in among:
        found = hostile(found, field, "any text")
    if is_read(found):
        return among
    half = len(among) // 2
    return [*read_of(document, among[:half]), *read_of(document, among[half:])] if half else []


def in_all(document: dict[str, Any], among: Sequence[Field], texts: Sequence[str], number: int) -> dict[str, Any]:
    """The document with a text in each of the fields that go together: all texts in turn, others for each number."""
    found = document
    for place, field in enumerate(among):
        # Without a title of its own, the title is made of other fields.
        if field[0] != "given_title" or not number % 2:
            found = fields.hostile(found, field, texts[(place + 7 * number) % len(texts)])
    if is_read(with_id(found, number)):
        return with_id(found, number)
    half = len(among) // 2
    if not half:
        return with_id(document, number)
    return in_all(in_all(document, among[:half], texts, number), among[half:], texts, number)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that must not be made."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "executed"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_field_in_what_is_emitted(canary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field that a text depends on gets several payloads, other ones in turn. Black takes most of the time."""
    monkeypatch.setattr(black, "format_str", lambda text, mode: text)
    table, texts = Counter[str](), itertools.cycle(payloads(canary).values())
    for finding in bases().values():
        document, known = small(finding), set[str]()
        plain = parts_of(finding)
        for field in FINDING_FIELDS:
            probe = converted(hostile(document, field, "Any 0text"))
            table["fields refused" if probe is None else "fields read"] += 1
            is_written = probe is not None and parts_of(probe) != plain
            for text in itertools.islice(texts, 7 if is_written else int(probe is None)):
                read = converted(hostile(document, field, text))
                table["payloads refused" if read is None else "payloads read"] += 1
                for code in emitted_of(read, known) if read is not None else ():
                    assert_inert(code)
                    table["texts of Python"] += 1
    table["fields"] = len(FINDING_FIELDS) * len(bases())
    printed(table)


def test_there_is_a_finding_for_each_way() -> None:
    assert sorted(bases()) == sorted(WAYS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """By default, one way that runs no compiled code: another test reads what is written for each way without running
    it.
    """
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", WAYS if metafunc.config.getoption("--all-payloads") else ("by_message",))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_field_through_every_command_and_every_script_run(kind: str, canary: Path, tmp_path: Path) -> None:
    table, wrong, next_ = Counter[str](), list[str](), list[str]()
    scripts: set[str] = set()
    folder, db, out = tmp_path / kind, f"sqlite:///{tmp_path}/{kind}.db", tmp_path / f"{kind}-out"
    out.mkdir()
    document = small(bases()[kind])
    free = free_of(document)
    made = [in_all(document, free, list(payloads(canary).values()), number) for number in (1, 2)]
    for one in made:
        fields.write_folder(folder, one)
    for words in of_all(folder, db, out):
        result = run(*words, given="n x\ns\n")
        assert_said(result, words, wrong)
        next_ += commands_in(result.output)
        table[" ".join(words[:2])] += len(made) * len(free)
    with Database.open(db, create=False) as database:
        ids = [one.id for one in database.findings()]
        scripts |= {code for one in database.findings() for code in emitted(one)}
    assert len(ids) == len(made), "all of them are read"
    for name in ids:
        for words in of_one(name, db, out):
            result = run(*words)
            assert_said(result, words, wrong)
            next_ += commands_in(result.output)
            table[" ".join(words[:2])] += len(free)
    table += pages_of(db, ids)
    for code in scripts:
        assert_inert(code)
    table["scripts and snippets run"] = len(scripts)
    table["commands pasted"] = len(next_)
    paste(sorted(set(next_)), tmp_path / "pasted")
    run_all(scripts, tmp_path)
    printed(table)
    assert not wrong


def run_all(scripts: Iterable[str], folder: Path) -> None:
    """Run each script in a child of a process that has imported torch."""
    place = folder / "scripts"
    place.mkdir()
    forked = ForkServers(sys.executable, place, 2, 20.0)
    try:
        for number, code in enumerate(sorted(scripts)):
            path = place / f"{number}.py"
            path.write_text(code)
            forked.run(path)
    finally:
        forked.stop()


# Other files


def tables(record: Any, document: Any, text: str) -> Iterator[tuple[Field, Any]]:
    kind = types.type_info(record)
    for field in fields.fields_of(kind):
        yield field, fields.with_text(kind, document, field, text)


RULE = {"kind": "dde", "site": "at::native::chunk", "anchor": "x", "reason": "r", "source": "s"}
RULES = {"alias": [{**RULE, "to_site": "a:b"}], "split": [{**RULE, "pattern": "x", "name": "n"}]}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_known_rules_and_trusted_files(canary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    step = 2 if request.config.getoption("--all-payloads") else 9
    table, wrong = Counter[str](), list[str]()
    folder, document = tmp_path / "findings", base("dde")
    fields.write_folder(folder, document)
    evil = f"open({str(canary)!r}, 'w')\nCASES = []\n"
    case = f"# ddefuzz program v1\n# expect: export/explicit ok\n{document['minimal'].partition(chr(10))[2]}"
    known = {"state": "reported", "reason": "r", "url": "https://x", "versions": ["2.13.0"], "title": "t"}
    files: list[tuple[Path, Any, Any]] = [
        (folder / "known.toml", dict[str, KnownDecision], {document["id"]: known}),
        (Path("findings") / "rules.toml", Rules, RULES),
        (folder / "trusted.toml", TrustFile, {"module": [{"path": "evil.py", "expected": "expected.json"}]}),
        (
            folder / "expected.json",
            dict[str, dict[str, ExpectedOutcome]],
            {"a": {"export": {"outcome": "ok", "site": {"language": "C++", "module": None, "function": "f"}}}},
        ),
    ]
    Path("findings").mkdir()
    db = f"sqlite:///{tmp_path}/x.db"
    for path, record, benign in files:
        (folder / "evil.py").write_text(evil)
        (folder / "case.py").write_text(case)
        for text in list(payloads(canary).values())[::step]:
            for _, changed in tables(record, benign, text):
                written = json.dumps(changed) if path.suffix == ".json" else tomli_w.dumps(_plain(changed))
                path.write_text(written, newline="")
                for words in (
                    ("findings", "import", str(folder), "--db", db),
                    ("findings", "list", "--all", "--db", db),
                    ("findings", "export", str(tmp_path / "out"), "--db", db),
                    ("findings", "reclassify", "--db", db),
                    ("corpus", "list", str(folder)),
                ):
                    assert_said(run(*words), words, wrong)
                    table[f"{path.name}: {' '.join(words[:2])}"] += 1
        path.unlink()
    printed(table)
    assert not wrong


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    return [_plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", METADATA.tables)
def test_every_column_of_a_database(name: str, canary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """By default, every third column."""
    step = 1 if request.config.getoption("--all-payloads") else 3
    table, wrong = Counter[str](), list[str]()
    folder, good = tmp_path / "findings", tmp_path / "good.db"
    for kind in ("dde", "key-confuses"):
        fields.write_folder(folder, base(kind))
    assert run("findings", "import", str(folder), "--db", f"sqlite:///{good}").exit_code == 0
    run("findings", "note", "dde", "seen", "--db", f"sqlite:///{good}", "--by", "ada")
    with closing(sqlite3.connect(good)) as connection:
        for filled in METADATA.tables:
            fill(connection, filled)
        connection.commit()
    with Database.open(f"sqlite:///{good}") as database:
        ids = [one.id for one in database.findings()]
    texts = itertools.islice(itertools.cycle(payloads(canary).values()), 7 * [*METADATA.tables].index(name), None)
    for column, text in itertools.islice(zip(METADATA.tables[name].columns, texts, strict=False), 0, None, step):
        changed = tmp_path / "changed.db"
        shutil.copyfile(good, changed)
        with closing(sqlite3.connect(changed)) as connection:
            with suppress(sqlite3.IntegrityError):  # a key of a row is a number
                connection.execute(f'UPDATE OR IGNORE "{name}" SET "{column.name}" = ?', (text,))
            connection.commit()
        db = f"sqlite:///{changed}"
        for words in (
            ("findings", "list", "--all", "--db", db),
            ("report", "--all", "--db", db),
            *(("findings", "show", one, "--db", db, *option) for one in ids for option in ((), ("--repro",))),
            ("findings", "export", str(tmp_path / "out"), "--db", db),
            ("sites", "--db", db),
            ("answers", "--stored", "--db", db),
        ):
            result = run(*words)
            assert_said(result, words, wrong)
            if "--repro" in words and result.exit_code == 0:
                assert_inert(result.stdout)
            table[f"{name}: {' '.join(words[:2])}"] += 1
    printed(table)
    assert not wrong


def fill(connection: sqlite3.Connection, table: str) -> None:
    """A row in a table that has none."""
    if not connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]:
        rows = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        values = {name: 1 if "INT" in kind or kind in ("BOOLEAN", "FLOAT") else "x" for _, name, kind, *_ in rows}
        values |= {name: "{}" for _, name, kind, *_ in rows if kind == "JSON"}
        marks = ", ".join("?" for _ in values)
        columns = ", ".join(f'"{name}"' for name in values)
        connection.execute(f'INSERT INTO "{table}" ({columns}) VALUES ({marks})', tuple(values.values()))


# Commands that run programs


WITHOUT = """\
#!{python}
import os, sys
if "-P" in sys.argv:
    sys.exit(1)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_runs_stored_programs(canary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Findings with payloads in all of their fields, and key functions of a user, in each command that runs them."""
    table, wrong = Counter[str](), list[str]()
    step = 1 if request.config.getoption("--all-payloads") else 3
    folder, db = tmp_path / "findings", f"sqlite:///{tmp_path}/x.db"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(canary)!r}, 'w')\ndef f(tensor): return 1\n")
    shutil.copy(evil, folder.parent / "here" / "evilmodule.py")
    made = [
        with_id({**base("key-confuses"), "minimal": _calling(function), "original": _calling(function)}, number)
        for number, function in enumerate((f"{evil}:f", "evilmodule:f", "torch.evilmodule:f", "torch.hub:os"), 1)
    ]
    made = made[::step]
    for name in ("dde", "key-confuses", "over-strict")[:: step * step]:
        document = base(name)
        made.append(in_all(document, free_of(document), list(payloads(canary).values()), 10))
    for one in made:
        fields.write_folder(folder, one)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    text = base("dde")["minimal"].replace("# inputs", "# expect: export/explicit dde at x\n# inputs", 1)
    for number, changed in enumerate(tuple(_read(text, canary))[:: step**4]):
        (corpus / f"{number}.py").write_text(changed, newline="")
    (corpus / "trusted.toml").write_text('[[module]]\npath = "evil.py"\nexpected = "expected.json"\n')
    (corpus / "expected.json").write_text('{"a": {"export": {"outcome": "ok"}}}')
    shutil.copy(evil, corpus / "evil.py")
    without = tmp_path / "python"
    without.write_text(WITHOUT.format(python=sys.executable))
    without.chmod(0o755)
    assert run("findings", "import", str(folder), "--db", db).exit_code == 0
    ids = [one["id"] for one in made]
    for words in (
        ("replay", str(folder)),
        ("replay", "--db", db),
        ("replay", str(corpus)),
        ("replay", str(folder), "--scripts"),
        ("matrix", str(corpus / "0.py"), str(folder), "--python", str(without), "--runs", "1"),
        *(("minimize", one, "--db", db, "--max-attempts", "3") for one in (ids[0], ids[-1])),
        ("bisect", ids[0], "--db", db, "--python", f"a={sys.executable}", "--python", f"b={sys.executable}"),
        ("answers", next(one for one in ids if one.startswith("dde")), "--db", db),
        ("artifacts", ids[0], "--db", db, "--folder", str(tmp_path / "art"), "--stage", "export"),
        ("check", str(folder / ids[0] / "minimal.py"), "--stage", "export"),
        ("check", str(corpus / "0.py"), "--stage", "export"),
    ):
        assert_said(run(*words), words, wrong)
        table[words[0]] += 1
        assert not canary.exists(), words
    collected = [sys.executable, "-m", "pytest", "-q", str(folder), str(corpus), "-p", "no:cacheprovider"]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    subprocess.run(collected, capture_output=True, check=False, cwd=tmp_path / "here", timeout=600)
    table["pytest"] += 1
    printed(table)
    assert not canary.exists()
    assert not wrong
    run("replay", str(folder / ids[0]), "--scripts", "--trust")
    assert canary.exists(), "with --trust it runs: the test can fail"
    canary.unlink()


def _calling(function: str) -> str:
    return str(base("key-confuses")["minimal"]).replace("torch._dynamo.guards:extract_tensor_metadata", function)


def _read(text: str, canary: Path) -> Iterator[str]:
    """The case files with a payload in a token that are read."""
    for payload in payloads(canary).values():
        for _, changed in fields.hostile_texts(text, payload):
            try:
                parsed(changed)
            except DdefuzzError:
                continue
            yield changed
