"""The failures of a case as problems: each once, the worst first, with its owner and the calls that lead to it."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.answers.model import Control, data_dependent
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import GUARD_EXCEPTIONS, Kind
from ddefuzz.classify.plumbing import is_framework, is_python_plumbing
from ddefuzz.classify.signature import USER_CODE, Cause
from ddefuzz.classify.site import inside_tracer, user_frame
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation, Stage
from ddefuzz.files import leads_to_file, read_text, real_path
from ddefuzz.instrument.events import PROGRAM_FILE, TYPED_FILES, AnsweredGuard, Frame, SymbolOrigin
from ddefuzz.internal import guarded
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.program import TriedRun
from ddefuzz.oracles.recompilation import CallSequence
from ddefuzz.oracles.table import row_of

OwnerKind: TypeAlias = Literal["yours", "package", "PyTorch", "Python"]

_PATHS = sysconfig.get_paths()
_INSTALLED = tuple(
    folder for name in ("purelib", "platlib") for folder in (Path(_PATHS[name]), real_path(_PATHS[name]))
)
_STDLIB = Path(_PATHS["stdlib"])


class Owner(msgspec.Struct, frozen=True):
    """Who can change the code. `name` and `version` are those of an installed package, or of PyTorch."""

    kind: OwnerKind
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        if self.kind in ("yours", "Python"):
            return "your code" if self.kind == "yours" else "Python"
        return f"{self.name or self.kind} {self.version}".strip()


YOURS = Owner("yours")


def owner_of(file: str) -> Owner:
    """The owner of a file as frames name it: torch and installed packages relative to the folder that holds them."""
    if file == PROGRAM_FILE or file.startswith(TYPED_FILES):
        return YOURS
    is_here = leads_to_file(Path(file))
    if file.startswith(("torch/", "<")) and not is_here:
        return torch_itself()
    top = package_of(file)
    if top:
        return package(top)
    return Owner("Python") if not Path(file).is_absolute() and not is_here and leads_to_file(_STDLIB / file) else YOURS


def package_of(file: str) -> str:
    """The top-level module of an installed package that a file belongs to; empty for others."""
    path = Path(file) if Path(file).is_absolute() else Path(full_path(file))
    folder = next((folder for folder in _INSTALLED if path.is_relative_to(folder)), None)
    return path.relative_to(folder).parts[0].removesuffix(".py") if folder is not None else ""


def module_of(file: str) -> str:
    """The name by which an installed module is imported; for a file of the user its stem."""
    path = Path(file)
    folder = next((folder for folder in _INSTALLED if path.is_relative_to(folder)), path.parent)
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def full_path(file: str) -> str:
    """The full path of a file. Frames name the files of packages next to torch relative to the folder of both."""
    path = Path(file)
    if file.startswith("<"):
        return file
    if not path.is_absolute() and not leads_to_file(path):
        path = next((folder / path for folder in _INSTALLED if leads_to_file(folder / path)), path)
    return str(real_path(path))


def shown(file: str) -> str:
    """A path relative to the current folder if it lies in it."""
    path = Path(file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else file


def torch_itself() -> Owner:
    """PyTorch, by its version."""
    return Owner("PyTorch", "PyTorch", _version("torch"))


@lru_cache(maxsize=128)
def package(top: str) -> Owner:
    """The installed package that has a top-level module of this name."""
    version = _version(top)
    if version:
        return Owner("package", top, version)
    names = metadata.packages_distributions().get(top, [])
    return Owner("package", names[0] if names else top, _version(names[0]) if names else "")


@lru_cache(maxsize=128)
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


NUMBERS = frozenset({"item", "tolist", "_local_scalar_dense"})
"""The ops whose symbol is the value itself. The symbol of any other op is the size of dim 0 of its result."""

LOOP_REMEDY = (
    "capture unrolls a Python loop, so the number of its rounds must not depend on data. Write it with "
    "torch.while_loop, or call it as one op: torch.library.custom_op, with register_fake for the shape of the result"
)

_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)

DRAWS = re.compile(r"\b(numpy|np)\.random\b")
"""Code that draws random numbers without torch. Capture takes them for data."""

TYPES = re.compile(r"in output, which is not a known type|Unsupported (input|output) type")
"""Errors about the type of an input or output."""

REMEDIES = (
    (
        r"in output, which is not a known type|outputs? .*not .*supported|Unsupported output type",
        "return tensors in tuples, lists or dicts, or register the type as a pytree (a dataclass with "
        "torch.export.register_dataclass)",
    ),
    (
        r"Unsupported input type|inputs? .*not supported",
        "pass tensors in tuples, lists or dicts, or register the type with torch.export.register_dataclass",
    ),
    (
        r"weakref|swap_tensors|Couldn't swap",
        "make the model anew before the capture, without references to its parameters; strict=False does not swap them",
    ),
    (
        r"context manager",
        "enter the context manager outside of the captured code, or export with strict=False, where dynamo does not "
        "trace it",
    ),
    (DRAWS.pattern, "draw with torch (torch.rand, torch.randn), or pass the numbers as an input"),
)
"""A pattern of messages, and what to do."""


def own_line(observation: Observation) -> Frame | None:
    """The innermost frame of the user's own code in a failure."""
    raised = observation.raised
    stacks = [inside_tracer(raised.python), raised.traced] if raised is not None else []
    for exception in observation.exceptions:
        stacks += [exception.traced, inside_tracer(exception.frames)]
    return next((frame for stack in stacks if (frame := user_frame(stack)) is not None), None)


