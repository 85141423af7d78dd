"""Protect ddefuzz from user code in a worker: the code may not remove or replace modules and functions of ddefuzz and
those that it relies on, send signals to its processes, or lower their limits.

What else it changes for the cases after it ends the worker, so that these run in a new one. Modes of torch that a run
leaves on are ended.
"""

from __future__ import annotations

import builtins
import errno
import linecache
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from ddefuzz.errors import DdefuzzError, InputError
from ddefuzz.execute.channel import retire
from ddefuzz.files import real_path
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import disguised
from ddefuzz.internal import error_line

OWN = frozenset({"ddefuzz", "msgspec", "multiprocessing", "os", "pebble", "pickle", "posix", "select", "struct"})
"""The packages whose functions must stay as they are: ddefuzz, and what a worker needs to send its result."""

NEEDED = OWN | {"torch"}
"""The packages whose modules must stay."""

REPLACEABLE = frozenset({"breakpoint", "help", "input", "open", "print"})
"""Builtins that other libraries replace by what does the same."""

WATCHED = ("torch", "torch.nn", "torch.nn.functional", "torch.export", "torch.compiler", "torch.fx", "numpy")
"""Other modules whose functions, and the methods of whose main classes, a run must not change for the next one."""

CLASSES = ("Tensor", "Module", "Linear")

BY_TORCH = frozenset({"__init__", "__setstate__", "___needs_generation_tag_patch", "manual_seed"})
"""What dynamo replaces at its first use."""

SYMBOLIZER = "addr2line"
"""The process of torch that stays."""

FOLDER = tempfile.gettempdir()
"""Read before user code runs."""

_ENVIRONMENT = os.environ

FREE = 16
"""How many more files ddefuzz must be able to open."""

HARMLESS = frozenset({0, signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH})
"""Signals that end or stop no process, unless it asked for that."""

_before: list[object] = []
"""What user code may change, before it ran; a module's import is a part of that."""

_running: list[str] = []
"""The files of the user code that runs now."""

restored: list[str] = []
"""What the user code that ran last had replaced in Python or its library, and is restored."""


@contextmanager
def kept_intact(path: str, *, imported: bool = False) -> Iterator[None]:
    """Run user code of the file `path`. Raises `InputError` if it removes or replaces a part of ddefuzz.

    Modules, `tempfile.tempdir`, which decides where ddefuzz writes, and the current folder are what they were
    afterwards. The code has a folder of temporary files of its own, which it may remove.

    What was removed is restored first, so that the worker can report it. If the code sends a signal to its worker, or
    to the processes that started it, `RuntimeError` is raised in the code. Otherwise the end of the worker would look
    like a crash of PyTorch.

    The worker ends after its task if the code has changed what the next case would be blamed for. A module that is
    `imported` may change torch: all of its cases have that.
    """
    _watch()
    restored.clear()
    standard = dict(vars(builtins))
    needed = {name: module for name, module in _modules().items() if _package(name) in NEEDED}
    own = {name: module for name, module in needed.items() if _package(name) in OWN}
    attributes = _submodules(needed)
    functions = {name: (module, _functions(module)) for name, module in {**own, **_standard()}.items()}
    _before[:] = _changeable()
    _running.append(path)
    temporary, folder, user = tempfile.tempdir, current_folder(), _user()
    limits = {name: resource.getrlimit(number) for number, name in _NAMES_OF_LIMITS.items()}
    frames, set_frames = sys.getrecursionlimit(), sys.setrecursionlimit
    tempfile.tempdir = _own_folder()
    try:
        with interpreter_kept(), _signals_kept(path, imported=imported):
            try:
                yield
            finally:
                is_lower = sys.getrecursionlimit() < frames
                if is_lower:
                    set_frames(frames)
    finally:
        now = {**builtins.__dict__}
        builtins.__dict__.update(standard)  # first: all else needs them
        _running.pop()
        harmed = _restore_modules(needed, attributes)
        replaced = [name for name, value in standard.items() if callable(value) and now.get(name) is not value]
        restored.extend(f"builtins.{name}" for name in replaced)
        harmed += [f"builtins.{name}" for name in replaced if name not in REPLACEABLE and name[0] != "_"]
        for name, (module, known) in functions.items():
            replaced = _restore_functions(name, module, known)
            harmed += replaced if name in own else []
        if _user() != user:
            harmed.append("the user or group")
        harmed += _restore_limits(limits)
        harmed += ["the recursion limit"] if is_lower else []
        tempfile.tempdir = temporary
        enter_folder(folder)
        if not _has_descriptors():
            retire()
            raise InputError(f"{path}: found code that opens all files that it may, expected code that closes some")
        if imported:
            _before[:] = _changeable()
        if harmed or (not imported and _before != _changeable()):
            retire()
        if harmed:
            raise InputError(
                f"{path}: found code that removes or replaces {min(harmed)} in its worker, "
                "expected code that leaves ddefuzz as it is"
            )


