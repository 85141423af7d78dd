"""Reading files: regular ones only, up to a size. Writing them: whole or not at all. One clear line for all else."""

from __future__ import annotations

import ast
import errno
import os
import re
import select
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import ddefuzz
from ddefuzz import internal
from ddefuzz.campaign.replay import trusted_cases
from ddefuzz.checking.study import read_rows
from ddefuzz.errors import InputError
from ddefuzz.files import (
    MAX_BYTES,
    MAX_KEY_PARTS,
    MAX_TOML,
    append,
    check_folder,
    check_writable,
    entries,
    files_below,
    is_file,
    is_folder,
    is_there,
    json_lines,
    leads_to_file,
    read_bytes,
    read_start,
    read_text,
    read_toml,
    real_path,
    to_install,
    write_atomically,
    write_files,
    write_own,
)
from ddefuzz.findings.ledger import read_lines
from ddefuzz.sweep.recompile import StoredResult
from ddefuzz.versions.side_by_side import read_saved

PACKAGE = Path(ddefuzz.__file__).parent


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
        (b"a = " + b"{a.a.a.a.a.a.a.a.a.a=" * 200 + b"1" + b"}" * 200, "nested too deeply"),
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


BAD_JSON = (b'{"a\xe9": 1}', b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"{", b"[1]")


def trusted(path: Path) -> object:
    listed = path.with_name("trust.toml")
    listed.write_text(f'[[module]]\npath = "m.py"\nexpected = "{path.name}"\n')
    return list(trusted_cases(listed))


@pytest.mark.parametrize("content", BAD_JSON, ids=["Latin-1", "nested", "cut", "list"])
@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (trusted, "the outcomes of cases by stage"),
        (read_saved, "a line that `ddefuzz diff --save` wrote"),
        (read_rows, "a model as this version of `ddefuzz study` keeps it"),
        (lambda path: list(json_lines(path, StoredResult, "a stored result")), "a stored result"),
        (read_lines, "a site line"),
    ],
    ids=["replay --trust", "diff", "study --keep", "recompiles --keep", "hook"],
)
def test_json_that_cannot_be_read_is_one_line(
    tmp_path: Path, content: bytes, read: Callable[[Path], object], expected: str
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(content + b"\n")
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}.*, expected {expected}$"):
        read(path)


def test_text_and_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("a = 'ü'", encoding="utf-8")
    assert read_text(path) == "a = 'ü'"
    assert read_toml(path) == {"a": "ü"}


NOBODY = 65534


@contextmanager
def not_root() -> Iterator[None]:
    """Without the rights of root, who may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    group = os.getegid()
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """The mode of everything below a folder, and the text of files or the place that a link names."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        text = (
            path.read_text(errors="replace")
            if stat.S_ISREG(mode)
            else str(path.readlink())
            if stat.S_ISLNK(mode)
            else ""
        )
        found[str(path.relative_to(folder))] = (mode, text)
    return found


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_is_replaced_and_keeps_its_permissions_and_owner(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("a longer text")
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    before = path.stat()
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "a longer text"
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert (path.read_text(), after.st_ino != before.st_ino) == ("new", True)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "folder", "another user's"])
def test_a_report_is_written_over_nothing_else(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, path = tmp_path / "other.txt", tmp_path / "ddefuzz-error-1.txt"
    if kind != "dangling":
        other.write_text("theirs")
    match kind:
        case "folder":
            path.mkdir()
        case "hard link":
            path.hardlink_to(other)
        case "another user's":
            path.write_text("theirs")
            monkeypatch.setattr(os, "geteuid", lambda: path.lstat().st_uid + 1)
        case _:
            path.symlink_to(other)
    before = path.lstat()
    place = write_own(path, b"report")
    assert (place.read_bytes(), place.parent) == (b"report", tmp_path)
    assert kind == "hard link" or (place != path and path.lstat() == before)
    assert kind == "dangling" or other.read_text() == "theirs"
    assert other.exists() == (kind != "dangling")
    if kind != "another user's":
        assert write_own(path, b"the next") == place  # one file for each report of a process
    assert place.name.startswith("ddefuzz-error-1")


def test_the_report_of_an_internal_error_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = Path(internal.written(error := ValueError("planted")))
    first.unlink()
    (tmp_path / "other.txt").write_text("theirs")
    first.symlink_to("other.txt")
    second = Path(internal.written(error))
    assert ("planted" in second.read_text(), second != first) == (True, True)
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    (drafts / first.name).write_text("of a worker")
    with internal.apart() as noted:
        internal.add([internal.InternalError("here", "planted", str(first))], drafts)
    assert Path(noted[0].report).read_text() == "of a worker"
    assert (tmp_path / "other.txt").read_text() == "theirs"


def test_a_write_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    killed = (
        "import os, signal\nfrom ddefuzz import files\n"
        "files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.write_atomically(files.Path('one'), 'x')"
    )
    subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False)
    (abandoned,) = tmp_path.iterdir()
    _, numbers, ended, _ = abandoned.name[1:].split("-")
    others = {
        f".ddefuzz-{numbers}-{os.getpid()}-abcdefgh",
        f".ddefuzz-{'0' * len(numbers)}-{ended}-abcdefgh",  # of another container
        f".ddefuzz-{ended}-abcdefgh",
        ".ddefuzz-notes",
    }
    for name in others:
        (tmp_path / name).touch()
    write_atomically(tmp_path / "two", "x")
    assert abandoned.name.startswith(".ddefuzz-")
    assert {one.name for one in tmp_path.iterdir()} == {"two", *others}