def loop_of(failure: Classification) -> str:
    """The loop of the user's code whose number of rounds the failure's guard decides; empty if there is none."""
    frame = own_line(failure.failure.observation) if failure.cause in ("user", "python-value") else None
    return loop_at(frame.file, frame.line) if frame is not None else ""


def origin_of(origin: SymbolOrigin) -> str:
    """Where a symbol comes from: a dim of an input (`dim 1 of ids`), or an op and its line."""
    if origin.source or origin.op == "input":
        return origin.source or "a size of an input"
    what = f"{'value of ' if origin.op in NUMBERS else ''}{origin.op}()" if origin.op else "an op"
    frame = origin.frame
    return f"{what}, called by PyTorch" if frame is None else f"{what} at {frame.file}:{frame.line}"


def error_of(failure: Classification) -> str:
    """The first line of the final exception, else the anchor, which names its type and the code that raises it."""
    exceptions = failure.failure.observation.exceptions
    first = exceptions[0].message.strip().partition("\n")[0] if exceptions else ""
    return f"{exceptions[0].name}: {first}" if first else f"{failure.signature.anchor}."


def summary(failure: Classification) -> str:
    """What happened, and whose it is to change, in a sentence."""
    signature, raised = failure.signature, failure.failure.observation.raised
    guard = f", guard `{raised.expression}`" if raised is not None else ""
    wanted = f"`{raised.expression}`" if raised is not None else str(signature.site)
    own = own_line(failure.failure.observation)
    whose = (package_of(own.file) if own is not None else "") or "Your code"
    if loop := loop_of(failure):
        return f"How often the loop `{loop}` runs is known only at run time."
    match failure.cause:
        case "user" if raised is not None:
            return f"{whose} branches on `{raised.expression}`, which is known only at run time."
        case "user":
            return f"{whose} branches on the value of a tensor, which is known only at run time."
        case "python-value":
            return f"{whose} needs a Python bool or number that is computed from data: {wanted}."
        case "result-depends-on-data":
            return f"The rank, structure or meaning of the result depends on data ({signature.site}{guard})."
        case "refused":
            return f"Capture refuses this code by design or by a default option, for any sizes: {signature.anchor}."
        case "no-kernel":
            return f"{signature.site} has no fake kernel that capture can use: it is PyTorch's to add, or its author's."
        case "int-required":
            return f"The limitation is PyTorch's: {signature.site} needs a plain int{guard}. Worth an issue upstream."
        case "wrong-capture":
            return f"PyTorch captured something else than your code: {signature.site}. Worth an issue upstream."
        case "wrong-key":
            return f"The key function is wrong: {signature.site}. Change it."
        case "avoidable" | "symbolic-form" | "unclassified" if raised is not None:
            return f"The error is PyTorch's: {signature.site} evaluates `{raised.expression}`. Worth an issue upstream."
        case "avoidable" | "symbolic-form" | "unclassified":
            return f"The error is PyTorch's: it is raised at {signature.site}: {error_of(failure)}"