@contextmanager
def interpreter_kept() -> Iterator[None]:
    """Modules that the code in the block removes, or replaces by what is none, are restored. Of those of ddefuzz and
    torch, `kept_intact` says it. Python's own are restored, too, if they were removed and imported again: two copies of
    `abc` have two metaclasses.

    A profiler that it leaves on is stopped: it may raise in any function of ddefuzz.
    """
    modules, profiler = _modules(), sys.getprofile()
    try:
        yield
    finally:
        if sys.getprofile() is not profiler:
            sys.setprofile(profiler)
        left = _modules()
        for name, module in modules.items():
            package = _package(name)
            again = package in sys.stdlib_module_names and left.get(name) is not module
            if package not in NEEDED and (again or name not in left):
                sys.modules[name] = module
                restored.append(name)


@contextmanager
def _signals_kept(path: str, *, imported: bool) -> Iterator[None]:
    """Timers that the code in the block leaves on are stopped, before anything of ddefuzz runs.

    What ddefuzz raises while the code has handlers of signals is taken for what they raise. An import raises
    what its module raises.
    """
    timers = [(timer, signal.getitimer(timer)) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)]
    try:
        yield
    except (DdefuzzError, MemoryError):
        raise
    except BaseException as error:
        if imported or _handlers() == _own_handlers():
            raise
        raise InputError(
            f"{path}: found code whose handler of a signal raises {error_line(error)} when the code has ended, "
            "expected code that stops its timers"
        ) from error
    finally:
        stopped = False
        while not stopped:
            with suppress(BaseException):  # of a handler, until the timers are stopped
                for timer, before in timers:
                    signal.setitimer(timer, *before)
                stopped = True


def _handlers() -> tuple[object, ...]:
    return tuple(signal.getsignal(number) for number in signal.valid_signals())


@cache
def _own_handlers() -> tuple[object, ...]:
    """The handlers before user code has run."""
    return _handlers()


def _user() -> tuple[object, ...]:
    """Who owns this process. As another one, it cannot use the files of ddefuzz."""
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()


def _has_descriptors() -> bool:
    """Whether as many more files can be opened as ddefuzz needs for the result of a run."""
    descriptors: list[int] = []
    try:
        while len(descriptors) < FREE:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    for descriptor in descriptors:
        os.close(descriptor)
    return len(descriptors) == FREE


def _modules() -> dict[str, ModuleType]:
    """The modules that are imported. User code may put other things beside them."""
    return {
        name: module
        for name, module in tuple(sys.modules.items())
        if type(name) is str and issubclass(type(module), ModuleType)
    }


def _package(name: str) -> str:
    return name.partition(".")[0]


@cache
def _standard() -> dict[str, ModuleType]:
    """The modules of Python's library that ddefuzz imports, or of which it imports a name. They are restored without a
    word: other code replaces some of their functions too, such as `warnings.warn`.
    """
    own = [vars(module) for name, module in _modules().items() if _package(name) == "ddefuzz"]
    values = [value for names in own for value in names.values()]
    used = {one.__name__ for one in values if isinstance(one, ModuleType)}
    used |= {str(one.__module__) for one in values if isinstance(one, type | FunctionType)}
    return {name: one for name, one in _modules().items() if name in used and _package(name) in sys.stdlib_module_names}


def _changeable() -> list[object]:
    """What user code may leave behind: other functions of torch, handlers of signals, a recursion limit, processes."""
    watched = [module for name in WATCHED if (module := sys.modules.get(name)) is not None]
    places = [*watched, *(vars(module)[name] for module in watched for name in CLASSES if name in vars(module))]
    return [
        [
            {key: id(value) for key, value in vars(place).items() if callable(value) and key not in BY_TORCH}
            for place in places
        ],
        _handlers(),
        sys.getrecursionlimit(),
        _children(),
    ]


def _children() -> set[str]:
    children = set[str]()
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError, psutil.Error):
            children.update(one for one in thread.read_text().split() if psutil.Process(int(one)).name() != SYMBOLIZER)
    return children


def _own_folder() -> str:
    folder = _made_folder().name
    Path(folder).mkdir(exist_ok=True)
    return folder


@cache
def _made_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="user-", dir=FOLDER, ignore_cleanup_errors=True)


