"""Catalogue: ops that compute element by element on one tensor."""

from __future__ import annotations

from ddefuzz.ops.spec import OpSpec, Tensor, choice, op

X = Tensor()
INT = Tensor(kind="int")
BOOL = Tensor(kind="bool")
NAMES = (
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "ceil", "cos", "cosh", "deg2rad", "digamma", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "i0", "isfinite", "isinf", "isnan", "isneginf", "lgamma",
    "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg", "positive", "reciprocal", "relu", "round", "rsqrt",
    "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
SPECIAL = ("bessel_j0", "entr", "erfcx", "i0e", "i1", "log_ndtr", "ndtr", "ndtri")
ACTIVATIONS = (
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
    "mish", "relu6", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink",
)  # fmt: skip

POINTWISE: tuple[OpSpec, ...] = (
    *(op(f"torch.{name}(x)", x=X) for name in NAMES),
    *(op(f"torch.special.{name}(x)", x=X) for name in SPECIAL),
    *(op(f"torch.nn.functional.{name}(x)", x=Tensor(1)) for name in ACTIVATIONS),
    op("x + 1", x=X),
    op("-x", x=X),
    op("x * 0.5", x=X),
    op("x ** 2", x=X),
    op("x > 0", x=X),
    op("x // 2", x=INT),
    op("x % 3", x=INT),
    op("~m", m=BOOL),
    op("m & n", m=BOOL, n=Tensor(kind="bool", like="m")),
    op("m | n", m=BOOL, n=Tensor(kind="bool", like="m")),
    op("torch.bitwise_xor(x, y)", x=INT, y=Tensor(kind="int", like="x")),
    op("torch.bitwise_not(x)", x=INT),
    op("torch.bitwise_left_shift(x, 1)", x=INT),
    op("torch.gcd(x, y)", x=INT, y=Tensor(kind="int", like="x")),
    op("torch.logical_and(m, n)", m=BOOL, n=Tensor(kind="bool", like="m")),
    op("torch.logical_not(m)", m=BOOL),
    op("torch.pow(x, k)", x=X, k=choice(2, 3, 0.5)),
    op("torch.float_power(x, 2)", x=X),
    op("torch.frexp(x)", x=X),
    op("torch.ldexp(x, y)", x=X, y=Tensor(kind="int", like="x")),
    op("torch.mvlgamma(x.abs() + 2, 2)", x=X),
    op("torch.polygamma(1, x)", x=X),
    op("torch.heaviside(x, y)", x=X, y=Tensor(like="x")),
    op("torch.threshold(x, 0.1, 0.0)", x=X),
    op("torch.nn.functional.prelu(x, y)", x=Tensor(1), y=Tensor(shape=(1,))),
    op("torch.nn.functional.dropout(x, 0.5, False)", x=X),
    op("torch.real(x)", x=Tensor(kind="complex")),
    op("torch.conj(x)", x=Tensor(kind="complex")),
    op("torch.resolve_conj(x)", x=Tensor(kind="complex")),
)
