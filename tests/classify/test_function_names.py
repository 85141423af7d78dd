"""Function names, anchors and sites of hand-made records."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.classify import chain
from ddefuzz.classify.aliases import decision, outlined
from ddefuzz.classify.anchor import callee, native_anchor, python_anchor
from ddefuzz.classify.chain import NOT_TRACED, died, refused
from ddefuzz.classify.plumbing import is_cxx_plumbing
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import USER_SITE, function_name, quoted_site, site
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.instrument.events import Frame, Place, RaisedError
from ddefuzz.oracles.capture import judge


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("at::native::diff_helper(at::Tensor const&, long, long)", "at::native::diff_helper"),
        ("long at::Tensor::item<long>() const", "at::Tensor::item"),
        ("c10::operator>(long, c10::SymInt const&)", "c10::operator>"),
        ("c10::operator==(c10::SymInt const&, int)", "c10::operator=="),
        ("c10::SymInt::operator<=(c10::SymInt const&) const", "c10::SymInt::operator<="),
        ("c10::SymInt::operator long() const", "c10::SymInt::operator long"),
        (
            "at::native::(anonymous namespace)::resize_fft_input(at::Tensor, c10::ArrayRef<long>)",
            "at::native::(anonymous namespace)::resize_fft_input",
        ),
        (
            "std::conditional<false, at::Tensor&, at::Tensor>::type "
            "at::native::(anonymous namespace)::_dropout_impl<false, true>(at::Tensor const&)",
            "at::native::(anonymous namespace)::_dropout_impl",
        ),
        ("at::native::f(at::Tensor const&)::{lambda(at::Tensor)#1}::operator()(at::Tensor) const", "at::native::f"),
        ("c10::Dispatcher::callBoxed(c10::OperatorHandle const&) const [clone .isra.0]", "c10::Dispatcher::callBoxed"),
        (
            "pybind11::object pybind11::detail::object_api<X>::operator()<(pybind11::policy)1>(char const*) const",
            "pybind11::detail::object_api::operator()",
        ),
        ("at::native::chunk", "at::native::chunk"),
        (
            "at::Tensor at::functorch::slice_backward_generated_plumbing<at::Tensor (*)(at::Tensor const&), "
            "&at::functorch::(anonymous namespace)::slice_backward_batch_rule>(at::Tensor const&)",
            "at::functorch::(anonymous namespace)::slice_backward_batch_rule",
        ),
        ("??", "??"),
    ],
)
def test_a_printed_function_has_a_plain_name(printed: str, name: str) -> None:
    assert function_name(printed) == name


@pytest.mark.parametrize(
    ("code", "anchor", "called"),
    [
        ("a.numel()==0", "a.numel() == 0", ".numel"),
        ("if a.numel() == 0:", "a.numel() == 0", ".numel"),
        ("elif torch.any(var < 0):\n        raise ValueError", "torch.any(var < 0)", "torch.any"),
        ("return out.view(\n    1,\n  2)", "out.view(1, 2)", ".view"),
        ("y if n>3 else z", "n > 3", "n > 3"),
        ("for x in range(n):", "range(n)", "range"),
        ("torch.nn.functional.pad(x, [n])", "torch.nn.functional.pad(x, [n])", "torch.nn.functional.pad"),
        ("x[torch.sym_min(n, 3)]", "x[torch.sym_min(n, 3)]", ".__getitem__"),
        ("f(x[n])", "f(x[n])", "f"),
        ("torch.max(x, 0)[1]", "torch.max(x, 0)[1]", "torch.max"),
        ("f(x)[:n]", "f(x)[:n]", ".__getitem__"),
        ("torch.nn.ReLU().eval()(x)", "torch.nn.ReLU().eval()(x)", "torch.nn.ReLU"),
        ("torch.vmap(lambda a: a)(x)", "torch.vmap(lambda a: a)(x)", "torch.vmap"),
        ("if a:\n        f(b)\n    else:\n        f(c)", "a", "f"),
        ("foo(a,", "foo(a,", "foo(a,"),
        ("", "", ""),
    ],
)
def test_an_anchor_is_normal_code(code: str, anchor: str, called: str) -> None:
    frame = Frame("user.py", 1, "f", code)
    assert python_anchor(frame) == anchor
    assert callee(frame) == called


SYM_NODE = Frame("??", 0, "torch::impl::PythonSymNodeImpl::guard_bool(char const*, long)")
BOOL = Frame("??", 0, "c10::SymBool::guard_bool(char const*, long) const")
BOUND = Frame("??", 0, "torch::autograd::THPVariable_diff(_object*, _object*, _object*)")
DIFF = Frame("??", 0, "at::native::diff_helper(at::Tensor const&, long, long)")
OUTER = Frame("??", 0, "at::native::outer(at::Tensor const&)")
PLUMBING = Frame("torch/fx/experimental/sym_node.py", 1, "guard_bool")
USER = Frame("model.py", 7, "forward", "torch.diff(x)", True)
DECOMPOSITION = Frame("torch/_refs/__init__.py", 9, "diff", "a.numel() == 0", True)
DYNAMO = Frame("torch/_dynamo/symbolic_convert.py", 1, "step")
SCRIPT = Frame("train.py", 3, "main", "compiled(x)")
HEADER = Place("C++", "c10/core/SymInt.h", 301)


def raised(**changes: object) -> RaisedError:
    whole = {"expression": "Eq(u0, 0)", "method": "guard_bool", "place": HEADER, "python": (), **changes}
    return RaisedError(**whole)  # type: ignore[arg-type]


GENERATED = "/tmp/x/c5wypno32zdrbfas2mowfeqdlydh247pjckwrjfg2txbloycw5em.py"
EXECUTE = f"{Path(chain.__file__).parents[1]}/execute"


@pytest.mark.parametrize(
    "frames",
    [
        ((GENERATED, "call"), ("torch/_inductor/output_code.py", "__call__")),
        (  # of a campaign, which compiles the kernels of several programs: torch.trace of a tensor (u0, 1), at size 0
            (f"{EXECUTE}/together.py", "call"),
            (f"{EXECUTE}/together.py", "__call__"),
            (GENERATED, "call"),
            ("torch/_inductor/output_code.py", "__call__"),
            (f"{EXECUTE}/exercise.py", "_run"),
            (f"{EXECUTE}/together.py", "observe_together"),
        ),
    ],
)
def test_a_crash_in_a_compiled_kernel_is_in_code_of_inductor(frames: tuple[tuple[str, str], ...]) -> None:
    stack = "Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n"
    stack += "".join(f'  File "{file}", line 128 in {function}\n' for file, function in frames)
    observation = Observation("inductor", EXPLICIT, "crash", reason="SIGSEGV (Segmentation fault)", output=stack)
    assert str(died(observation).site) == "code generated by inductor"


def test_a_crash_in_an_op_of_a_captured_graph_is_not_in_user_code() -> None:
    own = Path(chain.__file__).parents[1]
    stack = (
        "Fatal Python error: Floating point exception\n\nStack (most recent call first):\n"
        '  File "torch/_ops.py", line 875 in __call__\n'
        '  File "<eval_with_key>.4", line 9 in forward\n'
        '  File "torch/fx/graph_module.py", line 900 in call_wrapped\n'
        f'  File "{own}/execute/stages.py", line 213 in run\n'
        f'  File "{own}/execute/exercise.py", line 100 in _call\n'
    )
    observation = Observation("aot", EXPLICIT, "crash", reason="SIGFPE", output=stack)
    assert str(died(observation).site) == "an unknown place"


def test_the_site_is_the_cxx_function_that_guards() -> None:
    found, frame = site(raised(python=(USER, PLUMBING), native=(BOUND, DIFF, BOOL, SYM_NODE)))
    assert (found, frame) == (Site("C++", None, "at::native::diff_helper"), DIFF)


def test_a_cxx_function_without_a_namespace_is_a_site() -> None:
    names = ("cfunction_vectorcall_FASTCALL", "DTensor_compute_global_tensor_info(_object*, _object* const*, long)")
    called = tuple(Frame("??", 0, name) for name in names)
    found, _ = site(raised(python=(USER, DECOMPOSITION, PLUMBING), native=(OUTER, *called, BOOL, SYM_NODE)))
    assert found == Site("C++", None, "DTensor_compute_global_tensor_info")


def test_only_the_guarding_native_call_counts() -> None:
    found, _ = site(raised(python=(USER, DECOMPOSITION, PLUMBING), native=(OUTER, BOUND, BOOL, SYM_NODE)))
    assert found == Site("Python", "torch/_refs/__init__.py", "diff")


def test_a_guard_in_a_binding_belongs_to_its_python_caller() -> None:
    inlined = raised(place=Place("C++", "c10/core/TensorImpl.h", 9), python=(USER,), native=(BOUND, BOOL, SYM_NODE))
    assert site(inlined) == (USER_SITE, USER)


def test_frames_outside_of_dynamo_are_not_user_code() -> None:
    found, frame = site(raised(python=(SCRIPT, DYNAMO, PLUMBING), traced=(USER,), place=Place("Python", "x.py", 1)))
    assert (found, frame) == (USER_SITE, USER)


def test_a_program_is_user_code_and_generated_code_is_not() -> None:
    program = Frame("<program>", 4, "program", "n > 3", True)
    made = Frame("<eval_with_key>.3", 4, "forward", "n > 3")
    assert site(raised(python=(program, made), place=Place("Python", "x", 1))) == (USER_SITE, program)


def test_a_comprehension_is_named_by_its_function() -> None:
    inner = Frame("torch/_refs/__init__.py", 10, "<genexpr>", "n == 1", True)
    found, _ = site(raised(python=(USER, DECOMPOSITION, inner), place=Place("Python", "x", 1)))
    assert found == Site("Python", "torch/_refs/__init__.py", "diff")


def test_the_operator_is_a_frame_or_the_headers_line() -> None:
    operator = Frame("??", 0, "c10::operator>(long, c10::SymInt const&)")
    assert native_anchor(raised(native=(BOUND, DIFF, operator, BOOL, SYM_NODE))) == "guard_bool operator>"
    line = "return sym_lt(o).guard_bool(__FILE__, __LINE__);"
    assert native_anchor(raised(native=(BOUND, DIFF, BOOL, SYM_NODE), header_line=line)) == "guard_bool operator<"
    assert native_anchor(raised(native=(BOUND, DIFF, SYM_NODE), method="guard_or_false")) == "guard_or_false"


def test_a_crash_is_located_by_the_stack_that_python_printed() -> None:
    output = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/env/site-packages/torch/_ops.py", line 875 in __call__\n'
        '  File "/env/site-packages/torch/_refs/__init__.py", line 12 in roll\n'
    )
    (failure,) = judge([Observation("export", EXPLICIT, "crash", "SIGSEGV (Segmentation fault)", output=output)])
    placed = died(failure.observation)
    assert placed.site == Site("Python", "torch/_refs/__init__.py", "roll")
    assert placed.anchor == "SIGSEGV (Segmentation fault)"


def test_a_hang_without_a_stack_has_no_site() -> None:
    (failure,) = judge([Observation("compile", EXPLICIT, "timeout", "stopped after 30 s")])
    placed = died(failure.observation)
    assert (placed.site, placed.anchor) == (Site("Python", None, None), "stopped after … s")


def test_a_function_that_was_inlined_is_the_site() -> None:
    assert outlined("at::native::cross", "guard_bool operator==") == "at::native::_default_cross_dim"
    assert outlined("at::native::cross", "guard_bool operator<") == "at::native::cross"


def test_two_anchors_of_one_decision_become_one() -> None:
    place = ("torch/_prims/__init__.py", "_collapse_view_helper")
    both = "if shape[idx] != 1: stride = min(stride, strides[idx])"
    assert {decision(*place, code) for code in ("shape[idx] != 1", "min(stride, strides[idx])")} == {both}
    assert decision("torch/_prims/__init__.py", "other", "min(a, b)") == "min(a, b)"


@pytest.mark.parametrize(
    "code", ["min(size) <= 0", "q <= min(m, n)", "if min(size) <= 0:", "min(size)", "y if 0 < max(size) else z"]
)
def test_a_comparison_with_min_or_max_has_that_call_as_anchor(code: str) -> None:
    assert python_anchor(Frame("user.py", 1, "f", code)).startswith(("min(", "max("))


QUOTED = """numel() is refused
frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x1 in torch/lib/libc10.so)
frame #3: <unknown function> + 0x827ac (0x2 in torch/lib/libc10.so)
frame #4: at::meta::structured_argmax::meta(at::Tensor const&, bool) + 0x15 (0x3 in torch/lib/libtorch_cpu.so)
<omitting python frames>
frame #9: at::native::outer(at::Tensor const&) + 0x15 (0x3 in torch/lib/libtorch_cpu.so)
"""


def test_the_cxx_function_that_raised_is_taken_from_the_message() -> None:
    found = quoted_site(QUOTED)
    assert found is not None
    assert function_name(found.function) == "at::meta::structured_argmax::meta"
    assert quoted_site(QUOTED.replace("at::meta", "c10")) is None


@pytest.mark.parametrize(
    ("name", "plumbing"),
    [
        ("c10::SymbolicShapeMeta::set_materialized_sizes", True),
        ("c10::SymbolicShapeMeta::compute_strides_like_channels_last_2d", False),
        ("c10::OperatorHandle::callBoxedForDispatchKey", True),
        ("at::TensorBase::sizes", True),
        ("at::infer_size_impl", False),
        ("torch::autograd::THPVariable_chunk", True),
        ("torch::autograd::VariableType::(anonymous namespace)::block_diag", False),
        ("at::functorch::BatchedTensorImpl::sizes_custom", True),
        ("at::functorch::(anonymous namespace)::cat_batching_rule", False),
        ("mine::my_op", False),
        ("", True),
    ],
)
def test_cxx_is_plumbing_by_its_namespace(name: str, plumbing: bool) -> None:
    assert is_cxx_plumbing(name) == plumbing


TITLE = "Attempted to call function marked as skipped"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Unsupported Tensor.resize_() call\n  Explanation: no `Tensor.resize_()`.", ("Tensor.resize_", NOT_TRACED)),
        (
            f"{TITLE}\n function `add` in file `torch/_compile.py`\n module: torch._refs, qualname: add, skip",
            ("torch._refs.*", NOT_TRACED),
        ),
        (
            f"{TITLE}\n in file `torch/a.py`\n module: torch.a, qualname: f.<locals>.inner, skip reason",
            ("torch.a.f", NOT_TRACED),
        ),
        (
            f"{TITLE}\n  Explanation: the builtin `torch._VariableFunctionsClass.resize_as_.` is",
            ("Tensor.resize_as_", NOT_TRACED),
        ),
        (
            f"{TITLE}\n  Explanation: the builtin `torch._VariableFunctionsClass.sparse_coo_tensor.` is",
            ("torch.sparse_coo_tensor", NOT_TRACED),
        ),
        (
            "torch.* op returned non-Tensor\n context: example_value type: bool; op: call_method; target: is_same_size",
            ("Tensor.is_same_size", "torch.* op returned non-Tensor"),
        ),
        (
            "Attempted to use `torch.nn.functional.one_hot` with x\n  Explanation: no.",
            ("torch.nn.functional.one_hot", "Attempted to use … with x"),
        ),
        (
            "Unsupported function call (delayed)\n when calling `L['x'].squeeze_`. Reason: In-place views\n",
            ("", "In-place views"),
        ),
        ("Something new", ("", "Something new")),
    ],
)
def test_a_graph_break_names_the_function_and_the_reason(message: str, expected: tuple[str, str]) -> None:
    assert refused(message) == expected
