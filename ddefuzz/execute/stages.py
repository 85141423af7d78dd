"""The stages, one function each: how far torch takes a subject, and the resulting graph. Inductor stops before C++."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial, wraps
from pathlib import Path
from types import FunctionType, MappingProxyType, MethodType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from ddefuzz.errors import InputError
from ddefuzz.execute.comparison import is_distributed
from ddefuzz.execute.preparation import PreparedSubject, UnbackedDim, leaves_of, shapes_around, symbols_of, with_leaves
from ddefuzz.execute.processes import call_graph
from ddefuzz.execute.protocol import RETRACES, SCREEN, Stage
from ddefuzz.execute.scratch import PREFIX
from ddefuzz.files import is_there
from ddefuzz.instrument import torch_api
from ddefuzz.program.options import mark_calls
from ddefuzz.program.plain import ControlFlowInPython
from ddefuzz.program.sizes import MARKED

SETTINGS: dict[torch_api.Api, Any] = {
    # A graph that was seen before would be taken from memory or disk, without evaluating its guards.
    torch_api.NO_INDUCTOR_CACHES: True,
    # Whether the machine has vector instructions is tried by compiling a file. No guard depends on it.
    torch_api.VECTOR_ISA: True,
    torch_api.COMPILE_THREADS: 1,
}


@contextmanager
def code_only(code: list[str]) -> Iterator[None]:
    """Let inductor generate its code, and replace the loading of that code by a module that cannot be called.

    Its Python part is added to `code`. The C++ compiler runs when that module is loaded: 9 s per program. Files that
    inductor writes go to a temporary folder that is removed afterwards.
    """
    loading, vectors = torch_api.INDUCTOR_LOADING, torch_api.INDUCTOR_TRIES_VECTORS

    def loaded(graph: Any, wrapper_code: Any) -> Any:
        # What `GraphLowering._compile_to_module_lines` returns, without a file.
        code.append(str(wrapper_code.value))
        graph.cache_key, graph.cache_path, graph.cache_linemap = "", "", []
        return SimpleNamespace(__file__="", call=not_compiled)

    with ExitStack() as stack:
        stack.enter_context(torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)())
        stack.enter_context(torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, SETTINGS))
        stack.enter_context(loading.replaced(loaded))
        stack.enter_context(vectors.replaced(lambda *_: False))
        yield


@contextmanager
def whole(code: list[str]) -> Iterator[None]:
    """Let inductor compile its code without earlier caches. Files stay until the process ends. `code` gets it."""
    loading = torch_api.INDUCTOR_LOADING
    load = torch_api.bound(loading)

    def keep(graph: Any, wrapper_code: Any) -> Any:
        code.append(str(wrapper_code.value))
        return load(graph, wrapper_code)

    with (
        torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, SETTINGS | {torch_api.VECTOR_ISA: None}),
        torch_api.INDUCTOR_TRIES_VECTORS.replaced(_tried_once()),
        loading.replaced(keep),
    ):
        yield


def _tried_once() -> Callable[[Any, str], bool]:
    """What tries a vector instruction set, which takes 1 to 2 CPU seconds each. The workers of one ddefuzz share the
    answers, in files of its temporary folder. Inductor takes the first set that is supported: no other one is tried.
    """
    tried, folder = torch_api.bound(torch_api.INDUCTOR_TRIES_VECTORS), Path(os.environ.get("TMPDIR", ""))
    supported: list[str] = []

    def try_once(kind: Any, code: str) -> bool:
        if PREFIX not in str(folder):
            return bool(tried(kind, code))
        if supported and str(kind) not in supported:
            return False
        answer = folder / f"vectors-{crc32(f'{kind} {code}'.encode())}"
        if not is_there(answer):
            answer.write_text(str(tried(kind, code)))
        is_supported = answer.read_text() == "True"
        supported.extend([str(kind)] if is_supported else [])
        return is_supported

    return try_once


def not_compiled(*_: Any) -> Any:
    """Stands for code that was not compiled."""
    raise NotImplementedError("the inductor stage ends before the C++ compiler")


class Capture(NamedTuple):
    """What a stage captured: the graph, and functions that compute the subject's result on new arguments.

    `compute` uses what was captured, `reference` is eager on the same arguments. `graph_inputs` are the arguments
    of the graph itself, None if they are not known. `captures` counts the captures so far, also those that failed.
    `static_dims` says that only tensors of the example's shapes can be passed, `backward` that the gradient was
    captured too. `module` is the subject itself if it has a state, which eager and what was captured share.
    `lowered` are the forward graphs that AOTAutograd made, each with its arguments in the last call that ran it, None
    before; `gradients` are the backward graphs. `generated` is the code that inductor made of them. `ranges` are those
    of the sizes that an exported program checks, `constants` the values that it has in place of arguments. `inputs` are
    the fake values of the leaves of the arguments in the graph, where marks make dims unbacked. `program` is the
    exported program. `exchanges` says that its graph can get the tensors of all processes (see `processes`).
    """

    graph: GraphModule
    compute: Callable[[PreparedSubject], Any]
    reference: Callable[[PreparedSubject], Any]
    graph_inputs: Callable[[PreparedSubject], tuple[Any, ...] | None]
    captures: Callable[[], int]
    static_dims: bool = False
    backward: bool = False
    module: torch.nn.Module | None = None
    lowered: Callable[[], Mapping[GraphModule, tuple[Any, ...] | None]] = dict
    gradients: Callable[[], dict[GraphModule, tuple[Any, ...] | None]] = dict
    generated: Callable[[], tuple[str, ...]] = tuple
    ranges: Callable[[], tuple[str, ...]] = tuple
    constants: Callable[[], tuple[object, ...]] = tuple
    inputs: Mapping[int, Any] = MappingProxyType({})
    program: ExportedProgram | None = None
    exchanges: bool = False


StageFunction: TypeAlias = Callable[[PreparedSubject], Capture | None]
"""Runs a subject in one stage. Returns what was captured, if anything, and raises whatever torch raises."""


AOT = "aot_eager"  # dynamo's backend that runs the graphs of AOTAutograd as they are
AOT_DECOMPOSED = "aot_eager_decomp_partition"  # its backend that also decomposes and partitions them as inductor does


class CaptureEndedError(BaseException):
    """Raised to end the call of a compiled subject after compilation, because running it is not part of the capture.

    Not an Exception: code that is compiled may catch those.
    """


_NODE_IN_MESSAGE = re.compile(r" on node '[^']*'")
"""The messages of run-time assertions name the node that they check."""


class _Captured(torch.nn.Module):
    """The subject as a module that makes the chosen dims unbacked inside the graph.

    The last positional arguments are the masks, all True, one for each symbol of `unbacked` in order of first use.
    """

    def __init__(self, call: Callable[..., Any], unbacked: tuple[UnbackedDim, ...], clone_scalars: bool) -> None:
        super().__init__()
        if isinstance(call, FunctionType):
            torch_api.bound(torch_api.TRACE_ANCHOR)(call)
        self.call = call
        self.unbacked = unbacked
        self.symbols = symbols_of(unbacked)
        self.clone_scalars = clone_scalars

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        count = len(args) - len(self.symbols)
        given, masks = args[:count], args[count:]
        if self.unbacked:
            indices = {symbol: _kept(symbol, mask) for symbol, mask in zip(self.symbols, masks, strict=True)}

            def shortened(at: int, leaf: Any) -> Any:
                for place in self.unbacked:
                    if place.leaf == at:
                        leaf = leaf.index_select(place.dim, indices[place.symbol])
                        if leaf.requires_grad:
                            leaf.retain_grad()  # a program may read its input's gradient
                return leaf

            given, kwargs = with_leaves(given, kwargs, shortened)
        if self.clone_scalars:
            # torch.compile reads the value of a 0-d input and would make its .item() a backed integer.
            given = tuple(v.clone() if isinstance(v, torch.Tensor) and v.dim() == 0 else v for v in given)
        return self.call(*given, **kwargs)


WRAPPED: Any = _Captured.forward
"""The function that dynamo compiles for a program."""


def _kept(symbol: str, mask: torch.Tensor) -> torch.Tensor:
    """The positions that a mask keeps: as many as an unbacked size. The recorder reads `symbol` in this frame."""
    return mask.nonzero().squeeze(1)


def eager(prepared: PreparedSubject) -> None:
    """Run the subject on its real arguments."""
    with ControlFlowInPython():
        prepared.call(*prepared.args, **prepared.kwargs)


def fake(prepared: PreparedSubject) -> None:
    """Propagate shapes in one FakeTensorMode, with the kernels that a capture would use."""
    env = torch_api.bound(torch_api.SHAPE_ENV)()
    mode = torch_api.bound(torch_api.FAKE_MODE)(shape_env=env, allow_non_fake_inputs=True)
    mode.allow_scalar_outputs = True

    def faked(at: int, leaf: Any) -> Any:
        return _fake_input(mode, leaf, at, prepared) if isinstance(leaf, torch.Tensor) else leaf

    args, kwargs = with_leaves(prepared.args, prepared.kwargs, faked)
    with mode, torch_api.bound(torch_api.PYTHON_DISPATCHER)():
        prepared.call(*args, **kwargs)


class ExportArguments(NamedTuple):
    """The arguments of `torch.export.export`."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any


