"""Tests of the changes in the form of their file, and of the copy of torch that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.answers.patch import Patch, Source
from ddefuzz.errors import InputError
from ddefuzz.files import unified_diff
from ddefuzz.fixes.change import in_form_of_file
from ddefuzz.fixes.out_meta import in_source
from ddefuzz.fixes.verify import apply_fault, copy_with, torch_folder

SCRIPTED, OTHER = "torch/nn/functional.py", "torch/_refs/__init__.py"
TRACED = "torch/nn/attention/flex_attention.py"
TEXT = '''import torch
from torch._jit_internal import unused as _jit_unused


def loss(input: Tensor, target: Tensor, n: int | None = None) -> Tensor:
    """A loss."""
    if target.size() != input.size():
        raise ValueError(
            f"found {target.size()}, "
            "expected another"
        )
    if n is not None and n >= input.size(0):
        raise AssertionError("n")
    if input.numel() == 0:
        return target
    return input


class Cell(Module):
    def forward(self, input: Tensor) -> Tensor:
        if input.dim() == 1:
            return input
        elif min(self.size, input.size(0)) > 4:
            message = "too large"
            raise RuntimeError(message)
        return input
'''


def changed(file: str, anchor: str, form: str) -> str:
    source = Source(TEXT)
    line = next(number for number, one in enumerate(TEXT.splitlines(), 1) if anchor in one)
    patch = next(one for one in in_form_of_file(source, file, line, anchor) if one.form == form)
    return patch.after


def test_a_check_of_a_file_that_is_only_traced_is_a_function_in_place_of_the_old_code() -> None:
    """dynamo refuses a check whose message closes over a tensor."""
    after = changed(TRACED, "target.size() != input.size()", "torch._check")
    assert "    _check_loss_target(target, input)\n    if n is not None" in after
    assert "is_scripting" not in after


def test_a_check_of_a_scripted_file_is_a_function_beside_the_old_code() -> None:
    after = changed(SCRIPTED, "target.size() != input.size()", "torch._check")
    assert after == TEXT.replace(
        "def loss",
        """@_jit_unused
def _check_loss_target(target: Tensor, input: Tensor) -> None:
    from torch.fx.experimental.symbolic_shapes import guard_or_true, sym_eq

    holds = sym_eq(target.size(), input.size())
    if not guard_or_true(holds):
        raise ValueError(
            f"found {target.size()}, "
            "expected another"
        )
    torch._check_value(holds)


def loss""",
    ).replace(
        """    if target.size() != input.size():
        raise ValueError(
            f"found {target.size()}, "
            "expected another"
        )
""",
        """    if torch.jit.is_scripting() or torch.jit.is_tracing():
        if target.size() != input.size():
            raise ValueError(
                f"found {target.size()}, "
                "expected another"
            )
    else:
        _check_loss_target(target, input)
""",
    )


def test_an_assertion_stays_one_and_other_clauses_still_decide() -> None:
    after = changed(SCRIPTED, "n >= input.size(0)", "torch._check")
    assert "def _check_loss_n(n: int, input: Tensor) -> None:" in after
    assert (
        "    if n is not None:\n"
        "        holds = n < input.size(0)\n"
        "        if not isinstance(holds, torch.SymBool):\n"
        "            holds = bool(holds)\n"
        "        if not guard_or_true(holds):\n"
        '            raise AssertionError("n")\n'
        "        torch._check_with(AssertionError, holds, None)\n"
    ) in after


def test_a_second_check_of_an_argument_has_a_name_of_its_own() -> None:
    text = """def rows(x: Tensor, low: int, high: int):
    if (
        high
        > x.dim()
    ):
        raise ValueError(high)
    if low > x.size(0):
        raise ValueError(low)
    if low + 1 > x.size(0):
        raise ValueError(low)
    if high_enough_for_all_rows_of_the_matrix_and_more(low, x.size(0)) > x.size(0) + high:
        raise ValueError(high)
"""
    for anchor, name in (("low > x.size(0)", "_check_rows_low"), ("low + 1 > x.size(0)", "_check_rows_low_2")):
        source = Source(text)
        line = next(number for number, one in enumerate(text.splitlines(), 1) if anchor in one)
        patch = next(iter(in_form_of_file(source, SCRIPTED, line, anchor)))
        assert f"def {name}(low: int, x: Tensor) -> None:" in patch.after


def test_a_long_call_of_a_check_is_folded() -> None:
    text = """def multi_head_attention_forward(embed_dim_to_check: int, x: Tensor):
    if x:
        embed_dim = x.size(0)
        if embed_dim != embed_dim_to_check:
            raise AssertionError(embed_dim)
"""
    patch = next(iter(in_form_of_file(Source(text), SCRIPTED, 4, "embed_dim != embed_dim_to_check")))
    assert patch.after.endswith("""        else:
            _check_multi_head_attention_forward_embed_dim_to_check(
                embed_dim, embed_dim_to_check
            )
