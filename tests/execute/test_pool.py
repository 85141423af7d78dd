"""Workers: tasks and results as JSON, and losses as values."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from pebble import ProcessPool

from ddefuzz import internal
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute import journal, worker
from ddefuzz.execute.channel import DEAF, HANDS_ON, FileLock
from ddefuzz.execute.pool import (
    NO_WORKER,
    STARTS,
    LostTask,
    Pool,
    exit_reason,
    first_answer,
    lost_observation,
)
from ddefuzz.execute.protocol import Call, CallableSubject, CallEnd, Observation, ProgramSubject, Run
from ddefuzz.execute.server import fork_server
from ddefuzz.execute.subject import load_module
from ddefuzz.oracles.program import tried_of

PROGRAM = (
    "# ddefuzz program v1\n"
    "# inputs: x = normal\n"
    'def program(x: Float32[Tensor, "u0 4"]):\n'
    "    return torch.chunk(x, 2)\n"
)
PACKAGE = Path(internal.__file__).parent
SUBJECT = """\
import ctypes, os, signal, time, torch
def segfault(x):
    ctypes.string_at(0)
def traced(x):
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    ctypes.string_at(0)
def forked(x):
    os.fork()
    return x + 1
def killed(x):
    signal.raise_signal(signal.SIGKILL)
def hang(x):
    time.sleep(600)
def spin(x):
    sum(range(10**12))
def allocate(x):
    return torch.ones(8_000_000_000, dtype=torch.uint8)
def exhaust(x):
    raise MemoryError
def leave(x):
    os._exit(7)
def ends(x):
    os.kill(os.getpid(), signal.SIGTERM)
def ends_server(x):
    os.kill(os.getppid(), signal.SIGKILL)
def ends_group(x):
    os.killpg(os.getpgrp(), signal.SIGKILL)
def asks(x):
    os.kill(os.getppid(), 0)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    child = os.fork()
    if not child:
        time.sleep(600)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
def ends_group_below_python(x):
    assert os.getpgrp() == os.getpid()
    ctypes.CDLL(None).kill(0, signal.SIGTERM)
    time.sleep(600)
def ends_server_once(x):
    if not os.path.exists(__file__ + ".begun"):
        open(__file__ + ".begun", "w").close()
        ctypes.CDLL(None).kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
def changes_user(x):
    os.setresuid(65534, 65534, 65534)
def surrogate(x):
    exec(compile("raise ValueError(1)", "x\\udcff.py", "exec"))
example_args = (1,)
"""
CLOSING = """\
import os
for number in range(3):
    os.close(number)
def f(x):
    os.system("echo said")
    return x
