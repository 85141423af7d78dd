"""The checks of `ddefuzz doctor` that run programs: what observations rely on in workers, and reference programs with
known failures, which are captured and classified.

A new torch may move its plumbing, so that a frame which only passes a decision on is blamed. There is one program
for each kind of site, so `doctor` reports such a change by name. The expected sites were read in torch's source.
Where versions differ, the table says so.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import NamedTuple

from ddefuzz.classify.failure import Kind
from ddefuzz.classify.signature import Cause
from ddefuzz.execute.pool import LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import EXPLICIT, Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.execute.worker import observe_run
from ddefuzz.instrument.torch_api import Check
from ddefuzz.oracles.capture import classify, judge

CHUNK = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return torch.chunk(x, 2)
"""

SYMBOLIZED = (
    ("at::native::chunk", "return torch.chunk(x, 2)"),
    ("at::native::diff_helper", "return torch.diff(x, dim=0)"),
    ("at::native::(anonymous namespace)::resize_fft_input", "return torch.fft.rfft(x, n=3, dim=0)"),
)
"""C++ functions that must be named correctly (exported, static, anonymous), and a program that reaches each."""

FALLING_BACK = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return x.view(-1, 2)
"""


def crash(_: str) -> str:
    """A task that reads address 0."""
    return str(ctypes.string_at(0))


def hang(_: str) -> str:
    """A task that never ends."""
    while True:
        time.sleep(1)


def _symbolizer(pool: Pool) -> Iterator[Check]:
    for name, line in SYMBOLIZED:
        seen = pool.observe(Run(ProgramSubject(CHUNK.replace("return torch.chunk(x, 2)", line)), "export"), _SECONDS)
        native = seen.raised.native if seen.raised is not None else ()
        is_named = any(frame.function.startswith(f"{name}(") for frame in native)
        yield Check(f"symbolizer names {name}", is_named, "named" if is_named else _told(seen))


def _planted(pool: Pool) -> Iterator[Check]:
    stages: tuple[Stage, ...] = ("export", "export-strict", "compile")
    for stage in stages:
        seen = pool.observe_cold(Run(ProgramSubject(CHUNK), stage), _SECONDS)
        ok = seen.raised is not None and seen.raised.place.language == "C++"
        yield Check(f"a data-dependent error is seen in {stage}, in a cold process", ok, _told(seen))
    watched = pool.observe(Run(ProgramSubject(FALLING_BACK), "export"), _SECONDS)
    if not watched.guards:
        yield Check("a guard that falls back is seen", False, _told(watched))
        return
    place = watched.guards[0].place
    planted = Semantics(EXPLICIT.mechanism, (place,))
    for stage in stages:
        seen = pool.observe(Run(ProgramSubject(FALLING_BACK), stage, planted), _SECONDS)
        ok = seen.raised is not None and seen.raised.withheld and seen.raised.place == place
        yield Check(f"a fault planted at {place.file}:{place.line} is blamed in {stage}", ok, _told(seen))


def _faults(pool: Pool) -> Iterator[Check]:
    died = pool.submit(crash, "", _SECONDS).result()
    yield Check("the crash of a worker is detected", isinstance(died, LostTask) and died.outcome == "crash", str(died))
    hung = pool.submit(hang, "", 1.0).result()
    yield Check("a worker that hangs is stopped", isinstance(hung, LostTask) and hung.outcome == "timeout", str(hung))


def _told(seen: Observation) -> str:
    if seen.raised is not None:
        return f"{seen.raised.expression} evaluated at {seen.raised.place.file}:{seen.raised.place.line}"
    if seen.exceptions:
        return f"{seen.exceptions[0].name}: {seen.exceptions[0].message.splitlines()[0]}"
    return f"{seen.outcome} {seen.reason}".strip()


_SECONDS = 60.0


class Reference(NamedTuple):
    """One program, with the kind, site and cause of its failure.

    `name` says what the program stands for. `inputs` are written as in the text form; ` grad` at the end of one
    requires a gradient. `moved` has the sites in newer versions, each with its first version, oldest first.
    torch captures the program since the version `passes_since`.
    """

    name: str
    stage: Stage
    inputs: str
    call: str
    site: str
    cause: Cause
    kind: Kind = "dde"
    moved: tuple[tuple[str, str], ...] = ()
    passes_since: str = ""

    @property
    def text(self) -> str:
        """The program in the text form."""
        parts = [part.split(": ", 1) for part in self.inputs.split("; ")]
        values = "; ".join(f"{name} = {_values(shape)}" for name, shape in parts)
        signature = ", ".join(f"{name}: {shape.removesuffix(' grad')}" for name, shape in parts)
        return f"# ddefuzz program v1\n# inputs: {values}\ndef program({signature}):\n    return {self.call}\n"

    def expected(self, torch: str) -> str:
        """The expected result under a version of torch."""
        if self.passes_since and _version(torch) >= _version(self.passes_since):
            return PASSES
        sites = [self.site, *(site for since, site in self.moved if _version(torch) >= _version(since))]
        return _described(self.kind, sites[-1], self.cause)


PASSES = "ok"


def _described(kind: Kind, site: str, cause: Cause) -> str:
    return f"{kind} at {site}, cause {cause}"


def _values(shape: str) -> str:
    recipe = "ones" if shape.startswith("Int64") else "normal"
    return f"{recipe}, grad" if shape.endswith(" grad") else recipe


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+", maxsplit=1)[0].split(".")[:2])


SCALAR = 'x: Float32[Tensor, ""]'
VECTOR = 'x: Float32[Tensor, "u0"]'
MATRIX = 'x: Float32[Tensor, "2 u0"]'
IMAGES = 'x: Float32[Tensor, "2 u0 2"]'
INDEX = 'n: Int64[Tensor, ""]'

# fmt: off
REFERENCES: tuple[Reference, ...] = (
    Reference("a static C++ function", "export", VECTOR, "torch.diff(x)", "at::native::diff_helper", "avoidable"),
    Reference("C++ below autograd", "aot", VECTOR + " grad", "torch.diff(x)", "at::native::diff_helper", "avoidable"),
    Reference("a C++ function of an anonymous namespace", "export", VECTOR, "torch.fft.rfft(x, 3)",
              "at::native::(anonymous namespace)::resize_fft_input", "avoidable"),
    Reference("C++ called by Python that dynamo runs", "export-strict", VECTOR, "torch.tensor_split(x, 2)",
              "at::native::tensor_split_sections_symint", "avoidable"),
    Reference("C++ in torch.compile", "compile", VECTOR, "torch.trapz(x)", "at::native::trapezoid", "avoidable"),
    Reference("C++ called by a Python function of torch", "compile", MATRIX, "torch.cdist(x, x)",
              "at::native::cdist", "avoidable"),
    Reference("C++ that quotes the error in its own", "export", VECTOR, "torch.unflatten(x, 0, (x.shape[0], -1))",
              "at::infer_size_impl", "avoidable"),
    Reference("a structured meta function", "export", VECTOR, "torch.hash_tensor(x)",
              "at::meta::structured_hash_tensor::meta", "avoidable"),
    Reference("a memory format", "compile", 'x: Float32[Tensor, "2 2 2 u0"]',
              "x.to(memory_format=torch.channels_last)",
              "c10::is_channels_last_strides_2d_s4", "avoidable"),
    Reference("C++ of a batched tensor", "export", MATRIX, "torch.vmap(torch.cat)((x,))",
              "at::native::cat_should_skip_tensor", "avoidable"),
    Reference("C++ in a backward pass", "aot", VECTOR + " grad", "torch.cumprod(x, 0)",
              "at::native::cumprod_backward", "avoidable"),
    Reference("a backward formula", "aot", MATRIX + " grad", "torch.trace(x)",
              "at::native::trace_backward_symint", "avoidable"),
    Reference("generated C++ of autograd", "aot", VECTOR + " grad", "torch.sgn(x)",
              "torch::autograd::generated::details::sgn_backward", "int-required"),
    Reference("C++ that reads sizes as ints", "export", VECTOR, "torch.kron(x, x)",
              "at::native::(anonymous namespace)::KronImpl::KronImpl", "int-required"),
    Reference("C++ that reads sizes as ints, in aot", "aot", VECTOR, "torch.vander(x)",
              "at::native::vander", "int-required"),
    Reference("an out= kernel", "export", VECTOR + '; y: Float32[Tensor, ""]', "torch.special.ndtr(x, out=y)",
              "at::native::special_ndtr_out", "int-required"),
    Reference("C++ that needs an op's Python value", "export", 'x: Float32[Tensor, "3"]; n: Int64[Tensor, "3"]',
              "torch.cov(x, fweights=n)", "at::native::cov", "avoidable", kind="data-dependent-output"),
    Reference("an int in a schema", "export", VECTOR, "torch.linspace(0.0, 1.0, x.shape[0])",
              "aten::linspace", "int-required"),
    Reference("an int in a schema, in torch.compile", "compile", VECTOR, "torch.hann_window(x.shape[0])",
              "aten::hann_window", "int-required"),
    Reference("a float in a schema", "export", SCALAR, "x.normal_(x)", "aten::normal_", "int-required"),
    Reference("Python of torch that needs an int", "export", INDEX, "torch.nn.functional.one_hot(n)",
              "torch/_decomp/decompositions.py:one_hot", "int-required"),
    Reference("a Python function of torch that calls C++ with ints", "export", IMAGES,
              "torch.nn.functional.adaptive_max_pool2d(x, (None, 0))",
              "aten::adaptive_max_pool2d", "int-required"),
    Reference("a Python decomposition", "export", VECTOR, "torch.roll(x, 1, 0)",
              "torch/_refs/__init__.py:roll", "avoidable"),
    Reference("a Python decomposition, on fake tensors", "fake", VECTOR, "torch.roll(x, 1, 0)",
              "torch/_refs/__init__.py:roll", "avoidable"),
    Reference("a Python decomposition, in strict export", "export-strict", VECTOR, "torch.roll(x, 1, 0)",
              "torch/_refs/__init__.py:roll", "avoidable"),
    Reference("a Python decomposition, in torch.compile", "compile", VECTOR, "torch.roll(x, 1, 0)",
              "torch/_refs/__init__.py:roll", "avoidable"),
    Reference("a library function that dynamo inlines", "compile",
              'x: Float32[Tensor, "u0 6"]; y: Float32[Tensor, "6"]',
              "torch.nn.functional.batch_norm(x, y, y, training=True)",
              "torch/nn/functional.py:_verify_batch_size", "avoidable"),
    Reference("a decomposition under decorators", "export",
              VECTOR + '; y: Float32[Tensor, "u0 3"]; z: Float32[Tensor, "3"]',
              "torch.addmv(x, y, z)", "torch/_decomp/decompositions.py:_addmv_impl", "avoidable"),
    Reference("structure of the result, in C++", "export", VECTOR, "torch.chunk(x, 2)",
              "at::native::chunk", "result-depends-on-data"),
    Reference("structure of the result, in Python", "export-strict", VECTOR, "torch.split(x, 2)",
              "torch/_decomp/decompositions.py:split", "result-depends-on-data"),
    Reference("rank of the result, in a meta function", "export",
              'x: Float32[Tensor, "2 u0 u0"]; y: Float32[Tensor, "2 6"]',
              "torch.linalg.solve(x, y)",
              "torch/_meta_registrations.py:linalg_solve_is_vector_rhs", "result-depends-on-data"),
    Reference("a Python value of data", "export", SCALAR, "torch.equal(x, x)",
              "aten::equal", "python-value", kind="data-dependent-output"),
    Reference("a Python value of data, in torch.compile", "compile", SCALAR, "torch.equal(x, x)",
              "aten::equal", "python-value", kind="data-dependent-output"),
    Reference("a Python bool of strides", "export", 'x: Float32[Tensor, "2 u0 2 2"]',
              "x.is_contiguous(memory_format=torch.channels_last)", "aten::is_contiguous", "python-value"),
    Reference("an op without a fake kernel", "export", MATRIX, "torch.geqrf(x)",
              "aten::geqrf", "no-kernel", kind="data-dependent-output"),
    Reference("an op without a fake kernel, in torch.compile", "compile", MATRIX, "torch.geqrf(x)",
              "aten::geqrf", "no-kernel", kind="data-dependent-output"),
    Reference("an op without an unbacked output", "export", SCALAR + "; " + INDEX, "torch.nonzero(x, out=n)",
              "aten::nonzero", "no-kernel", kind="data-dependent-output"),
    Reference("not traced by dynamo", "compile", SCALAR + " grad", "x.backward()",
              "Tensor.backward", "refused", kind="unsupported"),
    Reference("not traced by dynamo, in strict export", "export-strict", INDEX, "torch.nn.functional.one_hot(n)",
              "torch.nn.functional.one_hot", "refused", kind="unsupported"),
    Reference("an unbacked size in no output", "compile", 'x: Float32[Tensor, "2"]', "torch.combinations(x)",
              "torch.combinations", "unclassified",
              kind="pending-unbacked", passes_since="2.14"),
    Reference("inductor", "inductor", VECTOR, "torch.stft(x, n_fft=1, hop_length=1, return_complex=False)",
              "torch/_inductor/sizevars.py:guarding_hint_or_throw", "int-required"),
    Reference("the user's branch", "export", VECTOR, "x + 1 if x.shape[0] > 3 else x", "user code", "user"),
    Reference("the user's branch, in torch.compile", "compile", VECTOR, "x + 1 if x.shape[0] > 3 else x",
              "user code", "user"),
)
# fmt: on


def checks(pool: Pool) -> Iterator[Check]:
    """The checks of workers, then each program captured, classified, and compared with what is expected."""
    yield from _symbolizer(pool)
    yield from _planted(pool)
    yield from _faults(pool)
    torch = version("torch")
    sent = [
        (row, run, pool.submit(observe_run, run, _SECONDS))
        for row in REFERENCES
        for run in [Run(ProgramSubject(row.text), row.stage)]
    ]
    for row, run, future in sent:
        result = future.result()
        yield compared(row, lost_observation(run, result) if isinstance(result, LostTask) else result, torch)


def compared(row: Reference, observation: Observation, torch: str) -> Check:
    """The check that compares what is known of a program with an observation of it."""
    name = f"reference program, {row.name}: {row.call} in {row.stage}"
    expected, seen = row.expected(torch), _seen(observation)
    return Check(name, seen == expected, seen if seen == expected else f"expected {expected}; seen {seen}")


def _seen(observation: Observation) -> str:
    failures = judge([observation])
    if not failures:
        return f"{observation.outcome} {observation.reason}".rstrip()
    classified = classify(failures[0])
    return _described(classified.signature.kind, str(classified.signature.site), classified.cause)