_OP = "put the call into an op of your own: torch.library.custom_op, with register_fake for the shape of its result"

BY_HAND: dict[Cause, str] = {
    "user": "compute both results and select with torch.where, use torch.cond, or let a plain argument decide",
    "python-value": f"keep the value a tensor (torch.arange and a comparison for range), or {_OP}",
    "result-depends-on-data": "make the number and rank of results independent of data: a fixed size and a mask",
    "refused": "leave this part outside of what is captured, or write it with ops that capture takes",
    "no-kernel": "register a fake kernel (torch.library.register_fake), or leave the op outside of what is captured",
    "int-required": _OP,
    "avoidable": _OP,
    "symbolic-form": _OP,
    "unclassified": _OP,
    "wrong-capture": _OP,
}
"""What a person can do where no change that is tried helps, by the cause of the problem."""


def remedy(message: str) -> str:
    """What to do about an error with this message: as the table or dynamo's own hint says. Empty if not known."""
    for pattern, what in REMEDIES:
        if re.search(pattern, message):
            return what
    hint = _HINT.search(message)
    return hint[1].strip() if hint is not None else ""


def loop_at(file: str, line: int) -> str:
    """The first line of the `while` loop that the code at this line of a file decides to leave or not.

    The code is the loop's condition, or an `if` in the loop that only breaks. Empty if there is no such loop.
    """
    try:
        source = read_text(Path(file))
        tree = ast.parse(source)
    except (InputError, OSError, SyntaxError, ValueError):
        return ""
    loops = [loop for loop in ast.walk(tree) if isinstance(loop, ast.While) and _decides(loop, line)]
    return source.splitlines()[loops[-1].lineno - 1].strip() if loops else ""


def _decides(loop: ast.While, line: int) -> bool:
    leaving = [one.test for one in _inside(loop.body) if isinstance(one, ast.If) and isinstance(one.body[0], ast.Break)]
    return any(one.lineno <= line <= (one.end_lineno or one.lineno) for one in (loop.test, *leaving))


def _inside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop's body, without those of inner loops and functions."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _inside(getattr(statement, field, []))


class Caller(msgspec.Struct, frozen=True):
    """A line of the user's code, or of a package that it calls, on the way to the failure."""

    file: str
    line: int
    function: str
    code: str
    owner: Owner


class Answer(msgspec.Struct, frozen=True):
    """How an undecided guard was answered, in `stage`, so that the capture continued."""

    stage: Stage
    value: bool | int | float


class Problem(msgspec.Struct, frozen=True):
    """One problem: a failure with its site, however many captures and visits show it.

    `stages` are the captures that it stops, or whose captured program has it. There are none if it only shows once the
    problems before it are answered (`answers`): then it has no exception. `keys` has the key of each signature under
    which captures report it. `chain` are the calls from the user's code to the site. `about_data` is None if it is not
    known, `control` the capture with static sizes. `consequence` says that an answer may have led to it.
    """

    case: str
    classified: Classification
    stages: tuple[Stage, ...]
    owner: Owner
    keys: tuple[str, ...]
    chain: tuple[Caller, ...] = ()
    about_data: bool | None = None
    control: Control | None = None
    answers: tuple[Answer, ...] = ()
    consequence: bool = False
    remedy: str = ""

    @property
    def kind(self) -> Kind:
        """The kind of the failure."""
        return self.classified.signature.kind

    @property
    def observation(self) -> Observation:
        """The run that shows it."""
        return self.classified.failure.observation

    @property
    def expression(self) -> str | None:
        """What the guard evaluates."""
        return self.observation.raised.expression if self.observation.raised is not None else None

    @property
    def module(self) -> str:
        """The path of the nn.Module that runs there."""
        raised = self.observation.raised
        return (raised.module if raised is not None else "") or self.observation.module

    @property
    def symbols(self) -> tuple[SymbolOrigin, ...]:
        """The symbols in the guard, with their origins."""
        return self.observation.raised.symbols if self.observation.raised is not None else ()

    @property
    def is_minor(self) -> bool:
        """Whether it neither stops capture nor makes the captured program wrong."""
        return self.kind not in KINDS and self.kind != "regressed" and not row_of(self.kind).wrong


