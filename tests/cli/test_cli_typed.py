"""The command line as it is typed: help, errors, exit codes, and imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rich_click as click
from click.testing import CliRunner

from ddefuzz.cli.main import COMMANDS, cli
from ddefuzz.findings.database import Database
from tests.cli.every_command import commands
from tests.findings.arbitrary_findings import CHUNK, START, sighting
from tests.typed import typed

SUBCOMMANDS = {
    "findings": (
        "list",
        "show",
        "siblings",
        "set",
        "note",
        "dup",
        "undup",
        "link",
        "undo",
        "export",
        "import",
        "merge",
    ),
}
PAGES = [[], *([name] for name in COMMANDS), *([name, sub] for name, subs in SUBCOMMANDS.items() for sub in subs)]

WORD = r"[\w.:-]+"

MAIN = "from ddefuzz.cli.main import main; main()"


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.record(sighting(CHUNK), START)
    return url


def command_of(page: list[str]) -> click.Command:
    command: click.Command = cli
    for name in page:
        context = click.Context(command)
        assert isinstance(command, click.Group)
        _, found, _ = command.resolve_command(context, [name])
        assert found is not None
        command = found
    return command


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_help_at_80_columns_cuts_no_word(page: list[str]) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*page, "--help"]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown.replace("crash …", "").replace("torch.chunk …", "")
    words = set(re.findall(WORD, shown))
    command = command_of(page)
    said = [command.help or "", *(one.help or "" for one in command.params if isinstance(one, click.Option))]
    assert set(re.findall(WORD, " ".join(said))) <= words
    for option in command.params:
        if isinstance(option, click.Option):
            assert set(option.opts) <= words
            assert option.help, f"{option.name} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_table_says(name: str) -> None:
    command = command_of([name])
    assert command.name == name
    assert " ".join((command.help or "").split()).startswith(COMMANDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["check", "--help"], ["findings", "list"]])
def test_what_only_reads_does_not_import_torch(words: list[str], url: str, tmp_path: Path) -> None:
    code = f"""import sys
try:
    {MAIN}
finally:
    print(*(name in sys.modules for name in ('torch', 'sqlalchemy')), file=sys.stderr)
"""
    code = code.replace("; ", "\n    ")
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env={**os.environ, "DDEFUZZ_DB": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    torch, sqlalchemy = done.stderr.split()
    assert torch == "False"
    if words == ["--help"]:
        assert sqlalchemy == "False", "help of ddefuzz imports no command"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rnu"], "ddefuzz: No such command 'rnu'. Did you mean 'run'?"),
        (["run", "--budge", "3"], "ddefuzz run: No such option '--budge'. Did you mean '--budget'?"),
        (["findings", "lit"], "ddefuzz findings: No such command 'lit'. Did you mean 'list'?"),
        (["check"], "ddefuzz: found no TARGET, expected one such as model.py:make_model, or a list check.targets"),
        (["run", "--budget", "1d"], "ddefuzz: --budget: found '1d', expected a time such as"),
        (
            ["run", "--seed", str(2**63)],
            "ddefuzz run: Invalid value for '--seed': 9223372036854775808 is not in",
        ),
        (["run", "--budget", "9x", "--max-examples", "9"], "ddefuzz: found both --budget 9x and --max-examples 9"),
    ],
)
def test_what_is_typed_wrong_is_one_line_and_exit_2(words: list[str], line: str, tmp_path: Path) -> None:
    done = typed(*words, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(line)


@pytest.mark.slow
def test_what_is_set_wrong_says_where(tmp_path: Path) -> None:
    (tmp_path / "ddefuzz.toml").write_text('jobs = "many"\nprofile = "wide"\n')
    done = typed("run", folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.rstrip().endswith("(jobs in ddefuzz.toml)")
    (tmp_path / "ddefuzz.toml").write_text("proflie = 3\n")
    done = typed("findings", "list", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'profile'?" in done.stderr


def test_help_shows_the_default_that_holds(tmp_path: Path) -> None:
    (tmp_path / "ddefuzz.toml").write_text('jobs = 7\nbudget = "9m"\nstage = ["fake"]\n')
    shown = typed("run", "--help", folder=tmp_path, environment={"DDEFUZZ_JOBS": "5"}).stdout
    for default in ("default=5", "default=9m", "default=fake"):
        assert default in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["findings", "list", "--db", "sqlite:///none.db"], 4),
        (["findings", "list", "--db", "none"], 2),
        (["check", "none.py"], 2),
        (["replay"], 5),
        (["--version"], 0),
    ],
)
def test_exit_codes(words: list[str], code: int, tmp_path: Path) -> None:
    done = typed(*words, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == int(code != 0)


BROKEN = "import ddefuzz.cli.findings as module; module.list_view = lambda *words: 1 // 0"


@pytest.mark.slow
def test_a_bug_of_ddefuzz_is_one_line_and_its_traceback_elsewhere(url: str, tmp_path: Path) -> None:
    words = ("findings", "list", "--db", url)
    done = typed(*words, folder=tmp_path, before=BROKEN, environment={"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "internal error" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    (report,) = tmp_path.glob("ddefuzz-*.txt")
    assert "report" in done.stderr
    assert str(report) in done.stderr
    assert "Traceback" in report.read_text()
    done = typed(*words, folder=tmp_path, before=BROKEN, environment={"DDEFUZZ_DEBUG": "1"})
    assert (done.returncode, "Traceback" in done.stderr) == (3, True)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["check", "x.py:f"], ["findings", "list"], ["replay"]], ids=" ".join)
def test_a_working_folder_that_is_gone_is_one_line(words: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    done = typed(*words, folder=folder, before="import os; os.rmdir(os.getcwd())")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("ddefuzz: the working folder has been removed, expected it to stay")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(url: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "findings", "list", "--db", url],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=120,
    )
    os.close(writing)
    assert done.stderr == b""


@pytest.mark.slow
def test_stdout_is_data_alone(url: str, tmp_path: Path) -> None:
    (document,) = json.loads(typed("findings", "list", "--db", url, "--format", "json", folder=tmp_path).stdout)
    assert document["schema"] == "ddefuzz.finding/3"
    shown = typed("findings", "list", "--db", url, folder=tmp_path, environment={"NO_COLOR": "1"}).stdout
    assert "\x1b" not in shown


@pytest.mark.slow
def test_a_campaign_ends_with_one_object(tmp_path: Path) -> None:
    words = ("run", "--max-examples", "2", "--seed", "7", "-j", "1", "--stage", "export", "--format", "json")
    done = typed(*words, "--no-minimize", "--fail-on", "never", folder=tmp_path, environment={"CI": "true"})
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["schema"], summary["cases"], summary["seed"]) == ("ddefuzz.campaign/2", 2, 7)
    assert "ddefuzz run --seed 7 --budget 2x" in done.stderr
    assert "\x1b" not in done.stderr


LIMITS = [
    (name, option)
    for name, command in commands()
    for option in command.params
    if option.name in {"timeout", "budget"} and isinstance(option.default, float)
]


@pytest.mark.parametrize(("name", "option"), LIMITS, ids=[f"{name} {option.name}" for name, option in LIMITS])
@pytest.mark.parametrize("found", ["inf", "nan", "-3", "1e300", "86401", "soon"])
def test_a_limit_of_time_is_a_number_of_seconds_up_to_a_day(name: str, option: click.Parameter, found: str) -> None:
    context = click.Context(click.Command(name))
    with pytest.raises(click.BadParameter, match=r"^found .*, expected .*seconds"):
        option.type_cast_value(context, found)
    assert option.type_cast_value(context, "86400") == 86400
