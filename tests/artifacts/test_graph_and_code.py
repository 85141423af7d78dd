"""Graphs and generated code are read as torch prints them."""

from __future__ import annotations

from ddefuzz.artifacts.graph import assertions_in, assertions_in_code, count_of, nodes_of, normalized, symbols_in
from ddefuzz.oracles.kernels import kernels_in

FORWARD = """\
class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "Sym(u0)",  # PlainAOTInput(idx=0)
        primals_2: "f32[u0, 8][8, 1]cpu",  # PlainAOTInput(idx=1)
    ):
        # File: ddefuzz/execute/stages.py:93 in <genexpr>, code: given = tuple(...)
        ge: "Sym(u0 >= 0)" = primals_1 >= 0;  primals_1 = None
        _assert_scalar = torch.ops.aten._assert_scalar.default(ge, "Runtime assertion failed for expression u0 >= 0 \
on node 'ge_1'");  ge = _assert_scalar = None

        # File: <program>:5 in program, code: z = torch.relu(y)[y > 0]
        relu: "f32[u0, 8][8, 1]cpu" = torch.ops.aten.relu.default(primals_2)
        gt: "b8[u0, 8][8, 1]cpu" = torch.ops.aten.gt.Scalar(primals_2, 0);  primals_2 = None
        index: "f32[u1][1]cpu" = torch.ops.aten.index.Tensor(relu, [gt]);  relu = gt = None
        relu_1: "f32[u1][1]cpu" = torch.ops.aten.relu.default(index)
        return (
            index,  # PlainAOTOutput(idx=0)
            relu_1,  # PlainAOTOutput(idx=1)
        )
"""

SAME = """\
class GraphModule(torch.nn.Module):
    def forward(self, a: "Sym(u0)", b: "f32[u0, 8]"):
        check: "Sym(u0 >= 0)" = a >= 0;  a = None
        checked = torch.ops.aten._assert_scalar.default(check, "Runtime assertion failed for expression u0 >= 0 on \
node 'check'");  check = checked = None
        r: "f32[u0, 8]" = torch.ops.aten.relu.default(b)
        m: "b8[u0, 8]" = torch.ops.aten.gt.Scalar(b, 0);  b = None
        i: "f32[u1]" = torch.ops.aten.index.Tensor(r, [m]);  r = m = None
        r2: "f32[u1]" = torch.ops.aten.relu.default(i)
        return (i, r2)
"""

CODE = """\
cpp_fused_gt_0 = async_compile.cpp_pybinding(['const float*'], '''
    auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0);
''')

class Runner:
    def call(self, args):
        u0 = primals_1
        if not (u0 >= 0):
            raise RuntimeError('u0 >= 0')
        # extern_kernels.mm(a comment)
        extern_kernels.mm(primals_2, primals_3, out=buf1)
        cpp_fused_gt_0(buf1, buf2, u0)
        cpp_fused_gt_1(buf1, buf2, u0)
        buf3 = torch.ops.aten.index.Tensor(buf1, [buf2])
        if not (u1 >= 1):
            pass
        return (buf3, )

def benchmark_compiled_module(args):
    torch.ops.aten.relu.default(args)
"""


def test_nodes_have_the_users_line_and_inputs_have_none() -> None:
    nodes = {node.name: node for node in nodes_of(FORWARD)}
    assert list(nodes) == ["primals_1", "primals_2", "ge", "_assert_scalar", "relu", "gt", "index", "relu_1"]
    assert (nodes["primals_2"].value, nodes["primals_2"].expression) == ("f32[u0, 8]", "")
    assert nodes["index"].source == "<program>:5 z = torch.relu(y)[y > 0]"
    assert (nodes["index"].op, nodes["ge"].op) == ("aten.index.Tensor", "primals_1 >= 0")
    assert count_of(FORWARD) == 6


def test_assertions_are_lines_of_the_text() -> None:
    assert assertions_in(FORWARD) == (9,)
    assert "_assert_scalar" in FORWARD.splitlines()[8]


def test_symbols_are_made_by_the_first_node_that_has_them() -> None:
    found = {symbol: node.name for symbol, node in symbols_in(FORWARD).items()}
    assert found == {"u0": "primals_1", "u1": "index"}


def test_graphs_that_do_the_same_are_equal_when_normalized() -> None:
    assert normalized(FORWARD) == normalized(SAME)
    assert normalized(FORWARD).splitlines()[2:] == [
        "value: Sym(u0 >= 0) = input >= 0",
        '_assert_scalar = torch.ops.aten._assert_scalar.default(value, "Runtime assertion failed for expression '
        'u0 >= 0")',
        "relu: f32[u0, 8] = torch.ops.aten.relu.default(input_2)",
        "gt: b8[u0, 8] = torch.ops.aten.gt.Scalar(input_2, 0)",
        "index: f32[u1] = torch.ops.aten.index.Tensor(relu, [gt])",
        "relu_2: f32[u1] = torch.ops.aten.relu.default(index)",
        "return (index, relu_2)",
    ]
    assert normalized(FORWARD) != normalized(SAME.replace("(i, r2)", "(r2, i)"))


def test_kernels_are_counted_in_the_function_that_calls_them() -> None:
    found = kernels_in(CODE)
    assert found.generated == {"cpp_fused_gt": 2}
    assert found.extern == {"extern_kernels.mm": 1}
    assert found.fallback == {"torch.ops.aten.index.Tensor": 1}
    assert (found.number, found.vectorized) == (4, 1)


def test_an_assertion_of_generated_code_raises() -> None:
    assert assertions_in_code(CODE) == (8,)