def as_exported(prepared: PreparedSubject, *, masked: bool = True) -> ExportArguments:
    """The module that a stage exports: the user's own module without a wrapper, unless masks make dims unbacked.

    torch.export takes modules only, so a function is wrapped in one.
    """
    call, masks = prepared.call, _masks(prepared) if masked else ()
    kwargs, shapes = dict(prepared.kwargs), prepared.dynamic_shapes
    if isinstance(call, torch.nn.Module) and not masks:
        return ExportArguments(call, prepared.args, kwargs, shapes)
    module = _Captured(call, prepared.unbacked if masked else (), clone_scalars=False)
    return ExportArguments(module, (*prepared.args, *masks), kwargs, shapes_around(prepared, len(masks)))


def export(prepared: PreparedSubject) -> Capture:
    """`torch.export.export`, non-strict. It ignores marks on tensors, so masks make dims unbacked."""
    return _exported(prepared, strict=False, masked=True)


def export_strict(prepared: PreparedSubject) -> Capture:
    """`torch.export.export(strict=True)`: dynamo traces the user's code.

    `dynamic_shapes` clears the marks of tensors, so masks make dims unbacked there too.
    """
    masked = prepared.dynamic_shapes is not None
    if not masked:
        mark(prepared)
    return _exported(prepared, strict=True, masked=masked)


