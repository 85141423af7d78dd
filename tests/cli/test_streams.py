"""Output that cannot be written: one line and exit code 4, or no message if the reader has ended."""

from __future__ import annotations

import errno
import io
import os
import subprocess
from pathlib import Path

import pytest

from ddefuzz.cli.command import Output
from ddefuzz.cli.output import LiveLine, deliver, stdout_page
from ddefuzz.cli.streams import EXIT_BROKEN_PIPE, MOST_SAID, check_streams, say, write_line, write_stdout
from ddefuzz.errors import EXIT_UNSUPPORTED, UnsupportedError
from ddefuzz.escape import BREAK
from tests.campaign.real_campaign import DDEFUZZ, environment

FULL = Path("/dev/full")


def ended(tmp_path: Path, redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a shell, which does the redirections."""
    line = 'exec "$@" ' + redirection
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", *DDEFUZZ, *words],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("words", [("--help",), ("run", "--help")])
def test_a_full_disk_under_stdout_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = ended(tmp_path, ">/dev/full", *words)
    assert done.returncode == EXIT_UNSUPPORTED
    assert done.stderr == "ddefuzz: cannot go on: No space left on device, expected a disk with free space\n"


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
def test_an_error_that_cannot_be_said_keeps_its_exit_code(tmp_path: Path) -> None:
    assert ended(tmp_path, "2>/dev/full", "findings", "list", "--db", "nonesuch://x").returncode == EXIT_UNSUPPORTED


def test_data_for_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """What a text stream on a full disk does."""

        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    monkeypatch.setattr("ddefuzz.cli.streams.give_up_streams", lambda: None)
    with pytest.raises(UnsupportedError, match="stdout cannot be written: No space left on device, expected a disk"):
        write_stdout("text")


def test_a_closed_stdout_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    done = ended(tmp_path, ">&-", "run", "--db", f"sqlite:///{database}")
    assert done.returncode == EXIT_UNSUPPORTED
    assert done.stderr == "ddefuzz: stdout is closed, expected a file, a pipe or a terminal that can be written\n"
    assert not database.exists()


@pytest.mark.slow
def test_a_closed_stderr_takes_no_file_for_itself(tmp_path: Path) -> None:
    assert ended(tmp_path, "2>&-", "findings", "list", "--db", "nonesuch://x").returncode == EXIT_UNSUPPORTED


def test_a_reader_that_is_gone_ends_it_without_a_word(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*DDEFUZZ, "--help"],
        env=environment(tmp_path),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_BROKEN_PIPE, "")


def test_an_error_is_one_line_whatever_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    say("no\n::error::b.py: \x1b[31mfound")
    assert capsys.readouterr().err == "no\\n::error::b.py: \\x1b[31mfound\n"


def test_a_line_has_an_upper_length_but_a_traceback_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    say("\x1b" * MOST_SAID)
    assert capsys.readouterr().err == (r"\x1b" * MOST_SAID)[:MOST_SAID] + "…\n"
    say("a" * MOST_SAID)
    assert capsys.readouterr().err == f"{'a' * MOST_SAID}\n"
    say("ab\n" * MOST_SAID, kept="\n")
    assert capsys.readouterr().err == "ab\n" * MOST_SAID + "\n"


def test_a_log_of_ci_gets_no_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for place, parts in (("", ("", "")), ("true", (BREAK, BREAK))):
        monkeypatch.setenv("GITHUB_ACTIONS", place)
        say("::stop-commands::x")
        progress = LiveLine("start")
        progress.say("::add-mask::x")
        for format_ in ("text", "markdown", "issue", "csv"):
            deliver({format_: "a\n::error::x\n"}, Output(format_))
        write_line("::error::\x1b]0;x\x07\nname")
        shown = capsys.readouterr()
        first, second = parts
        listed = rf"{first}::error::\x1b]0;x\x07\nname"
        assert shown.out == f"a\n{first}::error::x\n" * 3 + f"a\n::error::x\n{listed}\n"
        assert [line for line in shown.err.splitlines() if "::" in line] == [
            f"{second}::stop-commands::x",
            f"{second}::add-mask::x",
        ]


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", rb"\u2500\xe9"), ("latin-1", b"\\u2500\xe9")])
def test_text_has_the_encoding_of_stdout_and_a_document_is_utf_8(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding))
    check_streams()
    deliver({"text": "─é"}, Output("text"))
    deliver({"html": "─é"}, Output("html"))
    assert written.getvalue() == shown + "─é".encode()


def test_a_terminal_without_escapes_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for terminal, has_color in (("xterm", True), ("dumb", False)):
        monkeypatch.setenv("TERM", terminal)
        assert stdout_page().color is has_color


@pytest.mark.parametrize(("width", "left"), [("²", None), ("9" * 5_000, None), ("100", "100")])
def test_a_width_that_is_no_number_is_unset(width: str, left: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    check_streams()
    assert os.environ.get("COLUMNS") == left
    stdout_page()