class CaseRuns(msgspec.Struct, frozen=True):
    """All runs of one case: its captures, those with answered guards, and captures with static sizes by key."""

    case: str
    tried: tuple[TriedRun, ...]
    continued: tuple[Observation, ...] = ()
    controls: tuple[tuple[str, Control], ...] = ()


class Occurrence(msgspec.Struct, frozen=True):
    """A failure and how it was met: in a plain capture, or after answers."""

    classified: Classification
    stops: bool
    answer: Answer | None = None
    consequence: bool = False


def problems_of(runs: CaseRuns) -> tuple[Problem, ...]:
    """The problems of a case, each once, the worst first."""
    controls = dict(runs.controls)
    groups: dict[str, list[Occurrence]] = {}
    for occurrence in _occurrences(runs):
        groups.setdefault(occurrence.classified.signature.key, []).append(occurrence)
    problems: list[Problem] = []
    for key, group in groups.items():
        problem = _problem(runs.case, group, controls.get(key))
        same = next((at for at, other in enumerate(problems) if _is_the_same(other, problem)), None)
        if same is None:
            problems.append(problem)
        else:
            problems[same] = msgspec.structs.replace(
                problems[same],
                stages=(*problems[same].stages, *problem.stages),
                keys=(*problems[same].keys, *problem.keys),
                answers=tuple(dict.fromkeys((*problems[same].answers, *problem.answers))),
            )
    return tuple(sorted(problems, key=_badness))


def _occurrences(runs: CaseRuns) -> Iterator[Occurrence]:
    """The failures of a case under explicit semantics, in the order in which they were met.

    A timeout after answers is none: a loop whose condition is answered True each time does not end.
    """
    yield from (Occurrence(failure, stops=True) for failure in failures_of(runs.tried))
    for seen in runs.continued:
        for answered in seen.answered:
            failure = _as_raised(seen, answered)
            if failure is not None:
                yield Occurrence(failure, stops=False, answer=Answer(seen.stage, answered.value))
        for judged in judge([seen]):
            if judged.kind != "timeout":
                yield Occurrence(classify(judged), stops=False, consequence=True)


def failures_of(tried: Sequence[TriedRun]) -> tuple[Classification, ...]:
    """The failures of plain captures under explicit semantics. There are none for a case that fails in eager."""
    observations = [one.observation for one in tried]
    if refused_by_eager(observations) is not None:
        return ()
    stopping = list[Classification]()
    for failure in judge(observations):
        if failure.observation.semantics == EXPLICIT:
            with guarded(failure.observation.stage), guarded(failure.kind):
                stopping.append(classify(failure))
    return (*stopping, *(one for of in tried for one in of.failures if one.failure.kind not in KINDS))


def refused_by_eager(observations: Sequence[Observation]) -> Observation | None:
    """The run in eager, if it failed."""
    return next((one for one in observations if one.stage == "eager" and one.outcome != "ok"), None)


def exception_of(seen: Observation) -> str | None:
    """The type and first line of the final exception; of one whose first line says nothing, the line that does."""
    if not seen.exceptions:
        return None
    final, root = seen.exceptions[0], seen.exceptions[-1]
    if _first_line(final).endswith("when making fake tensor call"):
        return f"{root.name}: {_first_line(root)}"
    reasons = [line.strip(" -") for line in final.message.splitlines() if line.startswith("  - ")]
    if _first_line(final).startswith("Constraints violated") and reasons:
        return f"{final.name}: {reasons[0]}"
    return f"{final.name}: {_first_line(final)}"


def _first_line(exception: ExceptionInfo) -> str:
    return exception.message.strip().partition("\n")[0]


def _as_raised(seen: Observation, answered: AnsweredGuard) -> Classification | None:
    """The failure that a guard would have been, had it not been answered. It has no exception."""
    expression = answered.raised.expression
    error = ExceptionInfo(min(GUARD_EXCEPTIONS), f"Could not guard on data-dependent expression {expression}")
    alone = msgspec.structs.replace(
        seen, outcome="fail", reason="", exceptions=(error,), raised=answered.raised, answered=(), calls=()
    )
    failures = judge([alone])
    return _with_observation(classify(failures[0]), exceptions=()) if failures else None


