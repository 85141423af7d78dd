"""The temporary folder of a process: locked while it lives, removed by a later start after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ddefuzz.execute.scratch import PREFIX
from tests.campaign.real_campaign import environment

HOLDS = "from ddefuzz.execute.scratch import scratch_folder; print(scratch_folder(), flush=True); input()"
ENDS = "from ddefuzz.execute.scratch import scratch_folder; print(scratch_folder())"


def started(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has made its folder and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENDS], env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=60
    )


def test_the_next_start_removes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / "mine").mkdir()
    living, kept = started(tmp_path)
    killed, left = started(tmp_path)
    with living, killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        assert left.is_dir()
        third = ended(tmp_path)
        assert third.returncode == 0, third.stderr
        assert not left.exists()
        assert kept.is_dir()
        assert not Path(third.stdout.strip()).exists()
        living.communicate("\n", timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}file", "mine"]


DEEP = """\
import os
from ddefuzz.execute.scratch import scratch_folder
os.chdir(scratch_folder())
for _ in range(40):
    open("file", "w").close()
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
os.chdir("/")
"""


def test_a_folder_deeper_than_paths_may_be_is_removed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DEEP], env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_at_the_end_is_silent_and_the_folder_is_removed(tmp_path: Path) -> None:
    code = (
        "import signal; from ddefuzz.execute import scratch; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "remove = scratch.remove_tree\n"
        "scratch.remove_tree = lambda folder: (signal.raise_signal(signal.SIGINT), remove(folder))\n"
        "print(scratch.scratch_folder())"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
