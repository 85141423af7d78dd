"""Systematic pairs of argument lists that are written as code: symbolic sizes, classes, devices, several arguments.

A row is parsed with a stored case, by its text alone: what is not in the table is not executed. Nothing here imports
torch.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Final, NamedTuple

SYMBOLS: Final = """
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

env, other_env = ShapeEnv(), ShapeEnv()
modes = {each: FakeTensorMode(shape_env=each) for each in (env, other_env)}


def fake_strided(sizes, strides):
    symbols = [number for number in (*sizes, *strides) if isinstance(number, torch.SymInt)]
    with modes[symbols[0].node.shape_env if symbols else env]:
        return torch.empty_strided(sizes, strides)


def fake(*sizes):
    strides = [1] * len(sizes)
    for at in reversed(range(len(sizes) - 1)):
        strides[at] = strides[at + 1] * sizes[at + 1]
    return fake_strided(sizes, strides)


def meta(*sizes):
    made = fake(*sizes)
    return torch.empty_strided(made.shape, made.stride(), device="meta")


def unbacked(env, least=2):
    made = env.create_unbacked_symint()
    torch._check(made >= least)
    return made


def backed(env, name, hint, **how):
    source = ConstantSource(name)
    return env.create_symintnode(env.create_symbol(hint, source, DimDynamic.DYNAMIC, **how), hint=hint, source=source)


u0, u1, u2, u3 = unbacked(env), unbacked(env), unbacked(env, 100), unbacked(env, 0)
other_u0 = unbacked(other_env)  # its text is that of u0
s0, s1, s2 = (backed(env, name, 8 + (name == "s2")) for name in ("s0", "s1", "s2"))
other_s0 = backed(other_env, "s0", 8)  # its text is that of s0
s3 = backed(env, "s3", 8, do_not_specialize_zero_one=True)
same, as_same = backed(env, "same", 8), backed(env, "as_same", 8)
bool(same == as_same)  # a guard, by which one replaces the other
"""

ARGUMENTS: Final = "x, y, z = torch.zeros(16), torch.zeros(16), torch.zeros(16)\n"

_CLASSES: Final = """
class Own(torch.Tensor):
    pass


class Other(torch.Tensor):
    pass


class OwnParameter(torch.nn.Parameter):
    pass


Twin = type("Own", (torch.Tensor,), {"__module__": "elsewhere"})
"""

_DEVICES: Final = """
from torch._subclasses.fake_tensor import FakeTensorMode


def fake_on(device):
    with FakeTensorMode():
        return torch.empty(4, device=device)
"""

_BUFFERS: Final = """
import ctypes


class Memory:
    def __init__(self):
        self.tensor = torch.zeros(32)  # its address is divisible by 16
        self.buffer = (ctypes.c_char * 128).from_address(self.tensor.data_ptr())

    def at(self, offset):
        return torch.frombuffer(self.buffer, dtype=torch.float32, count=8, offset=offset)


memory, other = Memory(), Memory()
"""

_INFERENCE: Final = """
def inference():
    with torch.inference_mode():
        return torch.zeros(4)
