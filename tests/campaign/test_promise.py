"""Which strategy comes next: by its own record, and before it has one by that of all."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ddefuzz.campaign.promise import DOUBT, Payoff, pick
from ddefuzz.campaign.sampler import OPENING_FORM, TEMPLATES, Sampler, takes_out
from ddefuzz.generate.origin import Draw, Sample
from ddefuzz.generate.variants import UNBACKED_FORMS

DIFF = "torch.diff(x, dim=d)"


def picked(strategies: dict[str, Payoff]) -> Counter[str]:
    random = Random(7)
    return Counter(pick(strategies, random) for _ in range(2_000))


def test_a_way_without_a_record_promises_what_is_usual() -> None:
    assert Payoff().promise(0.25) == 0.25
    assert Payoff(cost=DOUBT, gained=DOUBT).promise(0.0) == 0.5
    assert Payoff(cost=1e6, gained=1e6).promise(0.0) == pytest.approx(1.0, abs=1e-3)


def test_what_brings_more_comes_more_often_and_what_brings_nothing_seldom() -> None:
    found = picked({"much": Payoff(200, 20), "little": Payoff(200, 5), "nothing": Payoff(200, 0), "new": Payoff()})
    assert found["much"] > found["new"] > found["little"] > found["nothing"] > 0


def test_templates_take_a_tensor() -> None:
    assert DIFF in TEMPLATES
    assert "a // k" not in TEMPLATES


def test_a_record_is_forgotten() -> None:
    payoff = Payoff(100, 50)
    for _ in range(200):
        payoff.forget()
    assert payoff.promise(0.01) < 0.1


def test_each_op_of_torch_comes_once_before_any_form_is_chosen() -> None:
    sampler, random = Sampler(("add", "chunk", "diff"), (DIFF,), 7), Random(7)
    opening = [sampler.next(random) for _ in range(3)]
    assert {(one.op, one.form, one.number) for one in opening} == {
        (op, OPENING_FORM, 0) for op in ("add", "chunk", "diff")
    }
    assert not sampler.opening
    for one in opening:
        sampler.learn(one, one, 5, opening=True)
    assert all(payoff == Payoff() for payoff in sampler.forms.values()), "the opening says nothing of forms"
    later = [sampler.next(random) for _ in range(400)]
    assert {one.op for one in later} == {"add", "chunk", "diff", DIFF}
    assert {one.form for one in later} == set(UNBACKED_FORMS)


def test_a_form_is_credited_with_what_was_made_in_it() -> None:
    sampler = Sampler((), (DIFF,), 7)
    asked = Sample(DIFF, "out", 0, 0)
    sampler.learn(asked, Draw(0), 3, opening=False)
    assert (sampler.forms["out"], sampler.of_ops[DIFF]) == (Payoff(), Payoff(1, 0))
    sampler.learn(asked, Sample(DIFF, "layout", 2, 0), 3, opening=False)
    assert (sampler.forms["out"], sampler.forms["layout"]) == (Payoff(), Payoff(1, 3))
    assert sampler.of_ops[DIFF] == Payoff(2, 3)


def test_only_what_takes_out_is_asked_for_it() -> None:
    assert takes_out("norm.nuc")
    assert takes_out("linalg.det")
    assert not takes_out("nn.functional.dropout3d")
    sampler, random = Sampler(("linalg.det", "nn.functional.dropout3d"), (), 7), Random(7)
    asked = [sampler.next(random) for _ in range(300)]
    assert {one.op for one in asked if one.form == "out"} == {"linalg.det"}
