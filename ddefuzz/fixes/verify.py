"""Verifies a change of torch's Python code in a copy of the installed torch, before and after, in processes of its own.

The copy is a folder of links to the installed package, with the changed files in place of theirs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ddefuzz import syntax
from ddefuzz.answers.experiment import fault
from ddefuzz.answers.patch import Patch
from ddefuzz.classify.site import site
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute.protocol import DECOMPOSED, Call, Observation, ProgramSubject, Stage
from ddefuzz.execute.worker import SHORT_LIVED_SYMBOLIZER, SYMBOLIZER
from ddefuzz.files import SOURCE, is_file, is_there
from ddefuzz.fixes.change import DELETED
from ddefuzz.fixes.out_meta import FORM as OUT
from ddefuzz.fixes.tasks import Calls, Sights, Task, Truths
from ddefuzz.instrument.events import RaisedError
from ddefuzz.oracles.assertions import lost
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.program.sizes import CallSize

SECONDS: Final = 900.0
"""The limit by the clock of one process."""


_PROBE: Final = "import pathlib, sys; from ddefuzz.fixes.probe import main; main(*map(pathlib.Path, sys.argv[1:]))"

ALSO: Final = "aot"
"""The stage in which programs are captured, also if their findings do not fail there."""

FURTHER: Final[tuple[Stage, ...]] = ("decompose", DECOMPOSED)
"""The stages in which what is captured is decomposed and called. If that fails in another way, it is only told."""

LAYOUT: Final = ("shape", "strides")
"""What a graph says of a value that a change may make wrong."""

IN_TRACES: Final = (
    "torch/_decomp/",
    "torch/_inductor/",
    "torch/_meta_registrations.py",
    "torch/_prims",
    "torch/_refs/",
)
"""Files whose functions run when torch traces. Nobody calls `torch.jit.script` on them but `COMPILED`."""

COMPILED: Final = "torch._decomp.decompositions_for_jvp"
"""The module of torch that compiles some of them as TorchScript, when it is imported."""


class Request(NamedTuple):
    """What is to be verified: as in `Task`, and the verdict of the experiment on the guard."""

    programs: tuple[tuple[str, tuple[Stage, ...]], ...]
    functions: tuple[str, ...]
    test: str = ""
    noting: str = ""
    verdict: str = ""
    stage: Stage = "aot"
    of_numbers: bool = False


class Judgement(NamedTuple):
    """What speaks for the change, and what against it. `next` are the guards at which programs stop then, `calls` the
    sizes at which the first program agrees with eager or is refused.
    """

    evidence: tuple[str, ...]
    doubts: tuple[str, ...]
    next: tuple[RaisedError, ...] = ()
    calls: Calls = Calls()


def torch_folder() -> Path:
    """The folder of the installed torch. Raises `UnsupportedError`."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise UnsupportedError("found no torch, expected an installed one")
    return Path(spec.origin).parent


def copy_with(root: Path, texts: Mapping[str, str], package: Path | None = None) -> None:
    """Make a copy of torch below `root`, with these texts in place of its files (`torch/_refs/__init__.py`)."""
    _link(package or torch_folder(), root / "torch", {tuple(file.split("/")[1:]): text for file, text in texts.items()})


def _link(real: Path, here: Path, texts: Mapping[tuple[str, ...], str]) -> None:
    here.mkdir()
    changed = {parts[0] for parts in texts}
    for entry in os.scandir(real):
        if entry.name not in {"__pycache__", *changed}:  # compiled code of the changed file would be written there
            (here / entry.name).symlink_to(entry.path)
    for name in changed:
        below = {parts[1:]: text for parts, text in texts.items() if parts[0] == name}
        if () in below:
            (here / name).write_text(below[()], encoding="utf-8")
        else:
            _link(real / name, here / name, below)


def task_of(request: Request, patches: Sequence[Patch]) -> Task:
    """What is run with the patches, and without them."""
    scripted = [
        COMPILED if patch.file.startswith(IN_TRACES) else f"{_module(patch.file)}:{name}"
        for patch in patches
        for name in _touched(patch)
    ]
    return Task(
        request.programs,
        request.functions,
        patches[0].file,
        tuple(dict.fromkeys(scripted)),
        request.test,
        request.stage,
        request.noting,
        of_numbers=request.of_numbers,
    )


def without(task: Task) -> Task:
    """What is run of it with torch as installed. That the programs are not captured there is shown by the test; only
    aot, in which the findings need not fail, is needed.
    """
    return msgspec.structs.replace(task, programs=tuple((text, (ALSO,)) for text, _ in task.programs))