"""


NOTES: Final = {
    SYMBOLS: "u0, u1, u2, u3: unbacked, u3 may be 0; s0, s1: backed, with equal hints; s3: backed, may be 0; "
    "other_u0, other_s0: with the texts of u0 and s0, in another ShapeEnv",
    ARGUMENTS: "x, y, z: torch.zeros(16) each",
    _CLASSES: "Own, Other: subclasses of Tensor; Twin: another one, which is named Own, too",
    _BUFFERS: "memory, other: 128 bytes each; at(offset): a tensor over them, whose own storage starts there",
    _DEVICES: "fake_on(device): a FakeTensor of four elements",
}
"""What the names are that code of a row uses, by its setup."""


_VALUES: Final = (
    *("0", "1", "2", "-1", "255", "256", "2**31", "2**32", "2**32 + 1", "2**64 + 1", "True", "False", "None"),
    *("0.0", "1.0", "2.0", "-1.0", "0.1", "0.1000000001", "1e-9", "float('inf')", "1j"),
    *("''", "'a'", "'A'", "'a '", "'aa'", "'b'", "'1'", "'1.0'", "'True'", "'None'", "b'a'"),
    *("torch.float32", "torch.float16", "torch.strided", "torch.contiguous_format", "torch.channels_last"),
    *("torch.device('cpu')", "torch.device('cuda', 0)", "torch.device('cuda', 1)"),
)
_CONTAINERS: Final = (
    *("()", "[]", "(1,)", "[1]", "(1, 2)", "(2, 1)", "[1, 2]", "[2, 1]", "(1, 1, 2)", "((1,), 2)", "(1, (2,))"),
    *("{}", "{'n': 1}", "{'n': 2}", "{'m': 1}", "{'n': 1, 'm': 1}"),
)
"""Values of arguments that are no tensors: each differs from the others by its type or its value."""


class Given(NamedTuple):
    """Argument lists of one kind of pairs. Two of them need different keys exactly if their labels differ.

    `arguments` has the code of each argument list, with its label; by default each is its own label. `part` is what a
    key that is wrong about them confuses. They are judged only if `option` is on (or "all"), and with these kinds of
    tensors. `setup` is executed before, once for each pair.
    """

    kind: str
    part: str
    arguments: dict[str, str]
    setup: str = ""
    option: str = ""
    needs: tuple[str, ...] = ("tensor",)
    several: bool = False

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs, each with itself, too: made twice, it has one key."""
        return list(combinations_with_replacement(self.arguments, 2))

    def differ(self, pair: tuple[str, ...]) -> bool:
        """Whether two argument lists need different keys."""
        return self.arguments[pair[0]] != self.arguments[pair[1]]


def _each(*arguments: str) -> dict[str, str]:
    return {one: one for one in arguments}


def _both(*arguments: str) -> dict[str, str]:
    """Each with each, so that a key of any, all or the number of them shows."""
    return _each(*(f"{one}, {other}" for one in arguments for other in arguments))


def _alike(*arguments: str) -> dict[str, str]:
    return dict.fromkeys(arguments, "")


def _symbolic(make: str) -> tuple[Given, ...]:
    """The rows on symbolic sizes for one way to make a tensor."""

    def listed(*sizes: str) -> list[str]:
        return [f"{make}({one})" for one in sizes]

    single = listed("u0", "u1", "u2", "other_u0", "s0", "s1", "s2", "other_s0", "8", "u0 + 1", "2 * u0", "u0 + u1")
    two = listed("u0, u1", "u1, u0", "u0, u0", "u1, u1", "u0, 3", "3, u0", "u1, 3", "u0, 4")
    backed = listed("s0, s1", "s1, s0", "s0, s0", "s1, s1", "s0, 3", "3, s0", "s1, 3", "s0, 8", "8, 8")
    equal = listed("u0 + u1", "u1 + u0"), listed("u0 * 2 // 2", "u0"), listed("same", "as_same", "same + 0")
    rows: tuple[tuple[str, dict[str, str]], ...] = (
        ("symbols of one size", _each(*single)),
        ("symbols of two unbacked sizes", _each(*two)),
        ("symbols of two backed sizes", _each(*backed)),
        ("symbols that are equal after simplification", {text: group[0] for group in equal for text in group}),
    )
    return tuple(Given(f"{kind} ({make})", "symbols", arguments, SYMBOLS, "sizes", (make,)) for kind, arguments in rows)


