"""Checks one op in a worker: imports the libraries, finds the op and its examples, and runs all checks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch

import ddefuzz
from ddefuzz.custom_ops.arguments import Arguments, Inputs, argument_text, inputs_of, read_example, sizes_text
from ddefuzz.custom_ops.fakes import check_fakes
from ddefuzz.custom_ops.log import Log, TestedOp
from ddefuzz.custom_ops.model import ListTask, OpList, OpReport, OpTask, Source
from ddefuzz.custom_ops.out_overloads import functional_of, out_arguments
from ddefuzz.custom_ops.real import check_real
from ddefuzz.custom_ops.variants import drawn_arguments
from ddefuzz.errors import InputError
from ddefuzz.execute.kernels import fake_kernel
from ddefuzz.execute.observe import running_user_code
from ddefuzz.execute.subject import load_module
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.frames import display_file

EXAMPLES = "EXAMPLES"
"""The name that examples have in their module, unless another is given."""


def list_ops(task: ListTask) -> OpList:
    """The ops to check, in order. Raises InputError for a name that none has."""
    examples = load(task.source)
    if not task.names and not examples:
        raise InputError("found no op, expected LIB::OP, a glob such as 'mylib::*', or --examples")
    known = _registered()
    chosen: dict[str, None] = {}
    for name in task.names or examples:
        if any(mark in name for mark in "*?["):
            matching = [one for one in known if fnmatchcase(one, name) and not _writes_out(one)]
            if not matching:
                raise InputError(f"{name}: found no such op of torch and the imported modules, expected some")
            chosen.update(dict.fromkeys(matching))
        else:
            if task.names:
                find_op(_whole(name))  # one that has examples and does not exist is not judged
            chosen[_whole(name)] = None
    return OpList(tuple(chosen), _state_of_files())


def _state_of_files() -> str:
    """A digest of the paths, sizes and times of all libraries and modules that are loaded, but torch's and ddefuzz's.

    A worker may have done another task before, and have more of these.
    """
    known = str(Path(torch.__file__).parent), str(Path(ddefuzz.__file__).parent)
    paths = {getattr(module, "__file__", None) for module in tuple(sys.modules.values())} | torch.ops.loaded_libraries
    listed = []
    for path in sorted(str(path) for path in paths if path and not str(path).startswith(known)):
        with suppress(OSError):
            state = Path(path).stat()
            listed.append((path, state.st_size, state.st_mtime_ns))
    return sha256(repr(listed).encode()).hexdigest()


def check_op(task: OpTask) -> OpReport:
    """Check an op with all of its examples."""
    examples = load(task.source)
    path = task.source.examples.partition(":")[0] or next(iter(task.source.modules), "torch")
    with running_user_code(path):
        return checked(find_op(task.op), examples.get(task.op, ()), task)


def checked(op: Any, examples: Sequence[object], task: OpTask) -> OpReport:
    """Check an overload. Without examples, arguments are drawn from its schema. Not judged if none fit."""
    outs = out_arguments(op)
    functional = functional_of(op) if outs else None
    tested = TestedOp(op if functional is None else functional, task.careful)
    log = Log(tested, task.budget, task.without, only_out="" if functional is None else op.name())
    inputs: list[str] = []
    reason = ""
    with catch_warnings(), _without_fallback():
        simplefilter("ignore")
        try:
            given: Sequence[object] = examples or _drawn(log)
            for place, example in enumerate(given):
                log.share((2 * place + 1) / (2 * len(given)))
                made = _inputs(log, example, f"example {place} of {task.op}" if examples else task.op, outs)
                inputs.append(_shown(made))
                if not log.only_out:
                    check_fakes(log, made, task.seed)
                log.share((place + 1) / len(given))
                check_real(log, made, task.seed)
        except InputError as error:
            reason = str(error)
    return OpReport(
        task.op,
        str(op._schema),
        _kernel(op),
        tuple(inputs),
        log.results(),
        log.calls,
        log.refused,
        round(log.spent, 2),
        tuple(log.notes),
        log.is_cut,
        tested.crashes,
        reason,
    )


@contextmanager
def _without_fallback() -> Iterator[None]:
    """Results of an op without an autograd kernel require no gradient."""
    mode = torch_api.bound(torch_api.OLD_AUTOGRAD_FALLBACK)()
    change = torch_api.bound(torch_api.AUTOGRAD_FALLBACK)
    change("nothing")
    try:
        yield
    finally:
        change(mode)


def _kernel(op: Any) -> str:
    """Where the fake kernel is: that of `register_fake`, or a Python function of torch. Empty if it is in C++."""
    custom = torch_api.CUSTOM_OPS.get().get(op.name())
    if custom is not None:
        code = getattr(getattr(custom, torch_api.CUSTOM_FAKE), "__code__", None)
        return "" if code is None else f"{display_file(code.co_filename)}:{code.co_firstlineno}"
    registered = torch_api.REGISTERED.get().find(op.name()).fake_impl.kernel
    if registered is not None:
        file, _, line = str(registered.source).rpartition(":")
        return f"{display_file(file)}:{line}"
    file, function = fake_kernel(op)
    return f"{file}:{function}" if file else ""


def _drawn(log: Log) -> list[object]:
    made = drawn_arguments(log.op.schema, log.op.takes)
    if made is None:
        lacking = "no arguments drawn from its schema that the real kernel takes"
        if not torch_api.bound(torch_api.HAS_KERNEL)(log.op.name, "CPU"):
            lacking = "no kernel for tensors of the CPU, on which arguments are drawn"
        raise InputError(f"{log.op.name}: found {lacking}, expected --examples")
    log.notes["no example is given: the arguments are drawn from the schema"] = None
    return [made]


def _inputs(log: Log, example: object, where: str, outs: Sequence[str]) -> Inputs:
    if log.only_out:
        example = _without(outs, example, where)
    made = inputs_of(example, where, log.op.parameters, log.op.takes)
    base = made.at(made.example)
    if base is None:
        raise InputError(f"{where}: found an example that cannot be made at {sizes_text(made.example)}")
    refusal = log.op.refusal(base)
    if refusal is not None:
        shown = ", ".join(map(argument_text, (*base.args, *base.kwargs.values())))
        raise InputError(f"{where}: found the arguments {shown}, with which the op raises {refusal}")
    return made


def _without(outs: Sequence[str], example: object, where: str) -> object:
    """An example of an out= overload as one of the functional overload."""
    read = read_example(example, where)
    if isinstance(read, Arguments):
        return Arguments(read.args, {name: value for name, value in read.kwargs.items() if name not in outs})
    function = read

    @wraps(function)
    def of_sizes(**sizes: int) -> object:
        return _without(outs, function(**sizes), where)

    return of_sizes


def _shown(inputs: Inputs) -> str:
    """The arguments of an example, and its sizes."""
    base = inputs.at(inputs.example)
    shown = ", ".join(map(argument_text, (*base.args, *base.kwargs.values()))) if base is not None else ""
    sizes = f"sizes {sizes_text(inputs.example)}" if inputs.example else "no size of it can be changed"
    return f"{shown}; {sizes}"


def load(source: Source) -> dict[str, tuple[object, ...]]:
    """Import the modules, and read the examples, by whole name of the op. Raises InputError."""
    for name in source.modules:
        load_module(name)
    if not source.examples:
        return {}
    path, _, name = source.examples.partition(":")
    module = load_module(path)
    value = getattr(module, name or EXAMPLES, None)
    where = f"{path}:{name or EXAMPLES}"
    if not isinstance(value, Mapping):
        shown = type(value).__name__ if hasattr(module, name or EXAMPLES) else "no such name"
        raise InputError(f"{where}: found {shown}, expected a dict of lists of examples by the names of ops")
    made: dict[str, tuple[object, ...]] = {}
    for key, listed in value.items():
        if not isinstance(key, str) or not isinstance(listed, (list, tuple)):
            raise InputError(f"{where}: found {key!r}: {type(listed).__name__}, expected 'mylib::op': [example, ...]")
        made[_whole(key)] = tuple(listed)
    return made


def _whole(name: str) -> str:
    """`mylib::op.overload`: the default overload has no name of its own."""
    return name.removesuffix(".default").removeprefix("torch.ops.")


def overload_of(op: Any) -> Any:
    """The overload of what `torch.library.opcheck` takes, or of a name. Raises InputError."""
    if isinstance(op, str):
        return find_op(_whole(op))
    if isinstance(op, torch_api.CUSTOM_OP.get()):
        return getattr(op, torch_api.CUSTOM_OVERLOAD)
    if isinstance(op, torch_api.OVERLOAD_PACKET.get()):
        return op.default
    if isinstance(op, torch_api.OVERLOAD.get()):
        return op
    raise InputError(f"op: found {type(op).__name__}, expected a custom op, torch.ops.mylib.op or its name")


def find_op(name: str) -> Any:
    """The overload of a name `mylib::op` or `mylib::op.overload`. Raises InputError."""
    library, colons, rest = name.partition("::")
    short, _, overload = rest.partition(".")
    if not colons or not short or not library.isidentifier() or not short.isidentifier():
        raise InputError(f"{name[:100]!r}: found no name of an op, expected LIB::OP or LIB::OP.OVERLOAD")
    try:
        return getattr(getattr(getattr(torch.ops, library), short), overload or "default")
    except AttributeError:
        pass
    known = [one for one in _registered() if one.startswith(f"{library}::")]
    if not known:
        raise InputError(f"{name}: found no library {library!r}, expected one that is imported (--import MODULE)")
    same = [one for one in known if one.partition(".")[0] == f"{library}::{short}"]
    listed = ", ".join((sorted(same) or get_close_matches(name, known, 6) or sorted(known))[:6])
    raise InputError(f"{name}: found no such op, expected one of {library}'s {len(known)}, such as {listed}")


def _writes_out(name: str) -> bool:
    """Whether it is an out= overload: it is checked with the functional one."""
    overload = name.partition(".")[2]
    return overload == "out" or overload.endswith("_out")


def _registered() -> list[str]:
    """The names of all ops that the dispatcher knows."""
    names: Iterable[str] = torch_api.bound(torch_api.ALL_OPS)()
    return sorted(names)
