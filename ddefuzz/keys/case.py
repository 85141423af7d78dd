"""A case of a key function: the function, the property that it violates, and the tensors that show it, as data.

Its text form is Python assignments of literals. It is parsed, never executed. Nothing here imports torch.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from ddefuzz import syntax
from ddefuzz.errors import InputError
from ddefuzz.files import check_integers
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.program.recipes import DTYPES
from ddefuzz.program.text import KEY_HEADER

ALIGNMENT: Final = 16  # the alignment in bytes, and the divisor of sizes, that vectorized kernels need

SizeParts: TypeAlias = Literal["all", "01"]
"""all: every size. 01: only 0, 1, and 2 or more, as kernels for dynamic shapes do."""

StrideParts: TypeAlias = Literal["all", "pattern", "none"]
"""all: every stride. pattern: for each dim of size 2 or more whether its stride is 0 or 1, where it comes in the order
of strides, and whether it is dense. none: strides are not distinguished.
"""


class Options(msgspec.Struct, frozen=True):
    """The parts of a key. The rank, the layout and the conj and neg bits are always in it."""

    sizes: SizeParts = "all"
    strides: StrideParts = "all"
    divisible: bool = False
    alignment: bool = True
    device: bool = True
    dtype: bool = True
    requires_grad: bool = True


Kind: TypeAlias = Literal[
    "tensor", "parameter", "subclass", "fake", "meta", "sparse", "csr", "mkldnn", "nested", "zeros", "batched", "grad"
]
Bits: TypeAlias = Literal["", "conj", "neg"]

PropertyName: TypeAlias = Literal[
    "gives-a-key", "adds-no-guard", "tells-apart", "shares", "holds-no-tensor", "same-in-other-process"
]

HEADER: Final = f"{KEY_HEADER}1"

_NAMES: Final = ("function", "violates", "options", "tensors")  # the names that a text assigns, in this order

KEY_FUNCTIONS: Final = frozenset(
    (
        "ddefuzz.keys.key:key",
        *(
            f"ddefuzz.keys.planted:{name}"
            for name in (
                *("asks_sizes", "forgets_strides", "hashes_text"),
                *("keeps_tensor", "returns_list", "tells_offset"),
            )
        ),
        "torch._dynamo.guards:extract_tensor_metadata",
        "torch._inductor.codecache:extract_tensor_metadata_for_cache_key",
        "torch._subclasses.fake_tensor:extract_tensor_metadata",
        "torch.fx.passes.shape_prop:_extract_tensor_metadata",
    )
)
"""The functions that are called for a stored case. Any other, also one of torch, is called only with --trust."""


def _expression(api: torch_api.Api) -> str:
    return api.path.replace(":", ".")


class TensorSpec(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A tensor: `strides` and `offset` are those of a strided one, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: str = "float32"
    kind: Kind = "tensor"
    requires_grad: bool = False
    bits: Bits = ""

    @property
    def text(self) -> str:
        """The expression that makes it."""
        if self.kind in {"batched", "grad"}:
            return f"{self.plain} within torch.{'vmap' if self.kind == 'batched' else 'func.grad'}"
        return self.plain

    @property
    def plain(self) -> str:
        """The same without the transform that it is drawn within."""
        strided = f"torch.zeros({self.elements}, dtype=torch.{self.dtype}).as_strided({self.sizes}, {self.strides}"
        made = strided + (f", {self.offset})" if self.offset else ")")
        made = {"": "{}", "conj": "{}.conj()", "neg": f"{_expression(torch_api.NEGATED_VIEW)}({{}})"}[self.bits].format(
            made
        )
        if self.requires_grad and self.kind != "parameter":
            made += ".requires_grad_()"
        return _TEXTS[self.kind].format(made, self.requires_grad, self.sizes, self.dtype)

    @property
    def elements(self) -> int:
        """How many elements its storage has."""
        spans = (max(size - 1, 0) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.offset + sum(spans) + 1


_TEXTS: Final[dict[Kind, str]] = {
    "tensor": "{0}",
    "parameter": "torch.nn.Parameter({0}, requires_grad={1})",
    "subclass": "{0}.as_subclass(OwnTensor)",
    "fake": "FakeTensorMode().from_tensor({0})",
    "meta": "{0}.to('meta')",
    "sparse": "{0}.to_sparse()",
    "csr": "{0}.to_sparse_csr()",
    "mkldnn": "{0}.to_mkldnn()",
    "nested": "torch.nested.nested_tensor([{0}])",
    "zeros": f"{_expression(torch_api.LAZY_ZEROS)}({{2}}, dtype=torch.{{3}})",
    "batched": "{0}",
    "grad": "{0}",
}

KINDS: Final = tuple(_TEXTS)


Tensors: TypeAlias = tuple[TensorSpec, ...]


class KeyCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case. `function` is MODULE:FUNCTION, or FILE:FUNCTION as `check-key --db` was given it. The sizes of the tensor
    for `adds-no-guard` are those of an example: all of them are unbacked.
    """

    function: str
    violates: PropertyName
    options: Options
    tensors: tuple[TensorSpec, ...]


