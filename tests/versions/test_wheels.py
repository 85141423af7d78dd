"""Wheels of torch in a folder, and environments that have them. The wheels are small and made here."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.cli import matrix
from ddefuzz.errors import InputError, UnsupportedError, refusals
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import read_finding
from ddefuzz.versions.wheels import environment, wheels_in

FINDING = Path(__file__).parents[2] / "findings" / "dde-08f7b02bbb"

TORCH = "__version__ = {version!r}\n"


def add_wheel(folder: Path, version: str, torch: str = TORCH, tags: str = "py3-none-any", requires: str = "") -> Path:
    """A wheel of a package `torch` with one module."""
    info = f"torch-{version}.dist-info"
    required = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        "torch/__init__.py": torch.format(version=version),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{required}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n",
    }
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    path = folder / f"torch-{version}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
        file.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")
    return path


def test_wheels_are_those_of_torch_that_fit(tmp_path: Path) -> None:
    for version in ("2.15.0.dev20260102+cpu", "2.14.1"):
        add_wheel(tmp_path, version)
    for name in ("torch-2.14.1-cp311-cp311-win32.whl", "torch-2.whl", "torchvision-0.2-py3-none-any.whl"):
        (tmp_path / name).touch()
    with refusals() as left_out:
        wheels = wheels_in(tmp_path)
    assert {one.torch for one in wheels} == {"2.14.1", "2.15.0.dev20260102+cpu"}
    assert [*left_out] == [
        f"{tmp_path / 'torch-2.whl'}: found no name of a wheel, expected torch-VERSION-PYTHON-ABI-PLATFORM.whl"
    ]


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no wheel of torch that fits, expected torch-VERSION-cp3"):
        wheels_in(tmp_path)
    with pytest.raises(InputError, match="found no such folder, expected one with wheels of torch"):
        wheels_in(tmp_path / "missing")


@pytest.mark.slow
def test_an_environment_has_this_torch_and_the_packages_of_this_python(tmp_path: Path) -> None:
    add_wheel(tmp_path, "2.99.1", requires="sympy>=1.1")
    (wheel,) = wheels_in(tmp_path)
    with environment(wheel) as interpreter:
        code = "import torch, sympy, msgspec; print(torch.__version__, torch.__file__, sympy.__file__)"
        printed = subprocess.run([interpreter.python, "-c", code], capture_output=True, text=True, check=True).stdout
        torch, place, outer = printed.split()
        assert (interpreter.torch, torch, interpreter.name) == ("2.99.1", "2.99.1", "2.99.1")
        root = Path(interpreter.python).parents[1]
        assert root in Path(place).parents
        assert root not in Path(outer).parents
    assert not root.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "requires", "reason"),
    [
        ("raise OSError('no libcudart.so')", "", r"cannot be imported: OSError: no libcudart\.so"),
        (
            "import no_such_package",
            "no-such-package",
            r"imported: ModuleNotFoundError: .*'no_such_package' \(cannot be installed: ERROR: Could not find",
        ),
    ],
)
def test_a_wheel_that_cannot_be_used_is_one_line(tmp_path: Path, torch: str, requires: str, reason: str) -> None:
    path = add_wheel(tmp_path, "2.99.1", torch, requires=requires)
    (wheel,) = wheels_in(tmp_path)
    with pytest.raises(UnsupportedError, match=reason) as caught, environment(wheel):
        pass
    assert str(caught.value).startswith(f"{path}: ")


ANSWERS = """\
import json, sys
__version__ = {{version!r}}

def __getattr__(name):  # `torch.nn` of the script
    print(json.dumps(dict(torch=__version__, stage="export", verdict={verdict!r}, expected={{{{}}}}, seen=None)))
    sys.exit()
"""
"""A torch that ends each script with this verdict."""


@pytest.mark.slow
def test_bisect_over_a_folder_of_wheels(tmp_path: Path) -> None:
    for version, torch in {
        "2.97.0": ANSWERS.format(verdict="shows"),
        "2.98.0": "raise OSError('no libcudart.so')",
        "2.99.0.dev20260101": ANSWERS.format(verdict="shows"),
        "2.99.0": ANSWERS.format(verdict="passes"),
    }.items():
        add_wheel(tmp_path, version, torch)
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.put([finding := read_finding(FINDING)])
    words = [finding.id, "--db", url, "--wheels", str(tmp_path), "--format", "json"]
    ended = CliRunner().invoke(matrix.bisect, words, catch_exceptions=False)
    (document,) = json.loads(ended.stdout)
    assert (document["before"], document["after"]) == ("2.99.0.dev20260101", "2.99.0")
