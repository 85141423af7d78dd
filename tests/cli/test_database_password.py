"""No command shows the password of a database: not on stdout or stderr, and not in a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rich_click as click

from ddefuzz import internal
from ddefuzz.cli import doctor
from ddefuzz.cli import main as program
from ddefuzz.findings.database import Database
from ddefuzz.show.table import NAMES
from tests.cli.every_command import commands
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, START, sighting
from tests.findings.servers import new_database, running_server

WORD = "SECRETWORD"
UNREACHABLE = f"postgresql://ada:{WORD}@127.0.0.1:1/x?sslpassword={WORD}&connect_timeout=5"
INVALID = f"postgresql://ada:{WORD}@127.0.0.1:{WORD}/x"
ID = CHUNK.key

WORDS = {
    "run": "--budget 1x -j 1",
    "sweep": "--ops abs -j 1",
    "recompiles": "--ops abs -j 1",
    "sites": "",
    "artifacts": ID,
    "check-key": "torch.is_tensor",
    "check-op": "aten::relu",
    "study": "--models .",
    "findings list": "",
    "findings show": ID,
    "findings siblings": "",
    "findings export": "text",
    "findings import": "text",
    "findings merge": "{url}",
    "findings set": f"{ID} fixed",
    "findings note": f"{ID} text",
    "findings dup": f"{ID} {ROLL.key}",
    "findings undup": ID,
    "findings link": f"{ID} https://example.org/1",
    "findings undo": ID,
    "findings reclassify": "",
    "triage": "",
    "serve": "--port 0",
    "tokens add": "ada",
    "tokens list": "",
    "tokens revoke": "ada",
    "minimize": ID,
    "answers": ID,
    "fixes list": "",
    "fixes show": ID,
    "fixes verify": ID,
    "fixes export": "text",
    "fixes write": "",
    "report": ID,
    "replay": "--sites {url}",
    "corpus add": f"corpus {ID}",
    "corpus promote": ID,
    "ci versions": f"--python other={sys.executable}",
    "matrix": f"--python {sys.executable}",
    "diff": "{url} now={url}#2.13.0",
    "bisect": f"--python a={sys.executable} --python b={sys.executable} {ID}",
    "doctor": "",
}
"""The other words of each command that takes the URL of a database."""

SLOW = {"recompiles", "check-key", "check-op", "ci versions", "matrix", "bisect", "sites"}
"""They import torch or start a process before they open the database."""


Said = Callable[..., tuple[int, str]]


@pytest.fixture
def ddefuzz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """Run a command in a folder: its exit code, what it printed, and the text of all files that it wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "text").mkdir()

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ddefuzz", *words])
        code = 0
        try:
            program.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        files = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
        return code, "\n".join([*capfd.readouterr(), *files])

    return run


def test_each_command_with_a_database_is_in_the_table() -> None:
    assert {name for name, one in commands() if any(option.type.name == "URL" for option in one.params)} == set(WORDS)


PATHS = [
    (name, parameter)
    for name, command in commands()
    for parameter in command.params
    if isinstance(parameter.type, click.Path) or parameter.type.name in ("FILE", "FORMAT=PATH")
]


@pytest.mark.parametrize(("name", "parameter"), PATHS, ids=[f"{name} {of.name}" for name, of in PATHS])
def test_a_url_is_no_path(name: str, parameter: click.Parameter) -> None:
    start = "json=" if parameter.type.name == "FORMAT=PATH" else ""
    for text, found in ((UNREACHABLE, "found a URL, expected a path"), ("", "found '")):
        with pytest.raises(click.BadParameter) as caught:
            parameter.type.convert(start + text, parameter, click.Context(click.Command(name)))
        assert caught.value.message.startswith(("found the format", found))
        assert WORD not in caught.value.message


@pytest.mark.parametrize("words", ["findings export", "init", "corpus list", "replay", "sites --html", "tokens add"])
def test_a_url_in_place_of_a_path_or_name(words: str, ddefuzz: Said, tmp_path: Path) -> None:
    Database.open(f"sqlite:///{tmp_path}/findings.db").close()
    db = [] if words in ("init", "corpus list") else ["--db", f"sqlite:///{tmp_path}/findings.db"]
    before = set(tmp_path.rglob("*"))
    code, text = ddefuzz(*words.split(), UNREACHABLE, *db)
    assert (code, WORD in text, "found a URL, expected" in text) == (2, False, True)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (f"run --budget {UNREACHABLE}", 2),
        (f"run --shard {UNREACHABLE}", 2),
        (f"findings list --op {UNREACHABLE}", 0),
        (f"findings merge ada:{WORD}@db.example/x", 2),
    ],
)
def test_a_url_in_place_of_another_value(words: str, code: int, ddefuzz: Said, tmp_path: Path) -> None:
    Database.open(f"sqlite:///{tmp_path}/findings.db").close()
    ended, text = ddefuzz(*words.split(), "--db", f"sqlite:///{tmp_path}/findings.db")
    assert (ended, "SECR" in text) == (code, False)