def form_doubts(form: str, verdict: str, tested: Truths, usual: Sequence[bool] = ()) -> list[str]:
    """Why a form is not the one to take, although what was captured with it is right.

    An answer in place of a guard that checks arguments asserts nothing. An answer is tested only if the guard is both
    true and false where results agree, and it has to be the guard's at usual sizes. `usual` are more truths there.
    """
    if form.startswith(("torch._check", "a symbolic form", OUT)):
        return []
    doubts = []
    if form == DELETED and verdict != "either answer here":
        doubts.append("one of the answers is wrong, so the test is not redundant")
    if verdict == "torch._check here":
        doubts.append(f"the guard checks arguments, and {form} asserts nothing")
    every, answer = {*tested.usual, *tested.small}, form.startswith("guard_or_true")
    if len(every) < 2:
        seen = f"is {every.pop()} each time" if every else "was not evaluated"
        doubts.append(f"at the sizes of the calls the guard {seen}, so {form} is not tested for both of its truths")
    elif form.startswith("guard_or_") and answer not in {*tested.usual, *usual}:
        doubts.append(f"{form} takes the branch of unusual sizes for all: the guard is {not answer} at usual sizes")
    return doubts


def judged(task: Task, before: Sights | str, after: Sights | str) -> Judgement:
    """Compare what was seen with torch as installed with what was seen with the change."""
    if isinstance(before, str) or isinstance(after, str):
        return Judgement((), (before if isinstance(before, str) else f"with the change, {after}",))
    evidence, doubts = list[str](), list[str]()
    subjects = [(text, stage) for text, stages in task.programs for stage in stages]
    ends = [(stage, *_ends(text, seen)) for (text, stage), seen in zip(subjects, after.captured, strict=True)]
    limits = {text: _limit(seen) for (text, _), seen in zip(task.programs, before.captured, strict=False)}
    for (text, _), (stage, why, loss), seen in zip(subjects, ends, after.captured, strict=True):
        if loss:
            evidence.append(f"In {stage} torch loses an assertion that the capture made: {loss}.")
        if why and stage == ALSO and limits.get(text) == _limit(seen) != "":
            evidence.append(f"In {stage} the program fails as it does without the change: {why}.")
        elif why and stage in FURTHER and seen.outcome != "ok":
            evidence.append(f"In {stage} the program fails: {why}.")
        elif why:
            place = f" (at {site(seen.raised)[0]})" if seen.raised is not None else ""
            doubts.append(f"in {stage}: {why}{place}")
    doubts = list(dict.fromkeys(doubts))
    right = dict.fromkeys(stage for stage, why, _ in ends if not why)
    if right:
        calls = dict.fromkeys(call.size for seen in after.captured for call in seen.calls if call.agreement == "same")
        evidence.append(f"Captured in {', '.join(right)}, and agrees with eager at {', '.join(calls)}.")
    stops = tuple(seen.raised for seen in after.captured if seen.outcome != "ok" and seen.raised is not None)
    if task.test and (before.test == "passes" or after.test != "passes"):
        doubts.append(f"the test, before: {before.test}; after: {after.test}")
        return Judgement(tuple(evidence), tuple(doubts), stops)
    errors = [
        [[(said.name, said.message) for said in seen.exceptions] for seen in one.eager] for one in (before, after)
    ]
    if errors[0] != errors[1]:
        doubts.append("eager raises another error at some size of the programs")
    evidence, doubts = [*evidence, *_samples(before, after)[0]], [*doubts, *_samples(before, after)[1]]
    for name, error in after.scripted.items():
        if error and not before.scripted.get(name, error):
            doubts.append(f"torch.jit.script of {name} fails: {error}")
        elif not error:
            evidence.append(f"torch.jit.script of {name.replace(':', '.')} compiles, as before.")
    if task.test:
        evidence.append(f"The test fails before ({before.test.removeprefix('fails: ')[:100]}) and passes after.")
    first = len(task.programs[0][1]) if task.programs else 0
    return Judgement(tuple(evidence), tuple(doubts), stops, calls_of(after.captured[:first]))


def calls_of(captured: Sequence[Observation]) -> Calls:
    """The sizes at which all of these agree with eager, and those that all refuse, as eager does."""
    rows: dict[CallSize, list[Call]] = {}
    for seen in captured:
        for call in seen.calls:
            rows.setdefault(call.size, []).append(call)
    agree = (size for size, calls in rows.items() if all(call.agreement == "same" for call in calls))
    both = {size: [end for call in calls for end in (call.eager, call.captured)] for size, calls in rows.items()}
    return Calls(tuple(agree), tuple(size for size, ends in both.items() if not any(end.returned for end in ends)))


def _ends(text: str, seen: Observation) -> tuple[str, str]:
    """How a capture fails (`fault`, or wrong sizes of a value), and an assertion that what it captured has lost.

    What is accepted for want of that assertion is no fault of the change: another part of torch loses it
    (`lost-assertion`, oracles.md).
    """
    of_program = OracleInput(text, seen)
    losses = {call.size: lost(of_program, call) for call in seen.calls if not call.eager.returned}
    kept = tuple(call for call in seen.calls if not losses.get(call.size))
    fails = fault(ProgramSubject(text), msgspec.structs.replace(seen, calls=kept))
    nodes = ((call.node, call.size) for call in kept if call.node is not None and call.node.what in LAYOUT)
    wrong = (f"the graph is wrong about {node.target} at {size}: {node.how}" for node, size in nodes)
    return fails or next(wrong, ""), next(filter(None, losses.values()), "")


