"""Versions of torch as wheels in a folder, each installed into an environment of its own while it is used."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ddefuzz.errors import InputError, UnsupportedError, refuse
from ddefuzz.files import is_there
from ddefuzz.versions.model import Interpreter

INSTALL_SECONDS: Final = 1800.0


class Wheel(NamedTuple):
    """A wheel, and the version of torch in its file name."""

    torch: str
    path: Path


def wheels_in(folder: Path, option: str = "--wheels ") -> list[Wheel]:
    """The wheels of torch in a folder that this Python can install. One for another Python or machine is no fault of
    the folder. Raises `InputError` for a folder without any. A name that is none of a wheel is refused (`refusals`).
    `option` is how errors begin.
    """
    if not is_there(folder):
        raise InputError(f"{option}{folder}: found no such folder, expected one with wheels of torch")
    fit, wheels = frozenset(sys_tags()), []
    for path in sorted(folder.glob("torch-*.whl")):
        try:
            _, version, _, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            refuse(InputError(f"{path}: found no name of a wheel, expected torch-VERSION-PYTHON-ABI-PLATFORM.whl"))
            continue
        if tags & fit:
            wheels.append(Wheel(str(version), path))
    if not wheels:
        most = next(iter(sys_tags()))
        raise InputError(f"{option}{folder}: found no wheel of torch that fits, expected torch-VERSION-{most}.whl")
    return wheels


@contextmanager
def environment(wheel: Wheel) -> Iterator[Interpreter]:
    """The interpreter of `installed`, in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="ddefuzz-torch-", ignore_cleanup_errors=True) as folder:
        yield installed(wheel, Path(folder))


Index: TypeAlias = bool | str
"""Where pip may look beside the wheel's folder: nowhere, where it is configured to, or at this URL."""


def installed(wheel: Wheel, folder: Path, index: Index = False) -> Interpreter:
    """An interpreter in a new environment with the torch of the wheel. It sees the packages of this Python, and what
    torch requires beyond these is taken from the wheel's folder (`pip download` fills one), or from the index. If these
    have not all, torch is installed alone. Raises `UnsupportedError`.
    """
    python = str(folder / ("bin" if sys.platform != "win32" else "Scripts") / "python")
    # pip is seen like all packages of this Python. Only if there is none it is unpacked, for 5 CPU seconds.
    without = ["--without-pip"] if any(distributions(name="pip")) else []
    _run([sys.executable, "-m", "venv", *without, str(folder)], wheel)
    site = _run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], wheel).strip()
    outer = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    # As `addsitedir` does it, a ddefuzz that is installed as editable is seen, too.
    lines = [f"import site; site.addsitedir({path!r})" for path in sorted(outer)]
    Path(site, "ddefuzz-outer.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *places(index)]
    install += ["--no-cache-dir", "--no-compile", "--find-links", str(wheel.path.parent)]
    missing = ""
    try:
        _run([*install, str(wheel.path)], wheel)
    except UnsupportedError as error:
        missing = f" ({str(error).removeprefix(f'{wheel.path}: ')})"
        _run([*install, "--no-deps", str(wheel.path)], wheel)
    try:
        torch = _run([python, "-c", "import torch; print(torch.__version__)"], wheel, "imported")
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}{missing}") from error
    version = torch.strip().rpartition("\n")[2]
    return Interpreter(version.partition("+")[0], python, version)


def places(index: Index) -> list[str]:
    """The options of pip that say where it may look. Only if it looks where it is configured to do the user's settings
    hold: a constraint may forbid all versions but one. `ISOLATED` is needed besides.
    """
    if isinstance(index, str):
        return ["--isolated", "--index-url", index]
    return [] if index else ["--isolated", "--no-index"]


ISOLATED: Final = {"PIP_CONFIG_FILE": os.devnull}
"""The environment of an isolated pip, without the settings of the machine, too."""


def _run(command: list[str], wheel: Wheel, done: str = "installed") -> str:
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=INSTALL_SECONDS,
            cwd="/",
            env=os.environ | (ISOLATED if "--isolated" in command else {}),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{wheel.path}: cannot be {done}: {error}") from error
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()] or [
            f"exit code {ended.returncode}"
        ]
        reason = next((line for line in lines if line.startswith("ERROR: ")), lines[-1])  # of pip
        raise UnsupportedError(f"{wheel.path}: cannot be {done}: {reason}")
    return ended.stdout
