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
from ddefuzz.keys.argument_lists import row_of
from ddefuzz.program.recipes import DTYPES
from ddefuzz.program.text import KEY_HEADER
from ddefuzz.records import record_of

ALL_DTYPES: Final = (
    *DTYPES.values(),
    *("uint16", "uint32", "uint64", "complex32"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)

ALIGNMENT: Final = 16  # the alignment in bytes, and the divisor of sizes, that vectorized kernels need

SizeParts: TypeAlias = Literal["all", "01"]
"""all: every size. 01: only 0, 1, and 2 or more, as kernels for dynamic shapes do."""

StrideParts: TypeAlias = Literal["all", "pattern", "none"]
"""all: every stride. pattern: for each dim of size 2 or more whether its stride is 0 or 1, where it comes in the order
of strides, and whether it is dense. none: strides are not distinguished.
"""


class Options(msgspec.Struct, frozen=True):
    """The parts of a key. The rank, the layout and the conj and neg bits are always in it.

    A key may have what `parameter` and `inference` are about also where they are off. `aliasing` and `values` are for
    keys of several arguments.
    """

    sizes: SizeParts = "all"
    strides: StrideParts = "all"
    divisible: bool = False
    alignment: bool = True
    device: bool = True
    dtype: bool = True
    requires_grad: bool = True
    parameter: bool = False
    inference: bool = False
    aliasing: bool = True
    values: bool = True


Kind: TypeAlias = Literal[
    "tensor", "parameter", "subclass", "fake", "meta", "sparse", "csr", "mkldnn", "nested", "zeros", "batched", "grad"
]
Bits: TypeAlias = Literal["", "conj", "neg"]

PropertyName: TypeAlias = Literal[
    "gives-a-key", "adds-no-guard", "tells-apart", "shares", "holds-no-tensor", "same-in-other-process"
]

HEADER: Final = f"{KEY_HEADER}1"

_NAMES: Final = ("function", "violates", "options")  # the names that a text assigns, in this order; then one of:
_WITNESSES: Final = ("tensors", "given")

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
        if self.kind == "meta":
            made = f"torch.empty_strided({self.sizes}, {self.strides}, dtype=torch.{self.dtype}, device='meta')"
        else:
            made = {"": "{}", "conj": "{}.conj()", "neg": f"{_expression(torch_api.NEGATED_VIEW)}({{}})"}[
                self.bits
            ].format(_dense(self))
        if self.requires_grad and self.kind != "parameter":
            made += ".requires_grad_()"
        return _TEXTS[self.kind].format(made, self.requires_grad, self.sizes, self.dtype)

    @property
    def is_ordinary(self) -> bool:
        """Whether the usual functions make it, without as_strided."""
        return "as_strided" not in _dense(self)

    @property
    def elements(self) -> int:
        """How many elements its storage has."""
        spans = (max(size - 1, 0) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.offset + sum(spans) + 1


def contiguous(sizes: tuple[int, ...], order: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The strides without gaps, by default of the last dim first; `order` has the dims from the innermost."""
    strides, extent = [0] * len(sizes), 1
    for dim in order or reversed(range(len(sizes))):
        strides[dim] = extent
        extent *= max(sizes[dim], 1)
    return tuple(strides)


def expanded(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of `torch.zeros(1).expand(sizes)`."""
    strides, outer = list[int](), 1
    for size in reversed(sizes):
        strides.append(outer if size == 1 else 0)
        outer = size * strides[-1]
    return tuple(reversed(strides))


CHANNELS_LAST: Final = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
"""The dims from the innermost, by rank."""


def _dense(spec: TensorSpec) -> str:
    """The expression of a strided tensor, as a person would write it if that makes these strides."""
    dtype = "" if spec.dtype == "float32" else f", dtype=torch.{spec.dtype}"
    order = tuple(sorted(range(len(spec.sizes)), key=lambda dim: (spec.strides[dim], dim)))
    if not spec.offset and spec.strides == contiguous(spec.sizes):
        return f"torch.zeros({spec.sizes}{dtype})"
    if not spec.offset and spec.strides == expanded(spec.sizes):
        return f"torch.zeros(1{dtype}).expand({spec.sizes})"
    if not spec.offset and min(spec.sizes, default=0) > 1:  # other strides of a dim of one element are not the usual
        if spec.strides == contiguous(spec.sizes, CHANNELS_LAST.get(len(spec.sizes), ())):
            name = f"channels_last{'_3d' * (len(spec.sizes) == 5)}"
            return f"torch.zeros({spec.sizes}{dtype}).to(memory_format=torch.{name})"
        base = tuple(size if stride else 1 for size, stride in zip(spec.sizes, spec.strides, strict=True))
        moving = zip(contiguous(base), spec.strides, strict=True)
        if spec.strides == tuple(stride and usual for usual, stride in moving):
            return f"torch.zeros({base}{dtype}).expand({spec.sizes})"
        if spec.strides == contiguous(spec.sizes, order):
            outer = order[::-1]
            dims = tuple(outer.index(dim) for dim in range(len(outer)))
            return f"torch.zeros({tuple(spec.sizes[dim] for dim in outer)}{dtype}).permute({dims})"
    moved = f", {spec.offset}" if spec.offset else ""
    return f"torch.zeros({spec.elements}{dtype}).as_strided({spec.sizes}, {spec.strides}{moved})"


_TEXTS: Final[dict[Kind, str]] = {
    "tensor": "{0}",
    "parameter": "torch.nn.Parameter({0}, requires_grad={1})",
    "subclass": "{0}.as_subclass(OwnTensor)",
    "fake": "FakeTensorMode().from_tensor({0})",
    "meta": "{0}",
    "sparse": "{0}.to_sparse()",
    "csr": "{0}.to_sparse_csr()",
    "mkldnn": "{0}.to_mkldnn()",
    "nested": "torch.nested.nested_tensor([{0}])",
    "zeros": f"{_expression(torch_api.LAZY_ZEROS)}({{2}}, dtype=torch.{{3}})",
    "batched": "{0}",
    "grad": "{0}",
}

KINDS: Final = tuple(_TEXTS)

STRIDED: Final = frozenset({"tensor", "parameter", "subclass", "fake", "meta", "batched", "grad"})
"""The kinds whose strides are those that were drawn."""

CARRIERS: Final[tuple[Kind, ...]] = ("tensor", "parameter", "subclass", "fake", "meta")
"""The kinds that have any number of elements, where these have the same place in memory, or none."""

Tensors: TypeAlias = tuple[TensorSpec, ...]


class KeyCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case. `function` is MODULE:FUNCTION, or FILE:FUNCTION as `check-key --db` was given it. The sizes of the tensor
    for `adds-no-guard` are those of an example: all of them are unbacked.

    `given` are two argument lists of a row of `keys.argument_lists`, and then there are no `tensors`.
    """

    function: str
    violates: PropertyName
    options: Options
    tensors: tuple[TensorSpec, ...] = ()
    given: tuple[str, ...] = ()


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
        *(("given = [",) if case.given else ("tensors = [",)),
        *(f"    {_literal(one)}," for one in case.given or tensors),
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
        message = str(error).partition(": <")[0]  # without the address of a node of the syntax tree
        raise InputError(f"{path}: found {message}, expected assignments of literals") from error
    *names, witnesses = fields or ("nothing",)
    if tuple(names) != _NAMES or witnesses not in _WITNESSES or len(body) != len(fields):
        expected = f"{', '.join(_NAMES)}, {' or '.join(_WITNESSES)}"
        raise InputError(f"{path}: found {', '.join(fields) or 'nothing'}, expected {expected}, each once")
    case = record_of(fields, KeyCase, path)
    wrong = next((one for one in case.tensors if not _is_tensor(one)), None)
    if wrong is not None:
        raise InputError(f"{path}: found {str(wrong)[:300]}, expected a tensor of at most {_MOST} elements")
    guarded = case.violates == "adds-no-guard"
    if case.given and (row_of(case.given, guarded=guarded) is None or case.violates not in _OF_GIVEN):
        raise InputError(
            f"{path}: found {str(case.given)[:300]}, expected two argument lists of ddefuzz.keys.argument_lists"
        )
    wanted = 0 if case.given else TENSORS[case.violates]
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

_OF_GIVEN: Final = frozenset({"tells-apart", "shares", "adds-no-guard"})

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
    fits = len(tensor.sizes) == len(tensor.strides) and all(0 <= number < 1 << 63 for number in numbers)
    stored = tensor.elements if tensor.kind != "meta" else tensor.offset
    computed = math.prod(tensor.sizes) if tensor.kind not in CARRIERS else 0
    return fits and max(stored, computed) <= _MOST and tensor.dtype in ALL_DTYPES


class Violation(msgspec.Struct, frozen=True):
    """The smallest tensors that show it, as expressions and as data; their keys; and what is wrong.

    `part` is what the key confuses, or the error. `asked` is the line of the key function that evaluated a guard.
    """

    tensors: tuple[str, ...]
    keys: tuple[str, ...]
    why: str
    drawn: Tensors = ()
    given: tuple[str, ...] = ()
    part: str = ""
    asked: Frame | None = None

    def explains(self, other: Violation) -> bool:
        """Whether the other confuses what this one does, and perhaps more."""
        return set(self.part.split(", ")) <= set(other.part.split(", "))


SCHEMA = "ddefuzz.key/1"


class PairKind(msgspec.Struct, frozen=True):
    """One kind of systematic pairs: how many argument lists have a key, and how many have none because the function
    raises; how many pairs of them were judged; how many of these are violations.
    """

    kind: str
    keys: int
    raised: int
    pairs: int
    wrong: int


class Property(msgspec.Struct, frozen=True):
    """A property, on how many tensors or pairs it was tried, and the smallest violation for each confused part.
    `covered` are the systematic pairs among them.

    `reason` says why it was not judged: the function ends or spoils its process. It is empty if the property was.
    """

    name: PropertyName
    meaning: str
    tried: int
    violations: tuple[Violation, ...]
    reason: str = ""
    covered: tuple[PairKind, ...] = ()


class KeyReport(msgspec.Struct, frozen=True):
    """The result of a check."""

    function: str
    options: Options
    torch: str
    properties: tuple[Property, ...]
    schema: str = SCHEMA
