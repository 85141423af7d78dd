"""A plain script that does what `ddefuzz check` does in torch: the same captures in one process, without ddefuzz.

It is run as a file by a fresh interpreter. It reads FILE, NAME and stages from its arguments, and prints a JSON object
with the outcome of each capture. stderr has a line for each capture as soon as it is done.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import torch


def make(user: Any, name: str) -> tuple[Any, tuple[Any, ...]]:
    """The callable and its arguments: NAME is a factory, or a callable with NAME_args."""
    target, args = getattr(user, name), getattr(user, f"{name}_args", None)
    if args is None:
        call, made = target()[:2]
        return call, made
    return target() if isinstance(target, type) else target, args() if callable(args) else args


class CalledFunction(torch.nn.Module):
    """A function as a module, for torch.export."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        """Call it."""
        return self.call(*args)


def capture(stage: str, call: Any, args: tuple[Any, ...]) -> None:
    """One capture as a user would write it."""
    if stage in ("export", "export-strict"):
        module = call if isinstance(call, torch.nn.Module) else CalledFunction(call)
        torch.export.export(module, args, strict=stage == "export-strict")
    elif stage == "compile":
        torch.compile(call, backend="eager", fullgraph=True)(*args)  # type: ignore[no-untyped-call]


def main() -> None:
    """Do the captures."""
    file, name, *stages = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    spec = spec_from_file_location("plain_subject", file)
    assert spec is not None and spec.loader is not None
    user = sys.modules["plain_subject"] = module_from_spec(spec)
    spec.loader.exec_module(user)
    done = {}
    for stage in stages:
        torch.manual_seed(0)
        torch.compiler.reset()
        try:
            capture(stage, *make(user, name))
            done[stage] = "ok"
        except Exception as error:  # noqa: BLE001 that it fails is the result
            done[stage] = f"fail: {type(error).__name__}"
        print(stage, done[stage], file=sys.stderr, flush=True)  # noqa: T201 a script
    print(json.dumps(done))  # noqa: T201 a script


if __name__ == "__main__":
    main()