@pytest.mark.parametrize("command", [pytest.param(c, marks=pytest.mark.slow) if c in SLOW else c for c in WORDS])
def test_a_server_that_does_not_answer(command: str, ddefuzz: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PARTS", doctor.PARTS[:1])
    words = [*command.split(), *WORDS[command].format(url=UNREACHABLE).split()]
    code, said = ddefuzz(*words, "--db", UNREACHABLE)
    assert code in (1, 4, 5), said
    assert WORD not in said


@pytest.mark.parametrize("command", WORDS)
def test_an_invalid_port(command: str, ddefuzz: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*command.split(), *WORDS[command].format(url=INVALID).split()]
    code, said = ddefuzz(*words, f"--db={INVALID}")
    assert (code, "whose port is not a number" in said, said.strip().count("\n")) == (2, True, 0), said
    assert WORD not in said
    monkeypatch.setenv("DDEFUZZ_DB", INVALID)
    code, said = ddefuzz(*words)
    assert (code, "whose port is not a number" in said) == (2, True), said
    assert WORD not in said


@pytest.mark.parametrize("place", ["ddefuzz.toml", "pyproject.toml", "environment"])
@pytest.mark.parametrize("words", ["--help", "", "DATABASE", "--format=xml", "--dbs DATABASE"])
def test_a_url_in_the_settings(
    place: str, words: str, ddefuzz: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "environment":
        monkeypatch.setenv("DDEFUZZ_DB", UNREACHABLE)
    else:
        table = "[tool.ddefuzz]\n" if place == "pyproject.toml" else ""
        (tmp_path / place).write_text(f"{table}db = '{UNREACHABLE}'\n")
    _, said = ddefuzz("findings", "list", *words.replace("DATABASE", UNREACHABLE).split())
    if place != "environment":
        said = said.replace(f"db = '{UNREACHABLE}'", "", 1)
    assert WORD not in said
    assert said.strip()


@pytest.mark.parametrize("value", ["['{}']", "{{ url = '{}' }}", "'''\n\n{}'''", "'{}"])
def test_a_wrong_value_in_the_settings(value: str, ddefuzz: Said, tmp_path: Path) -> None:
    written = f"db = {value.format(UNREACHABLE)}\n"
    (tmp_path / "ddefuzz.toml").write_text(written)
    code, said = ddefuzz("findings", "list")
    assert code == 2
    assert WORD not in said.replace(written, "", 1)


@pytest.mark.parametrize("secret", [f"postgresql://ada:A {WORD}@h/d", f"postgresql://ada@h/d?options={WORD}"])
@pytest.mark.parametrize("written", ["seed = '{}'", "'{}' = 3", "stage = ['{}']", "budget = {{ url = '{}' }}"])
def test_a_url_as_another_setting(secret: str, written: str, ddefuzz: Said, tmp_path: Path) -> None:
    (tmp_path / "ddefuzz.toml").write_text(setting := f"{written.format(secret)}\n")
    code, said = ddefuzz("run", "--budget", "1s")
    said = said.replace(setting, "", 1)
    assert (code, WORD in said, "postgresql" in said) == (2, False, True)


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_internal_error(debug: str, ddefuzz: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal, "PLACE", str(tmp_path))
    monkeypatch.setattr(internal, "DRAFTS", str(tmp_path))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"it broke at {UNREACHABLE} and psycopg://x:{WORD}/w@h/d, sslpassword={WORD}")

    monkeypatch.setattr(Database, "open", fail)
    monkeypatch.setenv("DDEFUZZ_DEBUG", debug)
    code, said = ddefuzz("findings", "list", "--db", UNREACHABLE)
    assert (code, "it broke at postgresql://ada:***@127.0.0.1:1/x" in said, "Traceback" in said) == (3, True, True)
    assert WORD not in said
    internal.take()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.mark.slow
@pytest.mark.long
def test_a_server_that_answers(server: str, ddefuzz: Said, tmp_path: Path) -> None:
    """Pages, reports in every format and what is typed next."""
    address = new_database(server).replace("@/", f":{WORD}@/")
    with Database.open(address) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        database.set_minimal(ID, PROGRAM, steps=1, attempts=11)
        database.set_confirmed(ID, 3, 3)
    outputs = [word for name in NAMES for word in ("--output", f"{name}={tmp_path}/report.{name}")]
    for words in (
        ["run", "--budget", "2x", "-j", "1", "--no-minimize", *outputs],
        ["report", *outputs],
        ["report", ID, "--format", "issue"],
        ["findings", "list"],
        ["findings", "list", "--format", "json"],
        ["findings", "show", ID],
        ["findings", "show", "none"],
        ["findings", "export", "text"],
        ["findings", "import", "text"],
        ["findings", "set", ID, "confirmed"],
        ["findings", "reclassify"],
        ["findings", "merge", address],
        ["sites", "--html", f"{tmp_path}/pages"],
        ["diff", "1", address],
        ["replay", "--scripts", *outputs],
    ):
        code, said = ddefuzz(*words, "--db", address)
        assert code != 3, said
        assert WORD not in said, words
        if "--output" in words and words[0] != "replay":
            assert re.search(r"postgresql://\w+:\*\*\*@/", (tmp_path / "report.markdown").read_text())
    with Database.open(address) as database:
        rows = database.read(lambda session: str([*session.connection().exec_driver_sql("SELECT * FROM campaigns")]))
    assert WORD not in rows
