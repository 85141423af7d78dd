"""`ddefuzz check` of hostile code: each case ends soon, with one line or a row of the table."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import psutil  # type: ignore[import-untyped]
import pytest

from ddefuzz.cli.main import main
from ddefuzz.errors import EXIT_FOUND, EXIT_OK, EXIT_USAGE
from tests.campaign.real_campaign import PATIENCE_SECONDS, environment
from tests.typed import typed

pytestmark = pytest.mark.slow

SUBJECT = """import torch
def f(x):
    {body}
    return x
f_args = (torch.ones(3),)
"""


def check(folder: Path, target: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, whose fork server has torch already. The hostile code runs in workers."""
    arguments = ["ddefuzz", "check", target, "--stage", "export", *words]
    stdout, stderr = StringIO(), StringIO()
    with (
        chdir(folder),
        patch.dict(os.environ, COLUMNS="160"),
        patch.object(sys, "argv", arguments),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), stdout.getvalue(), stderr.getvalue())


def check_apart(folder: Path, target: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a folder for temporary files of its own."""
    line = ("check", target, "--stage", "export", *words)
    return typed(*line, folder=folder, environment=environment(folder), timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Own(BaseException): ...\nraise Own('mine')", "found a module that raises Own: mine"),
        ("raise GeneratorExit", "found a module that raises GeneratorExit:"),
        ("import sys\nsys.modules.clear()", "user.py: found code that removes or replaces ddefuzz in its worker"),
        ("raise ValueError('\\x1b[31m' * 10**6)", r"ValueError: \x1b[31m\x1b[31m"),
        ("raise KeyboardInterrupt", "found a module that raises KeyboardInterrupt:"),
        (
            SUBJECT.format(body="...") + "f_unbacked = {'y': [0]}",
            "f_unbacked: found argument 'y' to make unbacked, expected one of x",
        ),
        (SUBJECT.format(body="...") + "f_unbacked = {0: [-1]}", "found dim -1 of argument 0 to make unbacked"),
    ],
)
def test_a_module_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "user.py").write_text(text)
    done = check(tmp_path, "user.py:f")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("f: eager, ")] == [
        done.stderr.splitlines()[-1]
    ]
    assert not done.stdout


def test_a_call_that_empties_the_loaded_modules_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(SUBJECT.format(body="__import__('sys').modules.clear()"))
    done = check(tmp_path, "user.py:f")
    assert done.returncode == 2, done.stderr
    assert "user.py: found code that removes or replaces ddefuzz in its worker" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_that_the_code_itself_raises_is_what_it_does(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(SUBJECT.format(body="raise KeyboardInterrupt('own')"))
    done = check(tmp_path, "user.py:f")
    assert done.returncode == 1, done.stderr
    assert "KeyboardInterrupt: own" in done.stdout


DESCRIPTORS = {
    "closes": "os.closerange(3, 64)",
    "closes all": "os.closerange(3, 65536)",
    "writes": "for one in range(3, 64):\n    with suppress(OSError): os.write(one, b'garbage!' * 9)",
    "writes all": "for one in range(3, 1024):\n    with suppress(OSError): os.write(one, b'\\0\\0\\0\\5')",
    "replaces": "for one in range(4, 64): os.dup2(os.open(os.devnull, os.O_RDWR), one)",
}

SPOILED = "the code closes the descriptors of ddefuzz, or writes to them"


@pytest.mark.parametrize("when", ["import", "forward"])
@pytest.mark.parametrize("how", DESCRIPTORS)
def test_code_that_spoils_descriptors_ends_its_own_run_only(tmp_path: Path, how: str, when: str) -> None:
    body = f"def spoil():\n    {DESCRIPTORS[how].replace(chr(10), chr(10) + '    ')}\n"
    at_import = "spoil()\n" if when == "import" else ""
    call = "    spoil()\n" if when == "forward" else ""
    (tmp_path / "user.py").write_text(
        f"import os, torch\nfrom contextlib import suppress\n{body}{at_import}def spoils(x):\n{call}    return x + 1\n"
        "def fine(x):\n    return x + 2\n"
        'CASES = [{"id": one.__name__, "fn": one, "args": lambda: (torch.ones(3),)} for one in (spoils, fine)]\n'
    )
    done = check(tmp_path, "user.py", "--no-advice", "--timeout", "20")
    if when == "import" and done.returncode == EXIT_USAGE:
        assert "found a module whose import ends in " in done.stderr.splitlines()[-1]
        assert SPOILED in done.stderr or "exit code 9" in done.stderr
        return
    judged = "spoils exports: captured in export." in done.stdout
    assert done.returncode == (EXIT_OK if judged else EXIT_FOUND), done.stderr
    if when == "forward":
        assert "fine exports: captured in export." in done.stdout
        assert SPOILED in done.stdout or judged


@pytest.mark.parametrize("value", ["'/nonexistent'", "None", "'relative'", "5"])
@pytest.mark.parametrize("when", ["import", "forward"])
def test_code_that_sets_the_folder_of_temporary_files(tmp_path: Path, value: str, when: str) -> None:
    text = SUBJECT.format(body=f"tempfile.tempdir = {value}" if when == "forward" else "pass")
    text = text.replace(
        "import torch", f"import torch, tempfile\n{'' if when == 'forward' else f'tempfile.tempdir = {value}'}", 1
    )
    (tmp_path / "user.py").write_text(text)
    done = check(tmp_path, "user.py:f", "--no-advice", "--stage", "compile")
    assert done.returncode in (EXIT_OK, EXIT_FOUND), done.stderr
    assert "f exports: captured in export" in done.stdout
    assert "internal error" not in done.stdout + done.stderr


def cases_of(*functions: str) -> str:
    return (
        f"CASES = [dict(id=one.__name__, fn=one, args=lambda: (torch.ones(3),)) for one in ({', '.join(functions)},)]\n"
    )


def test_a_case_that_cannot_be_built_is_a_row(tmp_path: Path) -> None:
    text = "import torch\ndef good(x): return x + 1\ndef better(x): return x + 2\n" + cases_of("good", "better")
    text += "CASES.insert(1, dict(id='bad', fn=good, args=lambda: (1 / 0,)))\n"
    (tmp_path / "user.py").write_text(text)
    done = check(tmp_path, "user.py", "--no-advice")
    assert done.returncode == EXIT_USAGE, done.stderr
    assert "good exports: captured in export." in done.stdout
    assert "better exports: captured in export." in done.stdout
    assert "user.py: found a callable or arguments whose construction raises ZeroDivisionError" in " ".join(
        done.stdout.split()
    )
    alone = check(tmp_path, "user.py", "--case", "bad")
    assert (alone.returncode, alone.stdout) == (EXIT_USAGE, "")


def test_a_check_that_judges_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(SUBJECT.format(body="__import__('os')._exit(3)"))
    done = check(tmp_path, "user.py:f", "--no-advice")
    assert done.returncode == EXIT_FOUND, done.stderr
    assert "cannot be judged" in done.stdout


SABOTAGE = """import builtins, os, resource, shutil, subprocess, tempfile, time, torch
from contextlib import suppress
def ends(x):
    os._exit(0)
def limits(x):
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    return x + 1
def removes(x):
    shutil.rmtree(tempfile.gettempdir())
    return x + 1
def writes(x):
    for one in range(512, 700):
        with suppress(OSError): os.write(one, b"NOISE!")
    return x + 1
def patches(x):
    torch.relu = torch.Tensor.add = torch.nn.functional.relu = None
    return x.clone()
def replaces(x):
    os.write = builtins.len = None
    return x.clone()
def forks(x):
    if not os.fork():
        time.sleep(600)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    return x + 1
def fine(x):
    return torch.relu(x).add(torch.nn.functional.relu(x)) + len([1])
"""


def test_what_a_case_does_to_its_worker_is_its_own_row(tmp_path: Path) -> None:
    names = ("ends", "limits", "removes", "writes", "patches", "replaces", "forks")
    cases = cases_of(*(name for one in names for name in (one, "fine")))
    cases = cases.replace("id=one.__name__", "id=f'{one.__name__}-{at}'").replace(
        "for one in (", "for at, one in enumerate(("
    )
    (tmp_path / "user.py").write_text(SABOTAGE + cases.replace(",)]", ",))]"))
    done = check_apart(tmp_path, "user.py", "--no-advice", "--jobs", "1", "--timeout", "100")
    page = " ".join(done.stdout.split())
    assert done.returncode in (EXIT_FOUND, EXIT_USAGE), done.stderr
    assert page.count(" exports: captured in export.") == len(names) + 2, page  # patches and forks too
    for said in (
        "the code ends its own process: exit code 0",
        "RuntimeError: the code lowers a limit",
        "RuntimeError: the code removes the temporary files of ddefuzz",
        SPOILED,
        "user.py: found code that removes or replaces builtins.len in its worker",
    ):
        assert said in page
    assert "NOISE" not in done.stdout + done.stderr
    assert "internal error, a bug of ddefuzz" not in page
    started = [one for one in psutil.process_iter() if str(tmp_path) in _folder_of_temporary_files(one)]
    _, left = psutil.wait_procs(started, timeout=10)  # the resource tracker ends after the command
    assert not left
    assert not list(tmp_path.glob("ddefuzz-*"))


BROKEN = """
import builtins, os, pathlib, sys, torch
class Kind(type):
    __module__ = property(lambda self: 1 / 0)
class Odd(Exception, metaclass=Kind):
    pass
def raises(x):
    raise Odd("x")
def resets(x):
    torch._dynamo.reset = None
    return x + 1
def imports(x):
    builtins.__import__ = lambda *args, **named: 1 / 0
    return x + 1
def halts(x):
    sys.modules["re"] = None
    return x + 1
def paths(x):
    pathlib.Path.exists = None
    return x + 1
def leaves(x):
    os.chroot(os.path.dirname(__file__) + "/empty")
    return x + 1
def fine(x):
    return x + 2
"""


@pytest.mark.slow
def test_what_a_case_breaks_in_its_worker_is_no_bug_of_ddefuzz(tmp_path: Path) -> None:
    names = ("raises", "resets", "imports", "halts", "paths", *(["leaves"] if os.getuid() == 0 else []))
    cases = cases_of(*(name for one in names for name in (one, "fine")))
    cases = cases.replace("id=one.__name__", "id=f'{one.__name__}-{at}'").replace(
        "for one in (", "for at, one in enumerate(("
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "user.py").write_text(BROKEN + cases.replace(",)]", ",))]"))
    done = check_apart(tmp_path, "user.py", "--no-advice", "--jobs", "1", "--stage", "export")
    page = " ".join(done.stdout.split())
    assert done.returncode == EXIT_USAGE, done.stderr
    assert page.count(" exports: captured in export.") == len(names), page
    assert page.count("expected code that leaves Python and torch as they are") >= len(names), page
    for said in ("raises when ddefuzz reads", "replaces builtins.__import__ in", "replaces re in", "replaces what"):
        assert f"user.py: found code that {said}" in page
    assert "internal error" not in done.stdout + done.stderr


def _folder_of_temporary_files(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("TMPDIR", ""))
    except psutil.Error:
        return ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import msgspec\nmsgspec.json.encode = msgspec.json.decode = None", "msgspec.json."),
        ("import os, io, tempfile\nos.write = os.chdir = os.getpid = tempfile.TemporaryFile = None", "os."),
        ("import builtins\nfor one in list(vars(builtins)): delattr(builtins, one)", "builtins."),
    ],
)
def test_a_module_that_replaces_what_its_worker_needs_is_one_line(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "user.py").write_text(f"{text}\n{cases_of(chr(39) + chr(39))}")
    done = check(tmp_path, "user.py", "--no-advice")
    assert done.returncode == EXIT_USAGE, done.stderr
    assert f"user.py: found code that removes or replaces {named}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_modes_that_a_module_leaves_on_at_its_import_are_off_in_each_run(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "import torch\n"
        "def off(x):\n    return x + 1\n"
        "def args():\n"
        "    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()\n"
        "    assert not torch.are_deterministic_algorithms_enabled()\n"
        "    assert torch.get_default_dtype() is torch.float32\n"
        "    return (torch.ones(3),)\n"
        "CASES = [dict(id='off', fn=off, args=args)]\n"
        "torch.inference_mode().__enter__()\n"
        "torch.set_default_dtype(torch.float64)\n"
        "torch.use_deterministic_algorithms(True)\n"
    )
    done = check(tmp_path, "user.py", "--no-advice", "--stage", "compile")
    assert done.returncode == EXIT_OK, done.stdout + done.stderr


FILES = {
    "limits": "import resource\ndef f(x):\n    resource.prlimit(0, resource.RLIMIT_FSIZE, (0, 0))\n    return x",
    "lowers": (
        "import ctypes, resource\ndef f(x):\n    class Pair(ctypes.Structure):\n"
        "        _fields_ = [('soft', ctypes.c_ulong), ('hard', ctypes.c_ulong)]\n"
        "    ctypes.CDLL(None).setrlimit(resource.RLIMIT_FSIZE, ctypes.byref(Pair(0, 0)))\n    return x"
    ),
    "recursion": "import sys\ndef f(x):\n    sys.setrecursionlimit(40)\n    return x",
    "shallow": "import sys\nsys.setrecursionlimit(50)\ndef f(x):\n    return x",
    "replaces": (
        "import torch.utils._pytree as p\ndef f(x):\n"
        "    torch.fx.Graph.__init__ = torch.fx.GraphModule.__init__ = p.tree_map = None\n    return x"
    ),
    "imports": (
        "import torch._subclasses.fake_tensor as s\ns.FakeTensorMode.__init__ = lambda *a, **k: 1 / 0\n"
        "def f(x):\n    return x"
    ),
    "registers": (
        "L = torch.library.Library('aten', 'IMPL')\nL.impl('add.Tensor', lambda a, b: 1 / 0, 'CPU')\n"
        "def f(x):\n    return x"
    ),
    "clears": "import sys\nsys.path.clear(), sys.meta_path.clear(), sys.path_hooks.clear()\ndef f(x):\n    return x",
    "ends": "import os\nos._exit(0)",
}
"""Files whose code changes what the next one would be blamed for."""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_file_does_to_its_worker_is_not_blamed_on_another_file(tmp_path: Path, jobs: str) -> None:
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(f"import torch\n{text}\nf_args = (torch.ones(3),)\n")
    (tmp_path / "fine.py").write_text(SUBJECT.format(body="x = x + 2"))
    targets = [word for name in FILES for word in (f"{name}.py:f", "fine.py:f")]
    done = check(tmp_path, targets[0], *targets[1:], "--no-advice", "--jobs", jobs)
    assert done.returncode == EXIT_USAGE, done.stderr
    page = " ".join(done.stdout.split())
    assert "fine.py:f exports: captured in export." in page, page
    for said in (
        "RuntimeError: the code lowers a limit (RLIMIT_FSIZE to (0, 0))",
        "lowers.py: found code that removes or replaces the limit RLIMIT_FSIZE in its worker",
        "recursion.py: found code that removes or replaces the recursion limit in its worker",
        "shallow.py: found code that removes or replaces the recursion limit in its worker",
        "ends.py:f cannot be built",
        "the code ends its own process: exit code 0",
    ):
        assert said in page, said


def test_a_target_that_is_not_judged_fails_beside_others(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(FILES["ends"])
    (tmp_path / "fine.py").write_text(SUBJECT.format(body="x = x + 2"))
    assert check(tmp_path, "fine.py:f", "ends.py:f", "--no-advice").returncode == EXIT_FOUND


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("os.close(1)", "raises OSError: [Errno 9] Bad file descriptor"),
        ("os.chdir(tempfile.mkdtemp()), os.rmdir(os.getcwd())", ""),
    ],
)
@pytest.mark.parametrize("when", ["factory", "forward"])
def test_code_that_spoils_the_search_for_changes_does_not_spoil_the_report(
    tmp_path: Path, harm: str, said: str, when: str
) -> None:
    factory, forward = (harm if when == place else "pass" for place in ("factory", "forward"))
    (tmp_path / "user.py").write_text(
        "import os, tempfile, torch\n"
        "class M(torch.nn.Module):\n    def forward(self, x):\n"
        f"        {forward}\n        return torch.diff(x[x > 0])\n"
        f"def f():\n    {factory}\n    return M(), (torch.tensor([1.0, -1.0]),)\n"
    )
    done = check(tmp_path, "user.py:f")
    assert done.returncode == EXIT_FOUND, done.stderr
    assert "at::native::diff_helper" in done.stdout
    assert ("note" in done.stdout) == (bool(said) and when == "factory")
    assert when == "forward" or said in done.stdout