def current_folder() -> str:
    """The current folder, empty if it has been removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def enter_folder(folder: str) -> None:
    """Make it the current folder, if it still is there."""
    with suppress(OSError):
        os.chdir(folder)


@contextmanager
def folder_kept() -> Iterator[None]:
    """The current folder is what it was afterwards, if it still is there."""
    folder = current_folder()
    try:
        yield
    finally:
        enter_folder(folder)


def _submodules(modules: dict[str, ModuleType]) -> list[tuple[ModuleType, str, ModuleType]]:
    """Each module with the module that has it as an attribute, and the name of that."""
    places = [(modules.get(name.rpartition(".")[0]), name.rpartition(".")[2], modules[name]) for name in modules]
    return [(parent, name, one) for parent, name, one in places if parent and vars(parent).get(name) is one]


def _restore_modules(needed: dict[str, ModuleType], attributes: list[tuple[ModuleType, str, ModuleType]]) -> list[str]:
    """Restore modules, those that are attributes of others, and `os.environ`. Returns which had been removed or
    replaced. What linecache cannot read is removed from it.
    """
    harmed = [name for name, module in needed.items() if sys.modules.get(name) is not module]
    sys.modules.update(needed)
    for parent, name, module in attributes:
        if vars(parent).get(name) is not module:
            vars(parent)[name] = module
            harmed.append(module.__name__)
    if os.environ is not _ENVIRONMENT:
        os.environ = _ENVIRONMENT  # noqa: B003 the same object again
        harmed.append("os.environ")
    for name, entry in tuple(linecache.cache.items()):
        if not isinstance(entry, tuple) or len(entry) not in (1, 4):
            del linecache.cache[name]
    return harmed


def _functions(module: ModuleType) -> dict[str, object]:
    """The module's own functions and classes, without dynamo's (two underscores), which it compiles into a module."""
    return {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("__")}


def _restore_functions(name: str, module: ModuleType, known: dict[str, object]) -> list[str]:
    """Restore the functions of a module. Returns which had been removed or replaced."""
    names = vars(module)
    replaced = [key for key, function in known.items() if names.get(key) is not function]
    names.update((key, known[key]) for key in replaced)
    changed = [f"{name}.{key}" for key in replaced]
    restored.extend(changed)
    return changed


@cache
def _watch() -> None:
    """An audit hook cannot be removed, so there is one for each process."""
    sys.addaudithook(_refuse)
    _own_handlers()


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not _running:
        return
    if event == "resource.setrlimit":
        _refuse_limit(*arguments)
    elif event == "resource.prlimit" and arguments[0] in {0, os.getpid()} and arguments[2] is not None:
        _refuse_limit(*arguments[1:])
    elif event == "sys.addaudithook":
        raise RuntimeError  # Python then leaves the hook out, without a word: nothing could remove it
    elif event == "shutil.rmtree":
        _refuse_removal(arguments[0])
    elif event in {"os.kill", "os.killpg"}:
        _refuse_signal(event, arguments)


_NAMES_OF_LIMITS = {
    getattr(resource, name): name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}
"""The names by their numbers. RLIMIT_OFILE is an old name of RLIMIT_NOFILE."""


def _are_lower(limits: Iterable[object], before: Iterable[int]) -> bool:
    """Whether a soft or a hard limit is lower than before."""
    infinite = float("inf")
    pairs = [
        [infinite if value == resource.RLIM_INFINITY else value for value in pair]
        for pair in zip(limits, before, strict=True)
    ]
    return any(isinstance(now, int | float) and isinstance(then, int | float) and now < then for now, then in pairs)


def _restore_limits(before: dict[str, tuple[int, int]]) -> list[str]:
    """Raise the limits that are lower than before: code in C can lower them unseen. Returns which."""
    lowered = []
    for number, name in _NAMES_OF_LIMITS.items():
        if _are_lower(resource.getrlimit(number), before[name]):
            lowered.append(f"the limit {name}")
            with suppress(OSError, ValueError):  # only root may raise a hard limit
                resource.setrlimit(number, before[name])
    return lowered


def _refuse_limit(number: object, limits: object) -> None:
    """Below a lower limit, ddefuzz cannot do its part. A limit may be raised as far as the system lets it be."""
    if not isinstance(number, int) or not isinstance(limits, tuple | list) or len(limits) != 2:
        return
    if _are_lower(limits, resource.getrlimit(number)):
        raise RuntimeError(
            f"the code lowers a limit ({_NAMES_OF_LIMITS.get(number, number)} to {limits}) of the process in which "
            "ddefuzz runs it"
        )


def _refuse_removal(folder: object) -> None:
    if not isinstance(folder, str | bytes | os.PathLike):
        return
    removed = os.path.realpath(os.fsdecode(folder))
    if any(real_path(one).is_relative_to(removed) for one in (FOLDER, _made_folder().name)):
        raise RuntimeError("the code removes the temporary files of ddefuzz (shutil.rmtree)")


def _refuse_signal(event: str, arguments: tuple[object, ...]) -> None:
    process, number = arguments
    campaign = multiprocessing.parent_process()
    own = {0, -1, os.getpid(), os.getppid(), -os.getpgrp(), campaign.pid if campaign is not None else 0}
    target = -process if event == "os.killpg" and isinstance(process, int) else process
    if target not in own or not isinstance(number, int) or number in HARMLESS:
        return
    # A signal that the code handles itself.
    if target == os.getpid() and signal.getsignal(number) not in {signal.SIG_DFL, None}:
        return
    raise RuntimeError(f"the code sends signal {number} to the process {process}, in which ddefuzz runs it")


class TransformsLeft(ContextDecorator):
    """Leave the transforms of torch.func that the code in the block leaves on. Dynamo does so if a function raises."""

    def __enter__(self) -> None:
        self._depth = torch_api.bound(torch_api.FUNCTORCH_DEPTH)()

    def __exit__(self, *_: object) -> None:
        torch_api.bound(torch_api.FUNCTORCH_UNDO)(self._depth)


@contextmanager
def unwound() -> Iterator[None]:
    """Leave the modes that the code in the block leaves on, at its end: those of dispatch and functions, the default
    device, the transforms of torch.func, autocast, gradients and inference mode. In the block, gradients are on.
    """
    dispatch, function = (torch_api.bound(row) for row in (torch_api.DISPATCH_MODES, torch_api.FUNCTION_MODES))
    device, current = torch_api.DEFAULT_DEVICE.get(), torch_api.CURRENT_DEVICE
    before, on, context = dispatch(), function(), getattr(device, "device_context", None)
    place, autocast = current.get(), torch.is_autocast_enabled("cpu")
    with torch.inference_mode(mode=False):  # it restores the modes of gradients and inference, whatever they are then
        try:
            with TransformsLeft():
                yield
        finally:
            for mode in reversed(dispatch()):
                if not any(mode is one for one in before):
                    kind = torch_api.FAKE_MODE.get()
                    kind = kind if isinstance(mode, kind) else torch_api.DISPATCH_MODE.get()
                    with suppress(Exception):  # the mode is the user's
                        kind.__exit__(mode, None, None, None)
            for _ in function():
                torch_api.bound(torch_api.POP_FUNCTION_MODE)()
            for mode in on:
                torch_api.bound(torch_api.PUSH_FUNCTION_MODE)(mode)
            device.device_context = context
            setattr(current.owner(), current.name_here(), place)
            torch.set_autocast_enabled("cpu", autocast)


@contextmanager
def removed() -> Iterator[None]:
    """Remove what is left by the code in the block, at its end. Nothing that was captured in it may be used later."""
    environments: list[weakref.ref[Any]] = []
    installed: list[tuple[dict[str, Any], str]] = []
    make, install = torch_api.SHAPE_ENV_INIT, torch_api.INSTALL_GLOBAL
    with (
        make.replaced(_noting(environments)),
        install.replaced(staticmethod(_installing(installed))),
    ):
        yield
    for reference in environments:
        environment = reference()
        if environment is not None:
            environment.tracked_fakes = None
    for scope, name in installed:
        if name in scope:
            scope[name] = None  # the name stays: dynamo may still delete it
    for owner in (torch_api.SHAPE_ENV.get(), *(sys.modules[name] for name in torch_api.CACHING if name in sys.modules)):
        for value in tuple(vars(owner).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    sources = torch_api.GRAPH_SOURCES.get()
    for name in sources:
        linecache.cache.pop(name, None)
    sources.clear()


def _noting(environments: list[weakref.ref[Any]]) -> Callable[..., None]:
    original = torch_api.bound(torch_api.SHAPE_ENV_INIT)

    def ddefuzz_init(env: Any, *args: Any, **kwargs: Any) -> None:
        environments.append(weakref.ref(env))
        original(env, *args, **kwargs)

    return disguised(torch_api.SHAPE_ENV_INIT, ddefuzz_init)


def _installing(installed: list[tuple[dict[str, Any], str]]) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.INSTALL_GLOBAL)

    def ddefuzz_create(scope: dict[str, Any], name: str, value: Any) -> Any:
        installed.append((scope, name))
        return original(scope, name, value)

    return disguised(torch_api.INSTALL_GLOBAL, ddefuzz_create)