def test_nothing_is_written_if_one_file_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_files(tmp_path, {"one": "x", "two": "\ud800"})
    assert not any(tmp_path.iterdir())


def test_a_new_file_and_its_folders(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a" / "b" / "file", b"\0")
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"\0"
    assert (tmp_path / "a" / "b" / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("target", ["file", "new", "folder/new", "no/folder/new", "chain"])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "chain").symlink_to("folder/next")
    (tmp_path / "folder" / "next").symlink_to("../last")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link"
    link.symlink_to(f"../{target}")
    check_writable(link)
    write_atomically(link, "new")
    assert (link.is_symlink(), (tmp_path / target).resolve().read_text(), link.read_text()) == (True, "new", "new")
    assert (tmp_path / "chain").is_symlink()
    assert [one.name for one in (tmp_path / "links").iterdir()] == ["link"]


REFUSED = {
    "folder": "found a folder, expected a file, a pipe or a character device",
    "socket": "found a socket, expected a file",
    "linked-socket": "found a socket, expected a file",
    "loop": "symbolic links",
    "loop/file": "symbolic links",
    "to-itself": "symbolic links",
    "file/below": "file is a file, expected a folder",
    "link-below-file": "file is a file, expected a folder",
    "n" * 300: "File name too long",
    "nul\0": "expected the path of a file",
    ".": "found a folder",
    "folder/..": "found a folder",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_file_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    (tmp_path / "to-itself").symlink_to("to-itself")
    (tmp_path / "linked-socket").symlink_to("socket")
    (tmp_path / "link-below-file").symlink_to("file/new")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        before = tree(tmp_path)
        for act in (check_writable, lambda path: write_atomically(path, "new"), lambda path: append(path, b"new")):
            with pytest.raises(InputError, match=REFUSED[name]) as caught:
                act(Path(name))
            assert "\n" not in str(caught.value)
        assert tree(tmp_path) == before


def test_no_permission(shared: Path) -> None:
    (shared / "file").write_text("old")
    (shared / "file").chmod(0o444)
    before = tree(shared)
    for name, found in (("file", "no permission to write .*file"), ("new", "no permission"), ("a/b", "no permission")):
        for act in (check_writable, lambda path: write_atomically(path, "new"), lambda path: append(path, b"new")):
            with not_root(), pytest.raises(InputError, match=found):
                act(shared / name)
    assert tree(shared) == before


def test_a_file_in_a_folder_that_cannot_be_written_is_written_in_place(shared: Path) -> None:
    path = shared / "file"
    path.write_text("a longer text")
    path.chmod(0o606)
    for text in ("new", "a text that is longer than before", ""):
        with not_root():
            check_writable(path)
            write_atomically(path, text)
        assert (path.read_text(), path.stat().st_mode & 0o777, [one.name for one in shared.iterdir()]) == (
            text,
            0o606,
            ["file"],
        )


def test_a_file_in_place_stays_if_there_is_no_space(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, _start: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    path = shared / "file"
    path.write_text("old")
    path.chmod(0o606)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with not_root(), pytest.raises(InputError, match="No space left on device"):
        write_atomically(path, "n" * 100)
    assert path.read_text() == "old"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(_descriptor: int) -> None:
        raise error

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        write_atomically(tmp_path / "file", "new")
    assert tree(tmp_path) == {"file": ((tmp_path / "file").stat().st_mode, "old")}


def test_a_fifo_with_a_reader_gets_all_and_stays(tmp_path: Path) -> None:
    fifo, text = tmp_path / "fifo", "x" * 300_000
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    got = list[bytes]()

    def read() -> None:
        with os.fdopen(descriptor, "rb") as file:
            got.append(file.read())

    # A second writer keeps the FIFO open until the first one has begun.
    other = os.open(fifo, os.O_WRONLY)
    reader = threading.Thread(target=read)
    reader.start()
    check_writable(fifo)
    write_atomically(fifo, text)
    os.close(other)
    reader.join()
    assert got == [text.encode()]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_without_a_reader_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="nothing reads from it, expected a reader"):
        write_atomically(tmp_path / "fifo", "text")
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


def test_a_reader_that_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    descriptor = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    polled = select.poll()
    polled.register(descriptor, select.POLLIN)

    def end() -> None:
        polled.poll()
        os.close(descriptor)

    reader = threading.Thread(target=end)
    reader.start()
    with pytest.raises(InputError, match="its reader has ended"):
        write_atomically(tmp_path / "fifo", b"x" * 10_000_000)
    reader.join()


def test_devices(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (Path("/dev/null"), tmp_path / "link"):
        check_writable(path)
        write_atomically(path, "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(InputError, match="No space left on device"):
        write_atomically(Path("/dev/full"), "text")
    with pytest.raises(InputError, match=r"Bad file descriptor"):
        write_atomically(Path("/dev/fd/999"), "text")


def test_descriptors_of_this_process(tmp_path: Path) -> None:
    """A pipe, and a file that is written from where it is, as `>(…)` and `3>>file` give them."""
    reader, writer = os.pipe()
    check_writable(Path(f"/dev/fd/{writer}"))
    write_atomically(Path(f"/dev/fd/{writer}"), "text")
    os.close(writer)
    with os.fdopen(reader) as file:
        assert file.read() == "text"
    with (tmp_path / "file").open("a") as file:
        file.write("before ")
        file.flush()
        write_atomically(Path(f"/proc/self/fd/{file.fileno()}"), "between ")
        file.write("after")
    assert (tmp_path / "file").read_text() == "before between after"


@pytest.mark.parametrize("to", ["pipe", "file"])
def test_the_streams_of_a_process_in_order(tmp_path: Path, to: str) -> None:
    code = (
        "from pathlib import Path; from ddefuzz.files import write_atomically as w; import sys; "
        "print('one'); w(Path('/dev/stdout'), 'two\\n'); print('three', flush=True); w(Path('/dev/stderr'), 'four\\n')"
    )
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=out if to == "file" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=True,
        )
    assert (done.stdout or (tmp_path / "out").read_bytes(), done.stderr) == (b"one\ntwo\nthree\n", b"four\n")


PLANTED = {
    "a file for a folder": ("file", "a", "found a regular file, expected a folder or nothing there"),
    "a folder for a file": ("folder", "a/b/file", "found a folder, expected a regular file or nothing there"),
    "a link for a folder": ("link", "a/b", "found a symbolic link, expected a folder or nothing there"),
    "a link for a file": ("link", "a/b/file", "found a symbolic link, expected a regular file or nothing there"),
    "a dangling link": ("dangling", "a", "found a symbolic link, expected a folder or nothing there"),
    "a loop": ("loop", "a", "found a symbolic link, expected a folder or nothing there"),
    "a FIFO": ("fifo", "last", "found a FIFO, expected a regular file or nothing there"),
}


def plant(kind: str, path: Path, outside: Path) -> None:
    """Put something where a file or a folder is wanted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    outside.mkdir(exist_ok=True)
    match kind:
        case "file":
            path.write_text("mine")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(outside)
        case "dangling":
            path.symlink_to(outside / "none")
        case _:
            path.symlink_to(path.name)


@pytest.mark.parametrize("planted", PLANTED)
def test_a_folder_is_written_as_a_whole_or_refused(tmp_path: Path, planted: str) -> None:
    kind, place, found = PLANTED[planted]
    plant(kind, tmp_path / "top" / place, tmp_path / "outside")
    before = tree(tmp_path)
    with pytest.raises(InputError, match=found) as caught:
        write_files(tmp_path / "top", {"first": "1", "a/b/file": "2", "last": b"3"})
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == before


def test_a_folder_that_is_a_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("made")
    write_files(tmp_path / "link", {"a/file": "1"})
    write_files(tmp_path / "dangling", {"a/file": "2"})
    assert [(tmp_path / name / "a" / "file").read_text() for name in ("real", "made")] == ["1", "2"]


@pytest.mark.parametrize("name", ["../file", "/file", "a/../../file"])
def test_a_name_that_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="found a path that leads out of"):
        check_folder(tmp_path, ["a", name])


def test_a_line_is_added_to_a_file(tmp_path: Path) -> None:
    for line in (b"1\n", b"2\n"):
        append(tmp_path / "new" / "file", line)
    assert (tmp_path / "new" / "file").read_bytes() == b"1\n2\n"
    with pytest.raises(InputError, match="found a pipe or a device, expected a regular file"):
        append(Path("/dev/null"), b"1")


@pytest.mark.parametrize("name", ["/proc/self/mem", "/proc/kmsg", "/proc/self/environ", "/dev/zero", "/dev/null"])
def test_a_link_to_a_file_of_the_kernel_is_not_read(tmp_path: Path, name: str) -> None:
    if not Path(name).exists():
        pytest.skip(f"no {name} here")
    path = tmp_path / "finding.toml"
    path.symlink_to(name)
    with pytest.raises(InputError, match="expected a regular file"):
        read_toml(path)


def test_toml_has_its_own_limits(tmp_path: Path) -> None:
    path = tmp_path / "finding.toml"
    path.write_text(f'title = "{"x" * MAX_TOML}"\n')
    with pytest.raises(InputError, match=f"found a file of more than {MAX_TOML} bytes"):
        read_toml(path)
    path.write_text(".".join("a" * (MAX_KEY_PARTS + 1)) + " = 1\n")
    with pytest.raises(InputError, match=f"found a key of more than {MAX_KEY_PARTS} parts"):
        read_toml(path)
    path.write_text(".".join("a" * MAX_KEY_PARTS) + " = 1\n")
    assert list(read_toml(path)) == ["a"]


@pytest.mark.parametrize("part", ["a.", '"!".', "'!' . ", '"\\"".', '"".', "''."])
@pytest.mark.parametrize("place", ["{} = 1", "[{}]", "[[{}]]", "x = {{ {} = 1 }}", "x = [{{k = 1, {} = 1}}]"])
def test_a_long_key_is_refused_wherever_it_is(tmp_path: Path, part: str, place: str) -> None:
    """The parser would take minutes for these."""
    path = tmp_path / "finding.toml"
    before = 'a1 = """" " \\""""""\nb1 = \'\'\'" \'\' \'\'\'\'\'\nc1 = "\'" # "\n'
    path.write_text(before + place.format(part * 100_000 + "z"))
    with pytest.raises(InputError, match=f"found a key of more than {MAX_KEY_PARTS} parts"):
        read_toml(path)
    path.write_text(before + place.format(part + "z"))
    assert set(read_toml(path)) > {"a1", "b1", "c1"}


@pytest.mark.parametrize("quote", ['"', "'", '"""', "'''"])
def test_dots_of_strings_and_comments_are_of_no_key(tmp_path: Path, quote: str) -> None:
    path = tmp_path / "finding.toml"
    dots = "a." * 100_000
    path.write_text(f"x = [1.5, {quote}{dots}{quote}]  # {dots}\n")
    assert read_toml(path) == {"x": [1.5, dots]}


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "finding.toml"
    path.write_text(f"a = [{{b = 0x{'f' * 5_000}}}]\n")
    with pytest.raises(InputError, match="an integer of 20000 bits"):
        read_toml(path)


@contextmanager
def unprivileged() -> Iterator[None]:
    """No permission of root, which may search every folder."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_path_that_cannot_be_looked_up_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked").chmod(0)
    said = {
        "locked/file": "Permission denied",
        "a" * 300: "File name too long",
        "a" * 5000: "File name too long",
        "null\0character": "embedded null byte",
    }
    for question in (is_there, is_file, is_folder):
        for name, reason in said.items():
            with (
                unprivileged() if "locked" in name else nullcontext(),
                pytest.raises(InputError, match=f"cannot be read: {reason}, expected a path") as raised,
            ):
                question(tmp_path / name)
            assert "\n" not in str(raised.value)
            assert len(str(raised.value)) < 1_200
    with unprivileged():
        with pytest.raises(InputError, match="locked: cannot be read: Permission denied, expected a folder"):
            entries(tmp_path / "locked")
        assert not any(leads_to_file(tmp_path / name) for name in (*said, "loop", "nothing", "."))
    for question in (is_file, is_folder):
        with pytest.raises(InputError, match="Too many levels of symbolic links"):
            question(tmp_path / "loop")
    assert is_there(tmp_path / "loop")
    assert not is_there(tmp_path / "loop" / "file")
    assert real_path(tmp_path / "loop") == tmp_path / "loop"
    assert files_below(tmp_path, "l*") == [tmp_path / "loop"]
    (tmp_path / "locked").chmod(0o700)


def test_paths_are_looked_up_here_alone() -> None:
    """Those of `Path` raise for what cannot be looked up, in Python 3.11."""
    asked = {
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "files.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in ("is_file", "is_dir", "exists"))
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".resolve") and not node.args)
    }
    assert not asked


def test_an_extra_is_installed_from_the_tree_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ddefuzz.files.SOURCE", tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert to_install("web") == "pip install 'ddefuzz[web]'"
    (tmp_path / "pyproject.toml").touch()
    assert to_install("web") == ".venv/bin/python -m pip install --editable '.[web]'"
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert to_install("web") == f"{tmp_path}/.venv/bin/python -m pip install --editable '..[web]'"