def _exported(prepared: PreparedSubject, *, strict: bool, masked: bool) -> Capture:
    how = as_exported(prepared, masked=masked)
    program = torch.export.export(how.module, how.args, how.kwargs, dynamic_shapes=how.dynamic_shapes, strict=strict)
    return capture_of(prepared, how.module, program, masked=masked)


def capture_of(
    prepared: PreparedSubject,
    module: torch.nn.Module,
    program: ExportedProgram,
    runnable: Callable[..., Any] | None = None,
    *,
    masked: bool = True,
) -> Capture:
    """What an exported program captured of a module. `runnable` is what is called, by default its own module."""
    # Made when it is first called: what fails there is no failure to capture.
    made, flat_inputs = lru_cache(program.module), torch_api.bound(torch_api.FLAT_INPUTS)

    def arguments(fresh: PreparedSubject) -> tuple[Any, ...]:
        return (*fresh.args, *(_masks(fresh) if masked else ()))

    def graph_inputs(fresh: PreparedSubject) -> tuple[Any, ...]:
        # Also of arguments that the captured program refuses: the graph tells why.
        check = torch_api.CHECK_INPUTS
        with check.replaced(lambda *_: None):
            inputs: tuple[Any, ...] = flat_inputs(program, arguments(fresh), dict(fresh.kwargs))
        return inputs

    return Capture(
        program.graph_module,
        lambda fresh: (runnable or made())(*arguments(fresh), **fresh.kwargs),
        lambda fresh: module(*arguments(fresh), **fresh.kwargs),
        graph_inputs,
        lambda: 1,
        static_dims=masked,
        module=_module(prepared),
        ranges=lambda: tuple(f"{symbol} {bounds}" for symbol, bounds in program.range_constraints.items()),
        constants=lambda: tuple(program.constants.values()),
        inputs={} if masked else dict(enumerate(_exported_inputs(program))),
        program=program,
    )


