"""Results of sweeps made by hand, without torch."""

from __future__ import annotations

from typing import Any

import msgspec

from ddefuzz.classify.signature import Signature, Site
from ddefuzz.sweep.tasks import OpFailure, OpResult, StageResult

CHUNK = Signature("dde", Site("C++", None, "at::native::chunk"), "guard_bool operator==")
ROLL = Signature("dde", Site("Python", "torch/_refs/__init__.py", "roll"), "a.numel() == 0")
NO_KERNEL = Signature("data-dependent-output", Site("Python", "torch/_subclasses/fake_impls.py", "f"), "aten.f")
INTERNAL = Signature("internal-error", Site("Python", "torch/_refs/__init__.py", "g"), "g")

PROGRAM = """# ddefuzz program v1
# inputs: x0 = normal
def program(x0: Float32[Tensor, "u0"]):
    t0 = torch.chunk(x0, 2)
    return t0
"""


def failed(signature: Signature = CHUNK, **more: Any) -> OpFailure:
    plain = OpFailure(
        signature,
        "avoidable",
        "fails",
        "Eq(u0, 0)",
        ("all", "dim x0.0"),
        ("float32",),
        3,
        PROGRAM,
        (StageResult("export", "fail", str(signature)),),
    )
    return msgspec.structs.replace(plain, **more)


def swept(op: str, *failures: OpFailure, **more: Any) -> OpResult:
    plain = OpResult(op, "opinfo", (f"torch.{op}",), samples=2, runs=9, explicit="ok", size_oblivious="ok")
    return msgspec.structs.replace(plain, failures=failures, **more)