""")


def test_a_value_of_a_scripted_file_keeps_the_old_code_for_scripting() -> None:
    after = changed(SCRIPTED, "input.numel() == 0", "guard_or_false")
    assert (
        "    if (\n"
        "        input.numel() == 0\n"
        "        if torch.jit.is_scripting() or torch.jit.is_tracing()\n"
        "        else _loss_condition_input(input)\n"
        "    ):\n"
    ) in after
    assert "    return guard_or_false(input.numel() == 0)\n\n\ndef loss" in after


def test_a_method_has_its_check_before_its_class_and_an_elif_stays_one() -> None:
    after = changed("torch/nn/modules/x.py", "min(self.size, input.size(0)) > 4", "torch._check")
    assert (
        """@_jit_unused
def _check_cell_input(self: "Cell", input: Tensor) -> None:
    from torch.fx.experimental.symbolic_shapes import guard_or_true

    holds = torch.sym_min(self.size, input.size(0)) <= 4
    if not isinstance(holds, torch.SymBool):
        holds = bool(holds)
    if not guard_or_true(holds):
        message = "too large"
        raise RuntimeError(message)
    torch._check(holds)


class Cell(Module):
"""
        in after
    )
    assert (
        """            return input
        elif torch.jit.is_scripting() or torch.jit.is_tracing():
            if min(self.size, input.size(0)) > 4:
                message = "too large"
                raise RuntimeError(message)
        else:
            _check_cell_input(self, input)
        return input
"""
        in after
    )


def test_clauses_of_several_lines_are_not_taken_apart() -> None:
    text = """def f(a, n):
    if (
        a
        if n
        else 0
    ) or n > 3:
        raise RuntimeError("no")
"""
    forms = [one.form for one in in_form_of_file(Source(text), SCRIPTED, 6, "n > 3")]
    assert "torch._check" not in forms
    assert "guard_or_false" in forms


def test_another_file_has_its_imports_in_the_function() -> None:
    after = changed(OTHER, "input.numel() == 0", "guard_or_false")
    assert '"""A loss."""\n    from torch.fx.experimental.symbolic_shapes import guard_or_false\n\n' in after
    assert "    if guard_or_false(input.numel() == 0):\n" in after


def test_the_copy_is_torch_with_the_changed_file(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    for name in ("__init__.py", "nn/__init__.py", "nn/functional.py", "nn/__pycache__/functional.pyc", "lib/a.so"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    (tmp_path / "copy").mkdir()
    copy_with(tmp_path / "copy", {"torch/nn/functional.py": "changed"}, package)
    copy = tmp_path / "copy" / "torch"
    assert (copy / "nn" / "functional.py").read_text() == "changed"
    assert (package / "nn" / "functional.py").read_text() == "nn/functional.py"
    assert (copy / "lib").is_symlink()
    assert (copy / "nn" / "__init__.py").is_symlink()
    assert not (copy / "nn" / "__pycache__").exists()  # Python would write the code of the changed file there


def test_a_patch_applies_to_the_files_of_the_installed_torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (torch_folder() / "version.py").read_text()
    patch = Patch("", "torch/version.py", "", before, f"{before}more = 1\n")
    assert apply_fault(patch.diff, [patch.file]) == ""
    other = unified_diff("torch/version.py", "another file\n", "changed\n")
    assert "patch does not apply" in apply_fault(other, [patch.file]) or "failed" in apply_fault(other, [patch.file])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="git: cannot be run"):
        apply_fault(patch.diff, [patch.file])


@pytest.mark.parametrize(
    ("kernel", "before", "after"),
    [
        (
            "topk",
            "@register_meta(aten.topk.default)",
            "@register_meta([aten.topk.default, aten.topk.values])\n"
            '@out_wrapper("values", "indices", exact_dtype=True)',
        ),
        (
            "scatter_src",
            "@register_meta([aten.scatter.src, aten.scatter.value])",
            "@register_meta(\n    [\n        aten.scatter.src,\n        aten.scatter.value,\n"
            "        aten.scatter.src_out,\n        aten.scatter.value_out,\n    ]\n)\n@out_wrapper(exact_dtype=True)",
        ),
        ("mode", '@register_meta([aten.mode.default, aten.mode.values])\n@out_wrapper("values", "indices")', ""),
        ("topk", "@register_meta([aten.topk.default, aten.topk.values])", ""),
        ("gather", "@register_meta(aten.topk.default)", ""),
        ("view", "@register_meta(aten.view.default)", ""),
    ],
    ids=["one", "overloads", "has a wrapper", "has out", "another op", "no out overload"],
)
def test_a_meta_function_serves_out_too(kernel: str, before: str, after: str) -> None:
    text = f"import torch\n\n\n{before}\ndef meta(self):\n    return self\n"
    made = [patch.after for patch in in_source(Source(text), kernel)]
    assert made == ([text.replace(before, after)] if after else [])
