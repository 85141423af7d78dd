"""The programs of `ci/bench compile`: from one op to a transformer block, in ddefuzz's text form.

Each has an unbacked size (`u0`) with a large example size. The backed and the static version are made from it.
"""

from __future__ import annotations

from types import MappingProxyType

_HEADER = "# ddefuzz program v1\n"


def _program(inputs: str, parameters: str, *lines: str) -> str:
    values = "; ".join(one if "=" in one else f"{one} = normal" for one in inputs.split())
    body = "".join(f"    {line}\n" for line in lines)
    return f"{_HEADER}# inputs: {values}\ndef program({parameters}):\n{body}"


def _tensor(name: str, shape: str, kind: str = "Float32") -> str:
    return f'{name}: {kind}[Tensor, "{shape}"]'


_ROWS = _tensor("x", "u0=2048 64")
_TWO = f"{_ROWS}, {_tensor('y', 'u0=2048 64')}"

PROGRAMS: MappingProxyType[str, str] = MappingProxyType(
    {
        "add_relu": _program("x y", _TWO, "return torch.relu(x + y)"),
        "pointwise_chain": _program(
            "x y", _TWO, "z = torch.sigmoid(x) * torch.tanh(y)", "return torch.exp(z) - torch.sin(x)"
        ),
        "broadcast_bias": _program("x b", f"{_ROWS}, {_tensor('b', '64')}", "return torch.relu(x * b + b)"),
        "row_sum": _program("x", _ROWS, "return torch.sum(x, 1)"),
        "column_sum": _program("x", _ROWS, "return torch.sum(x, 0)"),
        "full_sum": _program("x", _ROWS, "return torch.sum(x)"),
        "softmax_rows": _program("x", _ROWS, "return torch.softmax(x, 1)"),
        "softmax_columns": _program("x", _ROWS, "return torch.softmax(x, 0)"),
        "layer_norm": _program("x", _ROWS, "return torch.nn.functional.layer_norm(x, [64])"),
        "transpose_add": _program("x", _ROWS, "y = torch.transpose(x, 0, 1)", "return torch.exp(y) + y"),
        "neighbours": _program("x", _tensor("x", "u0=2048 65"), "return x[:, 1:] - x[:, :-1]"),
        "cat_two": _program("x y", f"{_ROWS}, {_tensor('y', 'u1=1024 64')}", "return torch.relu(torch.cat([x, y], 0))"),
        "flatten": _program("x", _ROWS, "return torch.sin(torch.reshape(x, (-1,)))"),
        "embedding": _program(
            "i=index(100) t",
            f"{_tensor('i', 'u0=2048', 'Int64')}, {_tensor('t', '100 64')}",
            "return torch.relu(torch.nn.functional.embedding(i, t))",
        ),
        "masked_rows": _program("x", _ROWS, "kept = x[torch.sum(x, 1) > 0]", "return torch.sigmoid(kept) * kept"),
        "sort_columns": _program("x", _tensor("x", "64 u0=512"), "return torch.sort(x, 1)"),
        "average_pool": _program(
            "x", _tensor("x", "4 8 u0=128 64"), "return torch.nn.functional.avg_pool2d(x, [3, 3], [2, 2])"
        ),
        "mlp": _program(
            "x w v",
            f"{_ROWS}, {_tensor('w', '256 64')}, {_tensor('v', '64 256')}",
            "h = torch.nn.functional.gelu(torch.nn.functional.linear(x, w))",
            "return torch.nn.functional.linear(h, v)",
        ),
        "attention": _program(
            "q k v",
            ", ".join(_tensor(name, "4 u0=128 32") for name in "qkv"),
            "scores = torch.matmul(q, torch.transpose(k, 1, 2)) * 0.25",
            "return torch.matmul(torch.softmax(scores, 2), v)",
        ),
        "transformer_block": _program(
            "x a b c d e f",
            f"{_tensor('x', 'u0=8 128 64')}, "
            + ", ".join(_tensor(name, "64 64") for name in "abcd")
            + f", {_tensor('e', '256 64')}, {_tensor('f', '64 256')}",
            "n = torch.nn.functional.layer_norm(x, [64])",
            "q = torch.nn.functional.linear(n, a)",
            "k = torch.nn.functional.linear(n, b)",
            "v = torch.nn.functional.linear(n, c)",
            "scores = torch.softmax(torch.matmul(q, torch.transpose(k, 1, 2)) * 0.125, 2)",
            "y = x + torch.nn.functional.linear(torch.matmul(scores, v), d)",
            "m = torch.nn.functional.layer_norm(y, [64])",
            "h = torch.nn.functional.gelu(torch.nn.functional.linear(m, e))",
            "return y + torch.nn.functional.linear(h, f)",
        ),
    }
)
"""The text of each program by its name, smallest first."""
