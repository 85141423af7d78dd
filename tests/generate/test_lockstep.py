"""A growing program runs at two data sizes at once, and a step that fails is removed completely."""

from __future__ import annotations

from ddefuzz.generate.lockstep import Choices, Lockstep, strict_eager
from ddefuzz.generate.tensors import add_leaf, draw_size, literal
from ddefuzz.ops.spec import Leaf
from ddefuzz.program.expressions import parse_expression, print_expression
from ddefuzz.program.model import Dim, Recipe


def nonzero_of_mask() -> Lockstep:
    lockstep = Lockstep("2")
    lockstep.add_input("bool", (Dim(6),), Recipe("trues", (4,)))
    assert lockstep.add_step(parse_expression("torch.nonzero(x0)"))
    return lockstep


def test_what_data_decides_varies() -> None:
    lockstep = nonzero_of_mask()
    mask, rows = lockstep.tensors
    assert not mask.varies
    assert rows.varies
    assert (tuple(rows.left.shape), tuple(rows.right.shape)) == ((4, 1), (2, 1))


def test_an_unbacked_input_varies() -> None:
    lockstep = Lockstep("1")
    handle = lockstep.add_input("float32", (Dim(5, "u0"), Dim(3)), Recipe("normal"))
    assert (tuple(handle.left.shape), tuple(handle.right.shape)) == ((5, 3), (1, 3))


def test_a_leaf_gets_symbols_that_no_other_input_has() -> None:
    """A mutated program may have any symbols: here the second one after the first that is free."""
    lockstep = Lockstep("1")
    lockstep.add_input("float32", (Dim(5, "u2"),), Recipe("normal"))
    add_leaf(lockstep, Leaf((3, 4, 6), (0, 2)))
    assert [dim.symbol for dim in lockstep.inputs[1].shape] == ["u1", None, "u3"]


def test_a_step_that_raises_at_one_size_is_not_added() -> None:
    lockstep = nonzero_of_mask()
    assert lockstep.add_step(parse_expression("t0[3]")) is None
    assert len(lockstep.steps) == 1


def test_a_step_that_warns_is_not_added_however_often() -> None:
    lockstep = nonzero_of_mask()
    lockstep.add_step(parse_expression("t0[0].float()"))
    with strict_eager():
        assert lockstep.add_step(parse_expression("torch.var(t1)")) is None
        assert lockstep.add_step(parse_expression("torch.var(t1)")) is None


def test_a_value_of_another_rank_on_the_other_side_is_not_added() -> None:
    lockstep = Lockstep("1")
    lockstep.add_input("bool", (Dim(6),), Recipe("trues", (4,)))
    lockstep.add_step(parse_expression("torch.nonzero(x0)"))
    assert lockstep.add_step(parse_expression("torch.squeeze(t0)")) is None


def test_tuples_of_one_length_are_unpacked_and_others_indexed() -> None:
    lockstep = nonzero_of_mask()
    lockstep.add_step(parse_expression("torch.chunk(t0, 2)"))
    made = lockstep.add_step(parse_expression("torch.unbind(t0)"))
    assert [step.targets for step in lockstep.steps] == [("t0",), ("t1a", "t1b"), ("p2",)]
    assert made is not None
    assert [print_expression(handle.expr) for handle in made] == ["p2[0]", "p2[1]"]


def test_a_check_has_no_target() -> None:
    lockstep = nonzero_of_mask()
    assert lockstep.add_step(parse_expression("torch._check(t0.shape[0] <= 6)")) == ()
    assert lockstep.steps[-1].targets == ()


def test_rollback_takes_back_inputs_steps_and_values() -> None:
    lockstep = nonzero_of_mask()
    mark, program = lockstep.mark(), lockstep.program()
    lockstep.add_input("float32", (Dim(2),), Recipe("normal"))
    lockstep.add_step(parse_expression("t0.shape[0] + 1"))
    lockstep.rollback(mark)
    assert lockstep.program() == program
    assert (len(lockstep.tensors), len(lockstep.ints)) == (2, 0)


def test_every_unread_value_is_returned() -> None:
    lockstep = nonzero_of_mask()
    lockstep.add_step(parse_expression("t0 + 1"))
    lockstep.add_step(parse_expression("t0.shape[0]"))
    assert print_expression(lockstep.program().returns) == "(t1, n2)"


def test_a_drawn_size_is_within_its_bounds_on_both_sides() -> None:
    lockstep = nonzero_of_mask()
    varied = 0
    for word in range(0, 10_000, 7):
        size = draw_size(lockstep, Choices(word * 7919), literal(1), literal(5))
        assert 1 <= size.left <= 5
        assert 1 <= size.right <= 5
        varied += size.varies
    assert varied > 500


def test_choices_are_digits_of_the_word() -> None:
    choices = Choices(3 + 5 * (2 + 7 * 6))
    assert (choices.below(5), choices.below(7), choices.below(10), choices.below(10)) == (3, 2, 6, 0)