ROWS: Final[tuple[Given, ...]] = (
    *_symbolic("fake"),
    *_symbolic("meta"),
    Given(
        "symbols of strides",
        "symbols",
        _each(*(f"fake_strided((2, 2), ({one}))" for one in ("u0, 1", "u1, 1", "s0, 1", "s1, 1", "8, 1", "1, u0"))),
        SYMBOLS,
        "strides",
        ("fake",),
    ),
    Given(
        "classes of tensors",
        "kind",
        _each("torch.zeros(4)", *(f"torch.zeros(4).as_subclass({one})" for one in ("Own", "Other", "Twin"))),
        _CLASSES,
        needs=("tensor", "subclass"),
    ),
    Given(
        "a Parameter or a tensor",
        "kind",
        _each("torch.nn.Parameter(torch.zeros(4), requires_grad=False)", "torch.zeros(4)"),
        option="parameter",
        needs=("tensor", "parameter"),
    ),
    Given(
        "a subclass of Parameter",
        "kind",
        _each("torch.nn.Parameter(torch.zeros(4))", "OwnParameter(torch.zeros(4))"),
        _CLASSES,
        needs=("parameter", "subclass"),
    ),
    Given(
        "devices",
        "device",
        _each(*(f'fake_on("{one}")' for one in ("cpu", "cuda:0", "cuda:1"))),
        _DEVICES,
        "device",
        ("fake",),
    ),
    Given(
        "alignment of the storage",
        "offset",
        {
            "memory.at(0)": "aligned",
            "memory.at(16)": "aligned",
            "memory.at(12)[1:]": "from an address that is not",
            "memory.at(4)": "not aligned",
            "memory.at(0)[1:]": "to one that is not",
        },
        _BUFFERS,
        "alignment",
    ),
    Given("an inference tensor", "inference", _each("torch.zeros(4)", "inference()"), _INFERENCE, "inference"),
    Given(
        "layouts",
        "layout",
        _each(
            "torch.zeros(4, 4)",
            "torch.zeros(4, 4).to_sparse()",
            *(f"torch.zeros(4, 4).to_sparse_{one}" for one in ("csr()", "csc()", "bsr((2, 2))", "bsc((2, 2))")),
        ),
        needs=("tensor", "sparse", "csr"),
    ),
    Given(
        "conj and neg bits",
        "bits",
        _each(
            "torch.zeros(4, dtype=torch.complex64)",
            "torch.zeros(4, dtype=torch.complex64).conj()",
            "torch._neg_view(torch.zeros(4, dtype=torch.complex64))",
            "torch._neg_view(torch.zeros(4, dtype=torch.complex64).conj())",
        ),
    ),
    Given(
        "other values, storage or history",
        "storage",
        _alike(
            "torch.zeros(2, 3)",
            "torch.ones(2, 3)",
            "torch.zeros(4, 3)[:2]",
            "torch.zeros(6).view(2, 3)",
            "torch.zeros(100)[16:22].view(2, 3)",
            "torch.zeros(2, 3).add_(1)",
        ),
    ),
    *(
        Given(f"other values of a scalar ({name})", "storage", _alike(*(f"torch.tensor({one})" for one in values)))
        for name, values in (
            ("float32", ("0.0", "1.0", "-2.5")),
            ("int64", ("0", "1", "7")),
            ("bool", ("False", "True")),
        )
    ),
    *(
        row._replace(setup=row.setup or ARGUMENTS, several=True)
        for row in (
            Given("aliases of two arguments", "aliasing", _each("x, x", "x, y"), option="aliasing"),
            Given(
                "aliases of three arguments",
                "aliasing",
                _each("x, y, z", "x, x, y", "x, y, x", "x, y, y", "x, x, x"),
                option="aliasing",
            ),
            Given(
                "aliases of many arguments",
                "aliasing",
                _each("*(torch.zeros(16) for _ in range(8)), x, y", "x, *(torch.zeros(16) for _ in range(8)), x"),
                option="aliasing",
            ),
            Given("overlap of two arguments", "aliasing", _each("x[:8], x[4:12]", "x[:8], y[4:12]"), option="aliasing"),
            Given(
                "overlap of steps of two",
                "aliasing",
                _each("x[0:8:2], x[4:6]", "x[0:8:2], y[4:6]", "x[4:6], x[0:8:2]"),
                option="aliasing",
            ),
            Given(
                "overlap of two storages",
                "aliasing",
                _each("memory.at(0), memory.at(0)", "memory.at(0), other.at(0)"),
                _BUFFERS,
                "aliasing",
            ),
            Given("overlap in one storage", "aliasing", _each("x[:8], x[4:12]", "x[:8], x[8:]"), option="aliasing"),
            Given(
                "order of arguments",
                "order",
                _each(*(f"torch.zeros({one}), torch.zeros({other})" for one in (2, 1, 0) for other in (2, 1, 0))),
            ),
            Given(
                "order of three arguments",
                "order",
                _each(
                    *(
                        ", ".join(f"torch.zeros({size})" for size in sizes)
                        for sizes in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (1, 1, 1))
                    )
                ),
            ),
            Given("number of arguments", "number", _each("x", "x, y", "x, y, z", "x, None", "x, None, None")),
            Given(
                "sizes of arguments run together",
                "sizes",
                _each(
                    "torch.zeros(1).expand(2, 3), torch.zeros(1).expand(4)",
                    "torch.zeros(1).expand(2), torch.zeros(1).expand(3, 4)",
                ),
            ),
            Given(
                "dtypes of two arguments",
                "dtype",
                _both("torch.zeros(4)", "torch.zeros(4, dtype=torch.int32)"),
                option="dtype",
            ),
            Given(
                "strides of two arguments",
                "strides",
                _both("torch.zeros(2, 3)", "torch.zeros(3, 2).T", "torch.zeros(1).expand(2, 3)"),
                option="strides",
            ),
            Given(
                "alignment of two arguments",
                "offset",
                _both("torch.zeros(8)[:4]", "torch.zeros(8)[1:5]"),
                option="alignment",
            ),
            Given(
                "requires_grad of two arguments",
                "requires_grad",
                _both("torch.zeros(4)", "torch.zeros(4, requires_grad=True)"),
                option="requires_grad",
            ),
            Given(
                "devices of two arguments",
                "device",
                _both('fake_on("cpu")', 'fake_on("cuda:0")'),
                _DEVICES,
                "device",
                ("fake",),
            ),
            Given(
                "arguments that are no tensors",
                "values",
                _each(*(f"x, {one}" for one in _VALUES)),
                option="values",
            ),
            Given(
                "tuples, lists and dicts",
                "values",
                _each(*(f"x, {one}" for one in _CONTAINERS)),
                option="values",
            ),
            Given(
                "symbols that arguments share",
                "symbols",
                _each(*(f"fake({one}), fake({other})" for one in ("u0", "u1", "s0", "s1") for other in ("u0", "s0"))),
                SYMBOLS,
                "sizes",
                ("fake",),
            ),
        )
    ),
)
"""The table. A pair that is in no row may have equal keys or not, such as two arguments that share their storage and
do not overlap.
"""

