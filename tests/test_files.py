"""Reading files: regular ones only, up to a size, and one clear line for all else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddefuzz.errors import InputError
from ddefuzz.files import MAX_BYTES, read_bytes, read_start, read_text, read_toml


def test_a_regular_file_is_read_whole_and_a_larger_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    assert read_start(path, 2) == b"12"
    with pytest.raises(InputError, match="found a file of more than 4 bytes, expected at most that many"):
        read_bytes(path, 4)


def test_a_file_that_only_seems_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 100 * MAX_BYTES)  # sparse: it takes no room on the disk
    with pytest.raises(InputError, match="found a file of more than"):
        read_bytes(path)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    found = {}
    for name in ("fifo", "endless", "folder", "dangling", "null\0character"):
        with pytest.raises(InputError) as caught:
            read_bytes(tmp_path / name)
        found[name] = str(caught.value)
    assert "found a FIFO, expected a regular file" in found["fifo"]
    assert "found a character device, expected a regular file" in found["endless"]
    assert "folder" in found["folder"]
    assert "No such file" in found["dangling"]
    assert all("\n" not in line for line in found.values())


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"a = " + b"1" * 5000, "unreadable file .Exceeds the limit"),
        (b"a = " + b"[" * 5000, "nested too deeply|unreadable file"),
        (b"a = ", "unreadable file"),
        (b"a = '\xff'", "found the byte 0xff, expected text in UTF-8"),
    ],
)
def test_toml_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=found) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)


def test_text_and_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("a = 'ü'", encoding="utf-8")
    assert read_text(path) == "a = 'ü'"
    assert read_toml(path) == {"a": "ü"}