example_args = (1,)
"""
SECONDS = 60.0


class Sum(msgspec.Struct, frozen=True):
    left: int
    right: int


def add(numbers: Sum) -> list[int]:
    return [numbers.left + numbers.right, os.getpid()]


def hash_of(text: str) -> int:
    return hash(text)


def fail(message: str) -> str:
    raise ValueError(message)


def refuse(message: str) -> str:
    raise InputError(message)


def crash_in_case(case: int) -> str:
    worker.note(journal.Entry(case, "draw", step=1))
    worker.note(journal.Entry(case, "export", "the program", step=2))
    return str(ctypes.string_at(0))


def refuse_pickles(_: str) -> str:
    def refuse_pickle(event: str, _: object) -> None:
        if event.startswith("pickle"):
            raise RuntimeError(event)

    sys.addaudithook(refuse_pickle)
    return "done"


def ids_of(path: str) -> list[str]:
    return [name for name in vars(load_module(path)) if name == "f"]


def tracker_of(_: str) -> int | None:
    descriptor: int | None = vars(resource_tracker)["_resource_tracker"]._fd
    return descriptor


def shout(_: str) -> str:
    return os.environ.get("TORCH_LOGS", "unset")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[Pool]:
    with Pool(1, journal=folder) as made:
        yield made


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("subject") / "losing.py"
    path.write_text(SUBJECT)
    return str(path)


def without_cost(seen: Observation) -> Observation:
    return msgspec.structs.replace(seen, cpu_seconds=0.0, seconds=0.0, peak_rss_mb=0.0)


def test_arguments_and_results_are_typed(pool: Pool) -> None:
    found = pool.submit(add, Sum(2, 3), SECONDS).result()
    assert isinstance(found, list)
    assert found[0] == 5
    assert found[1] != os.getpid()


def test_tasks_have_the_types_of_their_functions() -> None:
    sources = [path for path in PACKAGE.rglob("*.py") if " = Task(" in path.read_text(encoding="utf-8")]
    modules = [import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)) for path in sources]
    tasks = {task for module in modules for task in vars(module).values() if isinstance(task, worker.Task)}
    assert len(tasks) > len(modules)
    for task in tasks:
        module, _, name = task.function.partition(":")
        hints = get_type_hints(getattr(import_module(module), name))
        assert (next(iter(hints.values())), hints["return"]) == worker.signature(task), task.function


def test_strings_have_the_same_hash_in_every_campaign(pool: Pool) -> None:
    command = [sys.executable, "-c", "print(hash('ij'))"]
    expected = subprocess.run(command, env={"PYTHONHASHSEED": "0"}, capture_output=True, check=True, text=True)
    assert pool.submit(hash_of, "ij", SECONDS).result() == int(expected.stdout)


def test_a_task_that_a_bug_ends_is_lost_and_its_report_has_the_traceback(pool: Pool) -> None:
    found = pool.submit(fail, "said there", SECONDS).result()
    (error,) = internal.take()
    assert found == LostTask("not-judged", error.reason)
    assert error.error == "ValueError: said there"
    report = Path(error.report).read_text()
    assert "in fail\n" in report
    assert report.endswith("ValueError: said there\n")
    observed = lost_observation(Run(ProgramSubject(""), "export"), LostTask("not-judged", error.reason))
    assert (observed.outcome, observed.reason) == ("not-judged", error.reason)


def test_what_a_task_raises_about_what_was_handed_in_is_raised_here(pool: Pool) -> None:
    with pytest.raises(InputError, match="said there"):
        pool.submit(refuse, "said there", SECONDS).result()


def test_a_crash_is_reported_with_the_last_journal_entry(pool: Pool, folder: Path) -> None:
    lost = pool.submit(crash_in_case, 41, SECONDS).result()
    assert isinstance(lost, LostTask)
    assert (lost.outcome, lost.reason.split()[0]) == ("crash", "SIGSEGV")
    doing = journal.last_of_case(folder, 41)
    assert doing is not None
    assert (doing.stage, doing.program, doing.step, doing.worker) == ("export", "the program", 2, lost.worker)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("segfault", "crash", "SIGSEGV (Segmentation fault)"),
        ("killed", "crash", "SIGKILL (Killed)"),
        ("traced", "crash", "SIGKILL (Killed)"),
        ("exhaust", "not-judged", "the process had no memory left"),
        ("leave", "not-judged", "the code ends its own process: exit code 7"),
        ("hang", "timeout", "stopped after 5 s by the clock"),
        ("spin", "timeout", "stopped after 1 CPU s"),
    ],
)
@pytest.mark.parametrize("cold", [False, True])
def test_a_lost_run_is_an_observation(
    pool: Pool, subject: str, name: str, outcome: str, reason: str, cold: bool
) -> None:
    run = Run(CallableSubject(subject, name=name), "eager")
    limit = 1.0 if outcome == "timeout" else SECONDS
    seen = pool.observe_cold(run, limit) if cold else pool.observe(run, limit)
    assert seen == Observation("eager", run.semantics, seen.outcome, seen.reason, output=seen.output)
    assert (seen.outcome, seen.reason) == (outcome, reason)
    assert ("in segfault" in seen.output) == (name == "segfault")


@pytest.mark.slow
def test_a_process_that_user_code_forks_takes_no_task(pool: Pool, subject: str) -> None:
    run = Run(CallableSubject(subject, name="forked"), "eager")
    assert [pool.observe(run, SECONDS).outcome for _ in range(6)] == ["ok"] * 6


CALLED = """\
import ctypes, time, torch
class Dies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        ctypes.string_at(0)
@torch.library.custom_op("lost::dies", mutates_args=())
def dies(x: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(0)
@torch.library.custom_op("lost::lasts", mutates_args=())
def lasts(x: torch.Tensor) -> torch.Tensor:
    sum(range(10**12))
dies.register_fake(torch.empty_like)
lasts.register_fake(torch.empty_like)
def eager(x):
    return x + 1 if torch.compiler.is_compiling() else ctypes.string_at(0)
def gradient(x):
    return x * 2 if torch.compiler.is_compiling() else Dies.apply(x)
def captured(x):
    return dies(x.detach()) if torch.compiler.is_compiling() else x + 1
def hangs(x):
    return lasts(x.detach()) if torch.compiler.is_compiling() else x + 1
example_args = (torch.ones(3, requires_grad=True),)
"""


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("eager", "not-judged", "SIGSEGV (Segmentation fault) in eager at size example"),
        pytest.param(
            "gradient",
            "not-judged",
            "SIGSEGV (Segmentation fault) in eager at size example, in the gradient",
            marks=pytest.mark.slow,
        ),
        ("captured", "crash", "SIGSEGV (Segmentation fault)"),
        pytest.param("hangs", "timeout", "stopped after 8 CPU s", marks=pytest.mark.slow),
    ],
)
def test_a_loss_is_that_of_what_was_done(
    pool: Pool, tmp_path: Path, name: str, outcome: str, reason: str, cold: bool
) -> None:
    path = tmp_path / "called.py"
    path.write_text(CALLED)
    run = Run(CallableSubject(str(path), name=name), "aot", calls=("example",))
    limit = 8.0 if name == "hangs" else SECONDS
    seen = pool.observe_cold(run, limit) if cold else pool.observe(run, limit)
    assert (seen.outcome, seen.reason) == (outcome, reason)
    lost = () if outcome == "not-judged" else (Call("example", CallEnd(), CallEnd(reason)),)
    assert seen.calls == lost
    kinds = [one.failure.kind for one in tried_of(seen).failures]
    assert kinds == ([f"{outcome}-in-call"] if lost else [])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ends", "the code sends signal 15 to the process "),
        ("ends_server", "the code sends signal 9 to the process "),
        ("ends_group", "the code sends signal 9 to the process "),
    ],
)
@pytest.mark.parametrize("cold", [False, True])
def test_code_that_ends_its_own_processes_is_no_crash_of_torch(
    pool: Pool, subject: str, name: str, said: str, cold: bool
) -> None:
    run = Run(CallableSubject(subject, name=name), "eager")
    seen = pool.observe_cold(run, SECONDS) if cold else pool.observe(run, SECONDS)
    assert seen.outcome == "fail"
    assert seen.exceptions[0].message.startswith(said)
    assert pool.submit(add, Sum(1, 1), SECONDS).result() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_code_that_changes_the_user_of_its_worker_is_said(pool: Pool, subject: str) -> None:
    with pytest.raises(InputError, match="removes or replaces the user or group in its worker"):
        pool.observe(Run(CallableSubject(subject, name="changes_user"), "eager"), SECONDS)
    assert pool.observe(Run(CallableSubject(subject, name="asks"), "eager"), SECONDS).outcome == "ok"


def test_a_signal_to_the_group_of_a_worker_reaches_it_alone(pool: Pool, subject: str) -> None:
    seen = pool.observe(Run(CallableSubject(subject, name="ends_group_below_python"), "eager"), SECONDS)
    assert seen.reason == "SIGTERM (Terminated)"
    assert pool.submit(add, Sum(1, 1), SECONDS).result() is not None


def test_output_is_captured_after_a_module_has_closed_it(tmp_path: Path) -> None:
    path = tmp_path / "closing.py"
    path.write_text(CLOSING)
    with Pool(1) as pool:
        assert pool.submit(ids_of, str(path), SECONDS).result() == ["f"]
        seen = pool.observe(Run(CallableSubject(str(path), name="f"), "eager"), SECONDS)
    assert (seen.outcome, seen.output) == ("ok", "said\n")


def test_lone_surrogates_are_refused_in_names_and_escaped_in_answers(pool: Pool, subject: str) -> None:
    seen = pool.observe(Run(CallableSubject(subject, name="surrogate"), "eager"), SECONDS)
    assert (seen.outcome, seen.exceptions[0].message) == ("fail", "1")
    assert seen.exceptions[0].frames[-1].file == "x\\udcff.py"
    with pytest.raises(InputError, match=r"found the name 'a\\udcff\.py', expected one in UTF-8"):
        pool.observe(Run(CallableSubject("a\udcff.py", name="f"), "eager"), SECONDS)


def test_a_worker_cannot_write_to_the_resource_tracker(pool: Pool) -> None:
    assert pool.submit(tracker_of, "", SECONDS).result() is None


def test_code_may_signal_its_own_children_and_handlers(pool: Pool, subject: str) -> None:
    assert pool.observe(Run(CallableSubject(subject, name="asks"), "eager"), SECONDS).outcome == "ok"


@pytest.mark.parametrize("cold", [False, True])
def test_an_allocation_of_eight_gigabytes_fails(pool: Pool, subject: str, cold: bool) -> None:
    run = Run(CallableSubject(subject, name="allocate"), "eager")
    seen = pool.observe_cold(run, SECONDS) if cold else pool.observe(run, SECONDS)
    assert seen.outcome == "fail"
    assert "can't allocate memory" in seen.exceptions[0].message


@pytest.mark.parametrize("cold", [False, True])
def test_a_subject_that_cannot_be_used_is_said_here(pool: Pool, cold: bool) -> None:
    run = Run(CallableSubject("no_such_file.py", name="f"), "eager")
    with pytest.raises(InputError, match=r"no_such_file\.py: found no such file"):
        pool.observe_cold(run, SECONDS) if cold else pool.observe(run, SECONDS)


def test_a_task_that_a_worker_cannot_read_is_done_by_another() -> None:
    with Pool(1) as made:
        assert made.submit(refuse_pickles, "", SECONDS).result() == "done"
        assert isinstance(made.submit(add, Sum(2, 3), SECONDS).result(), list)


def killed_once(path: str) -> int:
    if not Path(path).exists():
        Path(path).touch()
        signal.raise_signal(signal.SIGKILL)
    return 7


def test_a_worker_that_is_killed_before_the_first_answer_is_replaced(pool: Pool, tmp_path: Path) -> None:
    assert first_answer(pool.submit(killed_once, str(tmp_path / "begun"), SECONDS), lambda: False) == 7


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, True])
def test_a_run_whose_fork_server_is_killed_is_repeated(pool: Pool, subject: str, cold: bool) -> None:
    Path(f"{subject}.begun").unlink(missing_ok=True)
    run = Run(CallableSubject(subject, name="ends_server_once"), "eager")
    seen = pool.observe_cold(run, SECONDS) if cold else pool.observe(run, SECONDS)
    assert (seen.outcome, seen.reason) == ("ok", "")


def test_a_process_whose_fork_server_is_gone_has_no_exit_code_of_its_own() -> None:
    process = object.__new__(worker._Popen)
    process.sentinel, writer = os.pipe()
    process.returncode = None
    assert process.poll() is None
    os.close(writer)
    assert process.poll() == worker.ORPHANED
    os.close(process.sentinel)
    lost = LostTask("crash", f"{NO_WORKER}: the fork server was killed")
    assert lost_observation(Run(ProgramSubject(""), "export"), lost).outcome == "not-judged"


@pytest.mark.parametrize("deaths", [2, 3])
def test_a_fork_server_that_dies_while_it_starts_is_started_again(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, schedule = [*range(deaths)], ProcessPool.schedule

    def dying(*args: Any, **named: Any) -> Any:
        if left:
            left.pop()
            raise BrokenProcessPool from ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return schedule(*args, **named)

    monkeypatch.setattr(ProcessPool, "schedule", dying)
    with Pool(1) as made:
        if deaths < STARTS:
            assert not isinstance(made.submit(add, Sum(2, 3), SECONDS).result(), LostTask)
        else:
            with pytest.raises(UnsupportedError, match=r"dies while it starts .*, expected it to live"):
                made.submit(add, Sum(2, 3), SECONDS)


def test_the_pool_goes_on_after_losses(pool: Pool, subject: str) -> None:
    for _ in range(3):
        pool.observe(Run(CallableSubject(subject, name="killed"), "eager"), SECONDS)
    assert pool.submit(add, Sum(1, 1), SECONDS).result() is not None


def test_cold_and_warm_observe_the_same(pool: Pool) -> None:
    run = Run(ProgramSubject(PROGRAM), "export")
    pool.observe(Run(ProgramSubject(PROGRAM), "compile"), SECONDS)
    warm, cold = pool.observe(run, SECONDS), pool.observe_cold(run, SECONDS)
    assert warm.raised is not None
    assert without_cost(warm) == without_cost(cold)


def test_workers_are_replaced() -> None:
    with Pool(1, tasks_per_worker=2) as pool:
        seen = [pool.submit(add, Sum(0, 0), SECONDS).result() for _ in range(4)]
    pids = [found[1] for found in seen if isinstance(found, list)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_leaving_the_block_stops_what_runs(subject: str) -> None:
    with Pool(1) as pool:
        warm = pool.submit(add, Sum(0, 0), SECONDS).result()
        assert isinstance(warm, list)
        running = pool.submit(worker.observe_run, Run(CallableSubject(subject, name="hang"), "eager"), 600.0)
    assert running.done()
    assert not psutil.pid_exists(warm[1]) or psutil.Process(warm[1]).status() == psutil.STATUS_ZOMBIE


def test_a_lock_excludes_other_processes_until_its_holder_ends() -> None:
    lock, context = FileLock(), fork_server(ForkServerContext())
    receiver, sender = context.Pipe(duplex=False)
    holder = context.Process(target=take_and_wait, args=(lock, sender))
    holder.start()
    assert receiver.recv_bytes() == b"taken"
    assert not lock.acquire(block=False)
    holder.kill()
    holder.join()
    assert lock.acquire(block=False)


def take_and_wait(lock: FileLock, sender: Connection) -> None:
    """Take a lock twice and give it back once, in another process."""
    assert lock.acquire()
    assert lock.acquire()
    lock.release()
    sender.send_bytes(b"taken")
    time.sleep(600)


def test_what_an_end_cuts_short_is_lost_and_not_an_error(subject: str) -> None:
    with Pool(1) as pool:
        hanging = Run(CallableSubject(subject, name="hang"), "eager")
        waiting = [pool.submit(worker.observe_run, hanging, 600.0) for _ in range(3)]
    assert [future.result() for future in waiting] == 3 * [LostTask("crash", "its workers were stopped")]


ORPHANS = """
import sys, time
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CallableSubject, Run
from ddefuzz.execute.worker import observe_run
if __name__ == "__main__":
    with Pool(2) as pool:
        for _ in range(2):
            pool.submit(observe_run, Run(CallableSubject(sys.argv[1], name="hang"), "eager"), 600.0)
        time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_campaign(tmp_path: Path, subject: str, how: signal.Signals) -> None:
    script = tmp_path / "campaign.py"
    script.write_text(ORPHANS)
    environment = {**os.environ, "TORCH_LOGS": ""}
    campaign = subprocess.Popen(
        [sys.executable, str(script), subject], env=environment, stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    children = _descendants(campaign.pid, at_least=4)
    campaign.send_signal(how)
    campaign.wait(30)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


def _descendants(pid: int, at_least: int) -> list[psutil.Process]:
    """The fork server, the resource tracker and the workers, once they are there."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        if len(found) >= at_least:
            return found
        time.sleep(0.1)
    raise AssertionError("the workers did not start")


@pytest.mark.slow
def test_the_current_folder_is_not_searched_for_modules(tmp_path: Path) -> None:
    for name in ("torch", "socket", "signal"):
        (tmp_path / f"{name}.py").write_text("from os import abort\nabort()\n")
    (tmp_path / "sibling.py").write_text("def double(x):\n    return x + x\n")
    (tmp_path / "model.py").write_text("from sibling import double as f\nimport torch\nf_args = (torch.ones(2),)\n")
    words = [sys.executable, "-P", "-m", "ddefuzz", "check", "model.py:f", "--stage", "export"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Fatal Python error" not in done.stderr


def test_exit_codes_in_words() -> None:
    assert exit_reason(-11) == "SIGSEGV (Segmentation fault)"
    assert exit_reason(-35) == f"signal 35 ({signal.strsignal(35)})"
    assert exit_reason(3) == "exit code 3"


ENDED_EARLY = """
import os
from multiprocessing import forkserver

forkserver.set_forkserver_preload(["ddefuzz.execute.preload"])
sentinel, writer = forkserver.connect_to_new_process([])
os.close(writer)
pid, code = os.read(sentinel, 8), os.read(sentinel, 8)
print(int.from_bytes(code, "little"))
"""


@pytest.mark.slow
def test_a_child_whose_parent_is_killed_at_its_start_says_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDED_EARLY], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.stdout, ended.stderr) == ("1\n", "")


KILLED_WHILE_IT_IMPORTS = """
import os, signal
from multiprocessing import forkserver

forkserver.set_forkserver_preload(["ddefuzz.execute.preload"])
forkserver.ensure_running()
print(vars(forkserver)["_forkserver"]._forkserver_pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_fork_server_ends_while_it_imports_if_its_starter_is_killed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_IT_IMPORTS], capture_output=True, text=True, check=False, timeout=120
    )
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(ended.stdout)).wait(timeout=60)
    assert not psutil.pid_exists(int(ended.stdout))


def test_each_exit_code_of_a_worker_has_one_meaning() -> None:
    codes = [
        worker.OUT_OF_MEMORY,
        worker.SPOILED,
        DEAF,
        HANDS_ON,
        worker.FINISHED,
        worker.ENDED_ITSELF,
        worker.ORPHANED,
    ]
    assert len(set(codes)) == len(codes)
