"""Changes as text: a diff that `patch` takes, parts of it left out, wrappers, code to paste, files that are written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ddefuzz.checking import patch, problems
from ddefuzz.checking.edits import Sources
from ddefuzz.checking.patch import Change, ChangedFile, Interface, in_use, together, wrapper, write_changes
from ddefuzz.checking.problems import package_of
from ddefuzz.errors import InputError

BEFORE = "import torch\n\n\ndef f(x):\n    a = x\n    b = x\n    a = x\n    return a + b\n"
AFTER = BEFORE.replace("    a = x\n    b", "    torch._check(True)\n    a = x\n    b").replace("a + b", "a - b")


def change(files: tuple[ChangedFile, ...]) -> Change:
    return Change("rewrite", 1, "something", "", (), files=files)


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@pytest.mark.parametrize(
    "text", [BEFORE.replace("\n", "\r\n"), BEFORE.replace("a = x", "a = x  # \f \u2028"), BEFORE[:-1]]
)
def test_ends_of_lines_are_kept(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_bytes(text.encode())
    sources = Sources().with_text(str(file), text.replace("b = x", "torch._check(True)\n    b = x"))
    after = sources.changed[str(file)]
    assert ("\r\n" in text) == ("\r\n" in after)
    assert "\n" not in after.replace("\r\n", "") or "\r\n" not in text
    diff = patch.unified([ChangedFile(str(file), text, after)])
    subprocess.run(["patch", "-p1", "--binary"], input=diff.encode(), check=True, capture_output=True)
    assert file.read_bytes() == after.encode()


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
def test_two_edits_of_one_function_are_one_diff_that_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_text(BEFORE)
    text = patch.unified([ChangedFile(str(file), BEFORE, AFTER)])
    assert text.startswith("--- a/model.py\n+++ b/model.py\n@@")
    subprocess.run(["patch", "-p1"], input=text, text=True, check=True, capture_output=True)
    assert file.read_text() == AFTER


def test_a_file_without_a_last_newline_has_a_diff_that_says_so() -> None:
    text = patch.unified([ChangedFile("/m.py", "a = 1\nb = 2", "a = 1\nb = 3\n")])
    assert "-b = 2\n\\ No newline at end of file\n+b = 3\n" in text


def test_each_changed_place_can_be_left_out() -> None:
    file = ChangedFile("/m.py", BEFORE, AFTER)
    assert len(patch.hunks(file)) == 2
    assert patch.without_hunk(file, 0).after == BEFORE.replace("a + b", "a - b")
    assert patch.without_hunk(file, 1).after == AFTER.replace("a - b", "a + b")
    assert [where.line for where in patch.places([file])] == [5, 8]


def test_a_line_after_a_change_has_its_number_before_it() -> None:
    file = ChangedFile("/m.py", BEFORE, AFTER)
    assert [patch.line_before(file, line) for line in range(4, 10)] == [4, 5, 5, 6, 7, 8]
    assert patch.line_before(ChangedFile("/m.py", AFTER, BEFORE), 5) == 6


def test_a_function_of_an_installed_package_is_code_to_paste(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(problems, "_INSTALLED", (tmp_path,))
    path = tmp_path / "library" / "model.py"
    before = "class M:\n    @property\n    def size(self):\n        return 1\n\n    def same(self):\n        return 1\n"
    text = patch.replacement(ChangedFile(str(path), before, before.replace("return 1", "return 2", 1)))
    assert package_of(str(path)) == "library"
    assert "import library.model" in text
    assert "    return 2" in text
    assert "@property\n" in text
    assert "library.model.M.size = scope['size']" in text
    assert "same" not in text


def test_a_method_that_calls_super_is_not_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(problems, "_INSTALLED", (tmp_path,))
    before = "class M(N):\n    def f(self):\n        return super().f()\n"
    file = ChangedFile(str(tmp_path / "m.py"), before, before.replace("f()\n", "f() + 1\n"))
    assert patch.replacement(file) == ""


DESCRIBED = Interface(("ids", "mask"), ("scale",))
WRAPPER = wrapper(DESCRIBED, ("ids.shape[1] > 1", "ids.shape == mask.shape"))


def test_a_wrapper_keeps_defaults_and_takes_what_is_optional() -> None:
    described = Interface(("ids", "mask"), optional=("mask",), signature=("ids", "mask=None", "*", "scale=2"))
    text = wrapper(described, ("mask.shape[1] > 1",))
    assert "def forward(self, ids, mask=None, *, scale=2):" in text
    assert "torch._check(mask is None or mask.shape[1] > 1)" in text
    assert text.endswith("return self.model(ids, mask, scale=scale)\n")


def test_a_wrapper_has_the_parameters_of_the_example() -> None:
    assert "def forward(self, ids, mask, *, scale):" in WRAPPER
    assert "        torch._check(ids.shape[1] > 1)\n        torch._check(ids.shape == mask.shape)\n" in WRAPPER
    assert WRAPPER.endswith("return self.model(ids, mask, scale=scale)\n")


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("import library\n\nmodel = library.Model(2)\n", "model = Promised(library.Model(2))"),
        ("def model():\n    m = 1\n    return m.eval(), (2,)\n", "return Promised(m.eval()), (2,)"),
        ("def model():\n    return {'callable': m, 'args': ()}\n", "return {'callable': Promised(m), 'args': ()}"),
        ("def model():\n    return dict(callable=m, args=())\n", "return dict(callable=Promised(m), args=())"),
        ("def make():\n    return M(), (2,)\n\n\nmodel = make\n", "return Promised(M()), (2,)"),
    ],
)
def test_a_file_comes_to_use_the_wrapper(source: str, made: str) -> None:
    after = in_use(source, "model", WRAPPER)
    assert after is not None
    compile(after, "model.py", "exec")
    assert made in after
    assert "import torch" in after


@pytest.mark.parametrize(
    "source",
    [
        "from library import model\n",
        "def model():\n    return make()\n",
        "from library import make\n\nmodel = make\n",
        "model = 1\nmodel = make()\n",
        "class Promised:\n    pass\n\n\nmodel = make()\n",
    ],
)
def test_a_file_that_makes_it_otherwise_is_left_alone(source: str) -> None:
    assert in_use(source, "model", WRAPPER) is None


def test_only_what_was_checked_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(BEFORE)
    one = change((ChangedFile(str(path), BEFORE, AFTER),))
    assert write_changes([one]) == (str(path),)
    assert path.read_text() == AFTER
    with pytest.raises(InputError, match="changed since"):
        write_changes([one])


def test_changes_of_one_file_are_written_together() -> None:
    first = ChangedFile("/m.py", BEFORE, BEFORE.replace("a + b", "a - b"))
    second = ChangedFile("/m.py", BEFORE, AFTER.replace("a - b", "a + b"))
    (file,) = together([change((first,)), change((second,))])
    assert file.after == AFTER