def print_key(case: KeyCase) -> str:
    """The text form. What has its default value is left out."""
    plain = _changed(case.options, Options())
    tensors = [
        {"sizes": one.sizes, "strides": one.strides} | _changed(one, TensorSpec(one.sizes, one.strides))
        for one in case.tensors
    ]
    lines = [
        HEADER,
        f"function = {_literal(case.function)}",
        f"violates = {_literal(case.violates)}",
        f"options = {_literal(plain)}",
        "tensors = [",
        *(f"    {_literal(one)}," for one in tensors),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _changed(record: msgspec.Struct, default: msgspec.Struct) -> dict[str, Any]:
    before = msgspec.structs.asdict(default)
    return {name: value for name, value in msgspec.structs.asdict(record).items() if value != before[name]}


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(name)}: {_literal(one)}' for name, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def parse_key(text: str, path: str) -> KeyCase:
    """The case of a text. Raises InputError with the path, what was found and what was expected."""
    first = text.partition("\n")[0]
    if first != HEADER:
        raise InputError(f"{path}:1: found {first[:80]!r}, expected {HEADER!r}")
    try:
        body = syntax.parse(text).body
        fields = {_name(one): ast.literal_eval(one.value) for one in body if isinstance(one, ast.Assign)}
        check_integers(fields)
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: found {error}, expected assignments of literals") from error
    if tuple(fields) != _NAMES or len(body) != len(_NAMES):
        raise InputError(f"{path}: found {', '.join(fields) or 'nothing'}, expected {', '.join(_NAMES)}, each once")
    try:
        case = msgspec.convert(fields, KeyCase)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error
    wrong = next((one for one in case.tensors if not _is_tensor(one)), None)
    if wrong is not None:
        raise InputError(f"{path}: found {str(wrong)[:300]}, expected a tensor of at most {_MOST} elements")
    wanted = TENSORS[case.violates]
    if len(case.tensors) != wanted or not _is_function(case.function):
        raise InputError(
            f"{path}: found {len(case.tensors)} tensors and the function {case.function[:300]!r}, "
            f"expected {wanted} and MODULE:FUNCTION"
        )
    return case


TENSORS: Final[dict[PropertyName, int]] = {
    name: 2 if name in {"tells-apart", "shares"} else 1 for name in get_args(PropertyName)
}
"""The number of tensors that each property is about."""

_MOST: Final = 1 << 20  # the largest tensor of a case, in elements


def _name(assignment: ast.Assign) -> str:
    return ", ".join(map(ast.unparse, assignment.targets))


def _is_function(text: str) -> bool:
    """Whether a text is MODULE:FUNCTION, or FILE:FUNCTION for a file of Python."""
    place, _, name = text.rpartition(":")
    is_file = place.endswith(".py") and place.isprintable()
    names = (name,) if is_file else (*place.split("."), name)
    return all(one.isidentifier() and not keyword.iskeyword(one) for one in names)


def _is_tensor(tensor: TensorSpec) -> bool:
    numbers = (*tensor.sizes, *tensor.strides, tensor.offset)
    fits = len(tensor.sizes) == len(tensor.strides) and all(0 <= number <= _MOST for number in numbers)
    return fits and tensor.elements <= _MOST and math.prod(tensor.sizes) <= _MOST and tensor.dtype in DTYPES.values()


class Violation(msgspec.Struct, frozen=True):
    """The smallest tensors that show it, as expressions and as data; their keys; and what is wrong.

    `part` is what the key confuses, or the error. `asked` is the line of the key function that evaluated a guard.
    """

    tensors: tuple[str, ...]
    keys: tuple[str, ...]
    why: str
    drawn: Tensors = ()
    part: str = ""
    asked: Frame | None = None

    def explains(self, other: Violation) -> bool:
        """Whether the other confuses what this one does, and perhaps more."""
        return set(self.part.split(", ")) <= set(other.part.split(", "))


SCHEMA = "ddefuzz.key/1"


class Property(msgspec.Struct, frozen=True):
    """A property, on how many tensors or pairs it was tried, and the smallest violation for each confused part.

    `reason` says why it was not judged: the function ends or spoils its process. It is empty if the property was.
    """

    name: PropertyName
    meaning: str
    tried: int
    violations: tuple[Violation, ...]
    reason: str = ""


class KeyReport(msgspec.Struct, frozen=True):
    """The result of a check."""

    function: str
    options: Options
    torch: str
    properties: tuple[Property, ...]
    schema: str = SCHEMA
