"""Counts of compilations over a sequence of sizes, on real torch: the reference figures, and whose guard it was."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.classify.site import USER_SITE, site
from ddefuzz.generate import opinfo
from ddefuzz.oracles.recompilation import MODES, Mode, as_raised
from ddefuzz.oracles.recompilation_run import count, varying
from ddefuzz.sweep.recompile import FORMS, RecompileTask, SequenceCount
from ddefuzz.sweep.recompile_worker import REFERENCES, UnsizedError, ops, run_recompile, sequenced

SIZES = (5, 7, 9, 11)

REFERENCE_COUNTS = {
    "2.13": {"topk": 4, "bmm": 2, "linalg.cholesky": 4, "linalg.norm": 4, "max": 4},
    "2.15": {"topk": 2, "bmm": 2, "linalg.cholesky": 4, "linalg.norm": 4, "max": 2},
}
"""Compilations with out= and default settings, as reported for pytorch#135859 on sizes 5, 7, 9, 11."""

VERSION = ".".join(torch.__version__.split(".")[:2])


def rows(op: str, *modes: Mode) -> dict[tuple[Mode, bool], SequenceCount]:
    found = run_recompile(RecompileTask(op, SIZES, modes, ("plain", "out"))).rows
    return dict(zip([(mode, out) for mode in modes for out in (False, True)], found, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(VERSION not in REFERENCE_COUNTS, reason="no figures are known for this torch")
@pytest.mark.parametrize("op", REFERENCES)
def test_the_reference_counts_come_out_again(op: str) -> None:
    found = rows(op, "default")
    assert found["default", False].compilations == 2
    row = found["default", True]
    assert row.compilations == REFERENCE_COUNTS[VERSION][op]
    assert (row.allowed, row.without_out, row.shareable) == (2, 2, (SIZES,))
    assert row.is_above == (row.compilations > 2)
    if row.is_above:
        assert row.guard.startswith("Eq(s")
        assert row.owner == "torch"
        assert row.frame


@pytest.mark.slow
@pytest.mark.skipif(VERSION != "2.13", reason="the place is that of 2.13")
def test_the_frame_is_the_code_that_made_the_guard() -> None:
    found = rows("topk", *MODES)
    for mode in ("default", "dynamic", "marked"):
        assert (found[mode, True].frame, found[mode, True].compilations) == ("at::meta::structured_topk::meta", 4)
    assert [found[mode, False].compilations for mode in MODES] == [2, 1, 1, 1]
    unbacked = found["unbacked", True]
    assert unbacked.compilations == 0
    assert (unbacked.frame, unbacked.guard) == ("at::meta::structured_topk::meta", "u0")
    assert "Could not extract specialized integer" in unbacked.error


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] != 9 else x - 1


def as_number(x: torch.Tensor) -> torch.Tensor:
    return x * hash(x.shape[0])


def calls(*sizes: int) -> list[tuple[torch.Tensor]]:
    return [(torch.zeros(size, 4),) for size in sizes]


def test_a_guard_of_the_user_is_the_users() -> None:
    counted = count(branch, ["x"], calls(5, 7, 9, 11), "default")
    assert counted.compiled == (0, 1, 2)
    assert counted.allowed == 2
    assert counted.guard.startswith("Ne(s")
    assert counted.failed is not None
    found, frame = site(as_raised(counted.failed))
    assert found == USER_SITE
    assert frame.function == "branch"


@pytest.mark.slow
def test_allowed_are_the_keys_of_the_policy() -> None:
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert count(add, ["x"], calls(5, 7, 9), "default").allowed == 2
    assert count(add, ["x"], calls(5, 7, 9), "dynamic").allowed == 1
    same = count(add, ["x"], calls(5, 5), "default")
    assert (same.compiled, same.allowed) == ((0,), 1)
    with_one = count(add, ["x"], calls(5, 1, 0, 7), "default")
    assert with_one.allowed == 4, "5 and 7 share two graphs; 0 and 1 are their own"
    assert with_one.shareable == ((0, 3),)
    mixed = [(torch.zeros(5, 4),), (torch.zeros(4, 7).t(),), (torch.zeros(9, 4, dtype=torch.float64),)]
    assert count(add, ["x"], mixed, "dynamic").allowed == 3
    assert varying(mixed) == [(0, 0)]


def test_sizes_that_are_the_same_by_chance_are_duck_sized() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    counted = count(double, ["x"], [(torch.zeros(size, 5),) for size in (5, 7, 9)], "dynamic")
    assert (counted.compiled, counted.allowed) == ((0, 1), 1)
    assert counted.guard == "Eq(x.size()[1], x.size()[0])"
    assert counted.failed is None


def test_an_error_ends_the_sequence() -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 7:
            raise ValueError("seven")
        return x + 1

    counted = count(fail, ["x"], calls(5, 7, 9), "default")
    assert counted.error.startswith("ValueError: seven")
    assert counted.raised is None


# The functions


def test_every_op_with_out_is_listed() -> None:
    found = ops()
    with_out = [op for op in found if op in REFERENCES or opinfo.entry(op).supports_out]
    assert len(with_out) >= 250
    assert set(REFERENCES) <= set(found)
    assert all(op.startswith("nn.functional.") for op in set(found) - set(with_out))


def test_an_op_is_called_at_every_size_and_with_out() -> None:
    made = sequenced("cumsum", SIZES, FORMS)
    assert list(made) == ["plain", "out", "method", "in-place"]
    assert all(len(one.texts) == len(SIZES) for one in made.values())
    assert all(f'"{size}' in text and "out=out0" in text for size, text in zip(SIZES, made["out"].texts, strict=True))
    assert "x0.cumsum_(" in made["in-place"].texts[0]
    assert "out=(out0, out1)" in sequenced("max", SIZES, ("out",))["out"].texts[0]


def test_one_program_states_a_function_for_all_sizes() -> None:
    text = sequenced("topk", SIZES, ("out",))["out"].symbolic
    assert text is not None
    assert 'x: Float32[Tensor, "u0=5 4"], out0: Float32[Tensor, "u0=5 2"]' in text
    assert sequenced("kron", SIZES, ("out",))["out"].symbolic is None, "the size of its result is another one"


@pytest.mark.slow
def test_a_needless_compilation_is_a_sighting() -> None:
    task = RecompileTask("inner", SIZES, ("dynamic",), ("plain", "out"), record=True)
    (one,) = run_recompile(task).sightings
    assert str(one.signature) == "recompiles at at::native::inner_out [Eq(x0, n)]"


@pytest.mark.slow
def test_a_module_keeps_its_buffers_over_the_calls() -> None:
    (row,) = run_recompile(RecompileTask("cache", SIZES, ("default",))).rows
    assert (row.form, row.compilations, row.allowed, row.error) == ("module", 2, 2, "")


@pytest.mark.parametrize(
    ("op", "why"),
    [("eye", "it has no sample with a size"), ("bernoulli", "takes no out="), ("equal", "not strided tensors")],
)
def test_an_op_that_cannot_have_the_sizes_says_why(op: str, why: str) -> None:
    with pytest.raises(UnsizedError, match=why):
        sequenced(op, SIZES, FORMS)
