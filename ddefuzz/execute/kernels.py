"""Find the op, and the Python code of its fake kernel, that says something wrong of the value of a graph's node."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import torch
from torch.fx import Node

from ddefuzz.execute.metas import Unlike, is_one_op, target_of, tensors, unlike
from ddefuzz.execute.protocol import NodeDifference
from ddefuzz.instrument import frames, torch_api


def difference_of(node: Node, arguments: tuple[Any, Any], wrong: Unlike) -> NodeDifference:
    """What is said wrongly of a node's value. `arguments` are real: positional and by name.

    The kernel is that of the first op that the node calls whose fake kernel is wrong with the real sizes, too. If there
    is none, the kernel is wrong with symbols alone: it is that of the only op, else what the node calls.
    """
    ops: list[Any] = []
    wrong_ops: list[tuple[Any, Unlike]] = []

    class OpNotes(torch_api.DISPATCH_MODE.get()):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ops.append(func)
            real = args, kwargs or {}
            fake = None if wrong_ops else _fake_call(func, *real)
            value = func(*real[0], **real[1])
            if fake is not None:
                claim, given = fake
                wrong_ops.extend(
                    (func, one) for one in unlike(claim, value, [*tensors(given, real)], {}, is_one_op(func))
                )
            return value

    with suppress(Exception), OpNotes():
        if node.op == "call_method":
            getattr(arguments[0][0], str(node.target))(*arguments[0][1:], **arguments[1])
        elif callable(node.target):
            node.target(*arguments[0], **arguments[1])
    op, (what, how) = wrong_ops[0] if wrong_ops else (ops[0] if len(ops) == 1 else node.target, wrong)
    return NodeDifference(target_of(node), what, how, _name(op), *fake_kernel(op))


def _fake_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """What the fake kernel of an op says for real arguments, and the fake arguments; None if it says nothing."""
    mode = torch_api.bound(torch_api.FAKE_MODE)(allow_non_fake_inputs=True)
    with suppress(Exception), mode:  # it raises for an output that data decide
        given = torch_api.bound(torch_api.TREE_MAP)(
            lambda one: mode.from_tensor(one) if isinstance(one, torch.Tensor) else one, (args, kwargs)
        )
        return func(*given[0], **given[1]), given
    return None


def _name(op: Any) -> str:
    """`aten::mm` for an op of the dispatcher, else the function as users call it."""
    if hasattr(op, "overloadpacket"):
        return str(op.name()).partition(".")[0]
    name = str(getattr(op, "__name__", op))
    return f"Tensor.{name}" if isinstance(op, str) else f"torch.{name}" if hasattr(torch, name) else name


def fake_kernel(op: Any) -> tuple[str, str]:
    """File (relative to torch's folder) and name of the Python function that computes the fake value of an op; both
    empty if it is not in Python. The order is that of `FakeTensorMode._dispatch_impl`.
    """
    if not hasattr(op, "overloadpacket"):
        return "", ""
    kernel = (
        torch_api.META_TABLE.get().get(op)
        or torch_api.FAKE_DECOMPOSITIONS.get().get(op)
        or torch_api.REGISTERED.get().find(op.name()).fake_impl.kernel
        or torch_api.FAKE_IMPLS.get().get(op)
    )
    code = getattr(inspect.unwrap(kernel), "__code__", None) if kernel is not None else None
    return ("", "") if code is None else (frames.display_file(code.co_filename), code.co_name)