def _with_observation(classified: Classification, **changed: object) -> Classification:
    failure = classified.failure
    observation = msgspec.structs.replace(failure.observation, **changed)
    return msgspec.structs.replace(classified, failure=msgspec.structs.replace(failure, observation=observation))


def _problem(case: str, group: Sequence[Occurrence], control: Control | None) -> Problem:
    first = next((one for one in group if one.stops), group[0])
    classified = first.classified
    seen, site = classified.failure.observation, classified.signature.site
    chain = chain_of(seen)
    own = own_caller(chain)
    about_data = data_dependent(classified.failure, control)
    texts = "\n".join([own.code if own is not None else "", *(one.message for one in seen.exceptions)])
    draws = own is not None and DRAWS.search(own.code) is not None
    if draws or (about_data is None and TYPES.search(texts)):
        about_data = False
    help_ = LOOP_REMEDY if loop_of(classified) else remedy(texts) if about_data is False else ""
    is_own = site.module == USER_CODE or classified.cause in ("user", "python-value", "refused") or bool(help_)
    exceptions = seen.exceptions
    if seen.raised is not None:  # the guard has its stacks: those of the exceptions say nothing more
        exceptions = tuple(msgspec.structs.replace(one, frames=(), traced=()) for one in exceptions)
    return Problem(
        case,
        _with_observation(classified, guards=(), answered=(), graph=None, exceptions=exceptions),
        tuple(dict.fromkeys(one.classified.failure.observation.stage for one in group if one.stops)),
        (own.owner if own is not None else YOURS) if is_own else torch_itself(),
        (classified.signature.key,),
        chain=chain,
        about_data=about_data,
        control=control,
        answers=tuple(dict.fromkeys(one.answer for one in group if one.answer is not None)),
        consequence=first.consequence and about_data is not False,
        remedy=help_,
    )


def chain_of(seen: Observation) -> tuple[Caller, ...]:
    """The lines of the user's code and of packages that lead to a failure, outermost first, each once."""
    python, traced = _stacks_of(seen)
    frames = [*traced, *inside_tracer(python)] if traced else python
    callers = [
        Caller(one.file, one.line, one.function, one.code.strip(), owner_of(one.file))
        for one in frames
        if not is_framework(one) and not is_python_plumbing(one)
    ]
    return tuple(dict.fromkeys(one for one in callers if one.owner.kind in ("yours", "package")))


def _stacks_of(seen: Observation) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """The stacks of Python and of dynamo: of a failure, of the guard for which torch.compile compiled again, or of what
    made a wrong result.
    """
    repeated = seen.measurement(CallSequence)
    decided = seen.raised or (repeated.failed if repeated is not None else None)
    if decided is not None:
        return decided.python, decided.traced
    wrong = (one.frames for call in seen.calls for one in call.differences if one.frames)
    return (
        next((one.frames for one in reversed(seen.exceptions) if one.frames), next(wrong, ())),
        next((one.traced for one in seen.exceptions if one.traced), ()),
    )


def own_caller(chain: tuple[Caller, ...]) -> Caller | None:
    """The innermost line."""
    return chain[-1] if chain else None


def _is_the_same(first: Problem, second: Problem) -> bool:
    """Whether captures report one problem under two signatures: at one line and one piece of code, in other stages."""
    anchors = {first.classified.signature.anchor, second.classified.signature.anchor}
    if set(first.stages) & set(second.stages) or first.consequence or len(anchors) > 1:
        return False
    mine, theirs = own_caller(first.chain), own_caller(second.chain)
    return mine is not None and theirs is not None and (mine.file, mine.line) == (theirs.file, theirs.line)


def _badness(problem: Problem) -> tuple[bool, bool, bool, bool, int]:
    """Sort key: wrong results, ends of the process, what stops most captures, consequences, what is minor."""
    row = row_of(problem.kind)
    return (problem.is_minor, problem.consequence, not row.wrong, not row.deadly, -len(problem.stages))