def _limit(seen: Observation) -> str:
    """The error that ends a capture, if it is not that of an undecided guard: its class and its first line."""
    last = seen.exceptions[-1] if seen.exceptions and seen.raised is None and seen.outcome == "fail" else None
    return f"{last.name}: {last.message.strip().partition(chr(10))[0]}" if last is not None else ""


def _samples(before: Sights, after: Sights) -> tuple[list[str], list[str]]:
    """What torch's samples say for the change, and against it."""
    old, new = before.samples, after.samples
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    doubts = [f"sample {name}: was {old.get(name)!s:.160}, is {new.get(name)!s:.160}" for name in names[:3]]
    runs = [len(before.of_samples), len(after.of_samples)]
    if runs[0] != runs[1]:
        return [], [*doubts, f"torch's samples are {runs[0]} runs, and with the change {runs[1]}"]
    doubts += (worse := _worse(before.of_samples, after.of_samples)[:3])
    evidence = []
    if not names and new:
        wrong, fake = (sum(kind in name.split() for name in new) for kind in ("error", "fake"))
        right = f"{len(new) - wrong - fake} in eager, {fake} with fake tensors"
        evidence.append(f"torch's samples do the same ({right}, and {wrong} of errors).")
    if not worse and after.of_samples:
        pairs = zip(before.of_samples, after.of_samples, strict=True)
        mended = sum(one.outcome != "ok" and other.outcome == "ok" for (_, one), (_, other) in pairs)
        evidence.append(
            f"torch's samples in {after.of_samples[0][1].stage}, with unbacked, backed and static sizes: "
            f"{len(after.of_samples)} runs, none is worse, {mended} are captured only with the change."
        )
    return evidence, doubts


def _worse(before: Sequence[tuple[str, Observation]], after: Sequence[tuple[str, Observation]]) -> list[str]:
    """Samples that are not captured any more, or wrongly now."""
    worse = []
    for (_, old), (text, new) in zip(before, after, strict=True):
        (was, _), (is_now, _) = _ends(text, old), _ends(text, new)
        was_captured = old.outcome == "ok"
        if is_now and ((was_captured and not was) or (new.outcome == "ok" and not (was_captured and was))):
            worse.append(f"a sample in {old.stage}: {is_now[:160]}")
    return worse


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _touched(patch: Patch) -> list[str]:
    """The functions and classes of the module whose code the change touches."""
    before, after = _functions(patch.before), _functions(patch.after)
    return [name for name, code in before.items() if after.get(name, code) != code]


def _functions(text: str) -> dict[str, str]:
    """The code of each function and class of a module."""
    defined = (ast.FunctionDef, ast.ClassDef)
    return {one.name: ast.unparse(one) for one in syntax.parse(text).body if isinstance(one, defined)}


def probed(tasks: Sequence[Task], texts: Mapping[str, str]) -> list[Sights | str]:
    """What one process saw for each task with these files of torch; for those that it did not do, why it ended."""
    with tempfile.TemporaryDirectory(prefix="ddefuzz-fix-") as made:
        folder = Path(made)
        (folder / "tasks.json").write_bytes(msgspec.json.encode(tasks))
        paths = [str(SOURCE)]
        if texts:
            (folder / "copy").mkdir()
            copy_with(folder / "copy", texts)
            paths.insert(0, str(folder / "copy"))
        environment = {name: value for name, value in os.environ.items() if name != "TORCH_LOGS"}
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        environment[SYMBOLIZER] = SHORT_LIVED_SYMBOLIZER
        words = [sys.executable, "-P", "-c", _PROBE, "tasks.json", "seen.jsonl"]
        ended = _ended(words, environment, folder, SECONDS * len(tasks))
        result = folder / "seen.jsonl"
        lines = result.read_bytes().splitlines() if is_there(result) else []
        done: list[Sights | str] = [msgspec.json.decode(line, type=Sights) for line in lines]
        return [*done, *[ended or "the process wrote nothing"] * (len(tasks) - len(done))]


def _ended(words: list[str], environment: dict[str, str], folder: Path, seconds: float) -> str:
    """How a process ended, if not well."""
    try:
        ran = subprocess.run(
            words,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            start_new_session=True,  # Ctrl-C reaches who asks, which ends after this
        )
    except subprocess.TimeoutExpired:
        return f"the process did not end within {seconds:.0f} s"
    last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
    return f"the process ended with code {ran.returncode}: {last[:200]}" if ran.returncode else ""


def apply_fault(patch: str, files: Sequence[str]) -> str:
    """Why a patch does not apply to the files of the installed torch. Empty if it does. `InputError` without git."""
    missing = [file for file in files if not file.startswith("torch/") or not is_file(torch_folder().parent / file)]
    if missing:
        return f"it has no file {missing[0][:80]!r}"
    with tempfile.TemporaryDirectory(prefix="ddefuzz-fix-") as made:
        folder = Path(made)
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes((torch_folder().parent / file).read_bytes())
        (folder / "change.patch").write_text(patch, encoding="utf-8")
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        try:
            ran = subprocess.run(
                ["git", "apply", "--check", "change.patch"],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise InputError(f"git: cannot be run: {error.strerror}, expected git on the PATH") from error
    return ran.stderr.strip().partition("\n")[0] if ran.returncode else ""
