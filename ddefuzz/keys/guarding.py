"""The property that keys add no guard: a key is made of a tensor whose sizes are all unbacked."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import torch

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import display_file
from ddefuzz.instrument.guards import watch
from ddefuzz.keys.definition import code_of, frame_at, raising_line
from ddefuzz.keys.drawn import Tensors
from ddefuzz.keys.violation import KeyFunction, Violation, said, shown_key

_SYMBOL: Final = re.compile(r"\bu\d+")


def symbolic_tensor(sizes: tuple[int, ...], exact: bool, env: Any = None, name: str = "x") -> tuple[torch.Tensor, Any]:
    """A tensor whose sizes are all unbacked, and its ShapeEnv: a FakeTensor, or one on the meta device."""
    env = env or torch_api.bound(torch_api.SHAPE_ENV)()
    mode = torch_api.bound(torch_api.FAKE_MODE)(shape_env=env)
    context = torch_api.bound(torch_api.SYMBOLIC_CONTEXT)(dynamic_sizes=[torch_api.DIM_UNBACKED.get()] * len(sizes))
    source = torch_api.bound(torch_api.CONSTANT_SOURCE)(name)
    made: torch.Tensor = mode.from_tensor(torch.zeros(sizes), symbolic_context=context, source=source)
    return (torch.empty_strided(made.shape, made.stride(), device="meta") if exact else made), env


def _state(env: Any) -> tuple[Any, ...]:
    return len(env.guards), dict(env.replacements), env.num_deferred_runtime_asserts, dict(env.var_to_range)


def guards(function: KeyFunction, tensors: Tensors) -> Violation | None:
    """Make a key, compare it with that of a tensor of other unbacked sizes, as a cache does, and hash it."""
    (one,) = tensors
    exact = one.kind == "meta"
    tensor, env = symbolic_tensor(one.sizes, exact)
    other, _ = symbolic_tensor(one.sizes, exact, env, "y")
    kind = "torch.empty({}, device='meta')" if exact else "FakeTensor({})"
    texts = [kind.format(f"({', '.join(map(str, each.shape))},)") for each in (tensor, other)]
    before = _state(env)
    asked: Frame | None = None
    keys: list[Hashable] = []

    def found(why: str, part: str) -> Violation:
        shown = tuple(map(shown_key, keys))
        return Violation(
            tuple(texts[: max(len(keys), 1)]),
            shown,
            why,
            tensors,
            asked.code if asked else _SYMBOL.sub("u", part),
            asked,
        )

    with watch() as recorder:
        try:
            keys.append(function.key(tensor))
            if _state(env) == before and not recorder.guards():
                keys.append(function.key(other))
                bool(keys[0] == keys[1])
            hash(keys.pop())
        except Exception as error:  # noqa: BLE001 the key function is under test
            asked, raised = raising_line(code_of(function.key), error), recorder.raised([error])
            return found(said(error), type(error).__name__ if raised is None else raised.expression)
        fell_back = recorder.guards()
        added = recorder.constraints(lambda _text, _message: True)
    if fell_back:
        place, code = fell_back[0].place, code_of(function.key)
        if code is not None and place.file == display_file(code.co_filename):
            asked = frame_at(code, place.line)
        return found(f"evaluates {fell_back[0].expression}", fell_back[0].expression)
    if _state(env) == before:
        return None
    return found("adds a guard or a replacement", added[0].text if added else "")