GUARDED: Final = Given(
    "symbolic tensors",
    "guards",
    _each(
        *(f"{make}({sizes})" for make in ("fake", "meta") for sizes in ("u0", "u1", "s0", "s1", "u0, s0", "s0, u0")),
        *("fake(3, u0)", "fake(3, s0)", "fake(2 * u0)", "fake(s0 + 1)", "fake(u3)", "fake(s3)"),
        *("fake_strided((2, 2), (u0, 1))", "fake_strided((2, 2), (s0, 1))"),
    ),
    SYMBOLS,
    needs=("fake", "meta"),
)
"""What a key must not guard on, alone and compared with another."""

GUARDED_LISTS: Final = Given(
    "several symbolic tensors",
    "guards",
    _each(
        *(f"fake({one}), fake({other})" for one, other in (("s0", "s1"), ("u0", "u1"), ("u0", "s0"), ("s0", "s0"))),
        *(f"*(lambda whole: (whole, whole[2:]))(fake({one}))" for one in ("s0", "u0")),
    ),
    SYMBOLS,
    needs=("fake",),
    several=True,
)
"""The same of several arguments: two sizes of one call, and two that overlap."""


def row_of(arguments: tuple[str, ...], *, guarded: bool = False) -> Given | None:
    """The row that has these argument lists; None if none has, so that they are not to be executed."""
    rows = (GUARDED, GUARDED_LISTS) if guarded else ROWS
    return next((row for row in rows if len(arguments) == 2 and row.arguments.keys() >= set(arguments)), None)