def _exported_inputs(program: ExportedProgram) -> Iterator[Any]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return (values.get(str(name)) for name in program.graph_signature.user_inputs)


def compiled(backend: str, *, again: bool = True) -> StageFunction:
    """The stage that runs `torch.compile(fullgraph=True)` with one of dynamo's own backends.

    It ends when the backend is done. A run-time assertion that fails afterwards is not a failure to capture. Without
    `again`, a call for which dynamo captures once more ends there.
    """

    def stage(prepared: PreparedSubject) -> Capture | None:
        graphs: list[GraphModule] = []
        lowered: dict[GraphModule, tuple[Any, ...] | None] = {}
        gradients: dict[GraphModule, tuple[Any, ...] | None] = {}
        called: list[tuple[Any, ...]] = []
        leaves, faked = leaves_of(prepared), dict[int, Any]()
        capturing = True
        compile_graph = _backend(backend, lowered, gradients)

        def capture(graph: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
            graphs.append(graph)
            if not (capturing or again):
                raise CaptureEndedError
            if capturing:
                nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
                values = {id(real): node.meta.get("example_value") for node, real in zip(nodes, inputs, strict=False)}
                faked.update({at: values[id(leaf)] for at, leaf in enumerate(leaves) if id(leaf) in values})
            compute = compile_graph(graph, inputs)

            def run(*args: Any) -> Any:
                if capturing:
                    raise CaptureEndedError
                called.append(args)
                return call_graph(graph, args) if backend == "eager" else compute(*args)

            return run

        module = torch.compile(as_compiled(prepared), backend=capture, fullgraph=True)
        mark(prepared)
        with suppress(CaptureEndedError):
            module(*prepared.args, **prepared.kwargs)
        capturing = False

        def compute(fresh: PreparedSubject) -> Any:
            mark(fresh)
            return module(*fresh.args, **fresh.kwargs)

        def graph_inputs(fresh: PreparedSubject) -> tuple[Any, ...] | None:
            called.clear()
            with suppress(Exception):  # the arguments are noted before anything can fail
                compute(fresh)
            return called[-1] if called else None

        if not graphs:
            return None
        return Capture(
            graphs[0],
            compute,
            lambda fresh: prepared.call(*fresh.args, **fresh.kwargs),
            graph_inputs,
            lambda: int(torch_api.DYNAMO_FRAMES.get()),
            backward=backend != "eager",
            module=_module(prepared),
            lowered=lambda: lowered,
            gradients=lambda: gradients,
            inputs=faked,
            exchanges=backend == "eager",
        )

    return stage


def as_compiled(prepared: PreparedSubject) -> Callable[..., Any]:
    """The callable for torch.compile: the user's own without a wrapper, if dynamo accepts it."""
    own = isinstance(prepared.call, torch.nn.Module | FunctionType | MethodType)
    if own and not prepared.numbers_unbacked:
        return prepared.call
    return _Captured(prepared.call, (), clone_scalars=prepared.numbers_unbacked)


def _backend(name: str, *kept: dict[GraphModule, tuple[Any, ...] | None]) -> Callable[..., Any]:
    """One of dynamo's backends, which keeps the forward and the backward graphs that AOTAutograd makes, with their
    arguments.
    """
    backend: Callable[..., Any] = torch_api.bound(torch_api.LOOKUP_BACKEND)(name)
    if name != AOT:
        return backend

    def keep(
        graphs: dict[GraphModule, tuple[Any, ...] | None], graph: GraphModule, inputs: list[torch.Tensor]
    ) -> Callable[..., Any]:
        graphs[graph] = None
        run: Callable[..., Any] = torch_api.bound(torch_api.RUN_AS_IT_IS)(graph, inputs)

        @wraps(run)
        def noted(args: list[Any]) -> Any:
            graphs[graph] = tuple(args)
            return run(args)

        return noted

    forward, backward = (partial(keep, graphs) for graphs in kept)
    return partial(backend, fw_compiler=forward, bw_compiler=backward)


def inductor(prepared: PreparedSubject) -> Capture | None:
    """`torch.compile` with inductor, until it has generated its code. The C++ compiler (9 s per program) never
    runs.

    By then inductor has evaluated all its guards. Its caches are off, so that no case hides a guard of the next
    one. It leaves no file behind.
    """
    code: list[str] = []
    with code_only(code):
        captured = compiled("inductor")(prepared)
    return None if captured is None else captured._replace(compute=not_compiled, generated=lambda: tuple(code))


def inductor_to_call(prepared: PreparedSubject, *, again: bool = True) -> Capture | None:
    """`torch.compile` with inductor and its C++ compiler, for a captured program that is called."""
    code: list[str] = []
    with whole(code):
        captured = compiled("inductor", again=again)(prepared)
    return None if captured is None else captured._replace(generated=lambda: tuple(code))


STAGE_FUNCTIONS: MappingProxyType[Stage, StageFunction] = MappingProxyType(
    {
        "eager": eager,
        "fake": fake,
        "export": export,
        "export-strict": export_strict,
        "compile": compiled("eager"),
        "aot": compiled(AOT),
        "inductor": inductor,
    }
)


def stage_function(stage: Stage, *, called: bool) -> StageFunction:
    """The stage's function; `called` says that what is captured will be called. Raises InputError for another stage."""
    if stage not in STAGE_FUNCTIONS:
        raise InputError(f"found the stage {stage!r}, expected one of {', '.join((*STAGE_FUNCTIONS, *RETRACES))}")
    return inductor_to_call if called and stage == "inductor" else STAGE_FUNCTIONS[stage]


def unfit(stage: Stage, prepared: PreparedSubject) -> str:
    """Why a stage cannot make the dims of the arguments unbacked; empty if it can."""
    if stage == "eager" or (stage in MARKED - {SCREEN} and prepared.dynamic_shapes is None):
        return ""
    leaves = leaves_of(prepared) if prepared.unbacked else []
    if not any(is_distributed(leaves[place.leaf]) for place in prepared.unbacked):
        return ""
    return "only mark_unbacked makes sizes of a DTensor unbacked: export-strict, compile, aot, inductor"


def _fake_input(mode: Any, tensor: torch.Tensor, position: int, prepared: PreparedSubject) -> torch.Tensor:
    unbacked = {place.dim: place.symbol for place in prepared.unbacked if place.leaf == position}
    backed = {place.dim for place in prepared.backed if place.leaf == position}
    if not (unbacked or backed):
        static: torch.Tensor = mode.from_tensor(tensor, static_shapes=True)
        return static
    kinds = dict.fromkeys(range(tensor.dim()), torch_api.DIM_STATIC.get())
    kinds |= dict.fromkeys(backed, torch_api.DIM_DYNAMIC.get()) | dict.fromkeys(unbacked, torch_api.DIM_UNBACKED.get())
    context = torch_api.bound(torch_api.SYMBOLIC_CONTEXT)(dynamic_sizes=list(kinds.values()), shape_ids=unbacked)
    source = torch_api.bound(torch_api.CONSTANT_SOURCE)(f"input{position}")
    made: torch.Tensor = mode.from_tensor(tensor, symbolic_context=context, source=source)
    return made


def _masks(prepared: PreparedSubject) -> tuple[torch.Tensor, ...]:
    """A mask for each symbol, as long as the first dim that has it: all True, or as many as `kept` says."""
    first = {place.symbol: place for place in reversed(prepared.unbacked)}
    leaves = leaves_of(prepared) if first else []
    lengths = {symbol: leaves[place.leaf].shape[place.dim] for symbol, place in first.items()}
    return tuple(
        torch.arange(lengths[symbol]) < prepared.kept.get(symbol, lengths[symbol])
        for symbol in symbols_of(prepared.unbacked)
    )


def _module(prepared: PreparedSubject) -> torch.nn.Module | None:
    return prepared.call if isinstance(prepared.call, torch.nn.Module) else None


def mark(prepared: PreparedSubject) -> None:
    """Mark the dims of the arguments for dynamo: unbacked, or dynamic and backed."""
    mark_unbacked = torch_api.bound(torch_api.MARK_UNBACKED)
    mark_backed = torch_api.bound(torch_api.MARK_BACKED)
    leaves = leaves_of(prepared) if prepared.backed or prepared.unbacked else []
    for place in prepared.backed:
        mark_backed(leaves[place.leaf], place.dim)
    uses = Counter(place.symbol for place in prepared.unbacked)
    for place in prepared.unbacked:
        shared = place.symbol if uses[place.symbol] > 1 else None
        for given in mark_calls(prepared.marks.get(place.symbol, {})):
            arguments: dict[str, Any] = dict(given)
            if "strict" in given:
                arguments["strict"] = True
            if "specialize_on" in given:
                arguments["specialize_on"] = [_is_size(given["specialize_on"])]
            mark_unbacked(leaves[place.leaf], place.dim, shape_id=shared, **arguments)


def _is_size(number: int) -> Callable[[Any], Any]:
    return lambda size: size == number  # torch reads the source of it


def graph_text(graph: GraphModule) -> str:
    """The graph as code in which names are positions. Equal for two traces that do the same."""
    names: dict[Node, str] = {}
    lines = []
    for node in graph.graph.nodes:
        names[node] = f"v{len(names)}"
        shown = [_shown(arg, names) for arg in node.args]
        shown += [f"{name}={_shown(arg, names)}" for name, arg in node.kwargs.items()]
        target = "" if node.op in {"placeholder", "output"} else _target(node.target)
        lines.append(f"{names[node]} = {node.op} {target}({', '.join(shown)})")
    for name, child in graph.named_children():
        if isinstance(child, GraphModule):
            lines += [f"{name}:", *(f"    {line}" for line in graph_text(child).splitlines())]
    return "\n".join(lines)


def _shown(argument: object, names: Mapping[Node, str]) -> str:
    match argument:
        case Node():
            return names[argument]
        case list() | tuple():
            return f"[{', '.join(_shown(item, names) for item in argument)}]"
        case dict():
            return f"{{{', '.join(f'{key}: {_shown(item, names)}' for key, item in argument.items())}}}"
        case slice():
            return ":".join(_shown(bound, names) for bound in (argument.start, argument.stop, argument.step))
        case str():
            return repr(_NODE_IN_MESSAGE.sub("", argument))
        case _:
            return repr(argument)


def _target(target: object) -> str:
    if isinstance(target, str) or hasattr(target, "overloadpacket"):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
