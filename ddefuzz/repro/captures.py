"""How each stage captures a program in a stand-alone script: alone, and to call what it captured."""

from __future__ import annotations

from typing import Final, NamedTuple

from ddefuzz.execute.protocol import Stage

_EXPORT: Final = """
def capture():
    from torch.export import export

    export(Captured(), $inputs, strict=False)
"""

_EXPORT_STRICT: Final = """
def capture():
    from torch._dynamo import config
    from torch.export import export

    config.verbose = True  # keeps the frames of causes
    config.fake_tensor_cache_enabled = False  # evaluates guards that the cache may hide
    export(Captured(), $inputs, strict=True)
"""

_COMPILE: Final = """
def capture():
    from torch._dynamo import config

    config.verbose = True  # keeps the frames of causes
    config.fake_tensor_cache_enabled = False  # evaluates guards that the cache may hide
    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    torch.compile(Captured(), backend="$backend", fullgraph=True)(*$inputs)
"""


def _of_inductor(capture: str) -> str:
    cold = "    torch._inductor.config.force_disable_caches = True  # a kept file may pass what fails cold\n"
    settings = "    config.capture_scalar_outputs"
    return capture.replace("$backend", "inductor").replace(settings, f"{cold}{settings}")


_FAKE: Final = """
def capture():
    from torch._dispatch.python import enable_python_dispatcher
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    unbacked = getattr(DimDynamic, "UNBACKED", None) or DimDynamic.SIZE_LIKE_UNBACKED
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    inputs = []
    for number, tensor in enumerate($inputs):
        marked = getattr(tensor, "_dynamo_unbacked_indices", ())
        dims = [unbacked if dim in marked else DimDynamic.STATIC for dim in range(tensor.dim())]
        context = StatelessSymbolicContext(dynamic_sizes=dims)
        source = ConstantSource(f"input{number}")
        inputs.append(mode.from_tensor(tensor, symbolic_context=context, source=source))
    with mode, enable_python_dispatcher():
        Captured()(*inputs)
"""

_EAGER: Final = """
def capture():
    Captured()(*$inputs)
"""

_EXPORTED: Final = """
def capture():
    $imports

    program = export(Captured(), $inputs, strict=False)
"""

_IMPORT: Final = "from torch.export import export"


class _After(NamedTuple):
    """How a stage goes on with `program` in a script, and what is then called."""

    statements: tuple[str, ...]
    called: str = "program.module()"
    imports: tuple[str, ...] = (_IMPORT,)


AFTER_EXPORT: Final[dict[Stage, _After]] = {
    "decompose": _After(("program = program.run_decompositions()",)),
    "reexport": _After(("program = export(program.module(), $inputs, strict=False)",)),
    "saved": _After(
        ("file = io.BytesIO()", "save(program, file)", "file.seek(0)", "program = load(file)"),
        imports=("import io", "", "from torch.export import export, load, save"),
    ),
    "unflatten": _After(("program = unflatten(program)",), "program", (f"{_IMPORT}, unflatten",)),
    "aoti": _After(
        (
            'path = os.path.join(tempfile.mkdtemp(), "program.pt2")',
            "aoti_compile_and_package(program, package_path=path)",
            "program = aoti_load_package(path)",
        ),
        "program",
        (
            "import os",
            "import tempfile",
            "",
            "from torch._inductor import aoti_compile_and_package, aoti_load_package",
            _IMPORT,
        ),
    ),
}
"""The stages that go on with the program of `torch.export.export`."""


def _after_export(row: _After, *, called: bool) -> str:
    lines = [*row.statements, *([f"return {row.called}, lambda: 1"] if called else [])]
    return _EXPORTED.replace("$imports", "\n    ".join(row.imports)) + "".join(f"    {line}\n" for line in lines)


def _with_cpp_wrapper(capture: str) -> str:
    settings = "    config.capture_scalar_outputs"
    return capture.replace(settings, f"    torch._inductor.config.cpp_wrapper = True\n{settings}")


CAPTURES: Final[dict[str, str]] = {
    "eager": _EAGER,
    "fake": _FAKE,
    "export": _EXPORT,
    "export-strict": _EXPORT_STRICT,
    "compile": _COMPILE.replace("$backend", "eager"),
    "aot": _COMPILE.replace("$backend", "aot_eager"),
    "aot-decomposed": _COMPILE.replace("$backend", "aot_eager_decomp_partition"),
    "inductor": _of_inductor(_COMPILE),
    **{stage: _after_export(row, called=False) for stage, row in AFTER_EXPORT.items()},
    "cpp-wrapper": _with_cpp_wrapper(_of_inductor(_COMPILE)),
}
"""How each stage captures the program."""

_EXPORT_TO_CALL: Final = """
def capture():
    from torch.export import export

    program = export(Captured(), $inputs, strict=$strict)
    return program.module(), lambda: 1
"""

_COMPILE_TO_CALL: Final = """
def capture():
    from torch._dynamo import config
    from torch._dynamo.backends.registry import lookup_backend

    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    captured = []

    def backend(graph, inputs):
        compiled = lookup_backend("$backend")(graph, inputs)
        captured.append(graph)
        return compiled

    compiled = torch.compile(Captured(), backend=backend, fullgraph=True)
    try:
        compiled(*$inputs)
    except Exception:
        if not captured:  # else the captured program raises, as the call shows
            raise
    return compiled, lambda: len(captured)
"""

CALLED: Final[dict[str, str]] = {
    "export": _EXPORT_TO_CALL.replace("$strict", "False"),
    "export-strict": _EXPORT_TO_CALL.replace("$strict", "True"),
    "compile": _COMPILE_TO_CALL.replace("$backend", "eager"),
    "aot": _COMPILE_TO_CALL.replace("$backend", "aot_eager"),
    "aot-decomposed": _COMPILE_TO_CALL.replace("$backend", "aot_eager_decomp_partition"),
    "inductor": _of_inductor(_COMPILE_TO_CALL),
    **{stage: _after_export(row, called=True) for stage, row in AFTER_EXPORT.items()},
    "cpp-wrapper": _with_cpp_wrapper(_of_inductor(_COMPILE_TO_CALL)),
}
"""How each stage captures a program to call it: `capture` returns what was captured, and a count of the captures."""
