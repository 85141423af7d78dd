"""The yields of strategies, and the sampler: rates, decay, and the choice of ops and forms."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ddefuzz.campaign.guide import OPENING_FORM, PRIOR_COST, TEMPLATES, Gain, Sampler, Yield, pick, takes_out
from ddefuzz.generate.profiles import Draw, Sample
from ddefuzz.generate.variants import UNBACKED_FORMS

DIFF = "torch.diff(x, dim=d)"


def picked(strategies: dict[str, Yield]) -> Counter[str]:
    random = Random(7)
    return Counter(pick(strategies, random) for _ in range(2_000))


def test_a_strategy_without_a_record_has_the_prior_rate() -> None:
    assert Yield().rate(0.25) == 0.25
    assert Yield(cost=PRIOR_COST, gained=PRIOR_COST).rate(0.0) == 0.5
    assert Yield(cost=1e6, gained=1e6).rate(0.0) == pytest.approx(1.0, abs=1e-3)


def test_strategies_are_picked_in_order_of_their_yield() -> None:
    found = picked({"much": Yield(200, 20), "little": Yield(200, 5), "nothing": Yield(200, 0), "new": Yield()})
    assert found["much"] > found["new"] > found["little"] > found["nothing"] > 0


def test_templates_take_a_tensor() -> None:
    assert DIFF in TEMPLATES
    assert "a // k" not in TEMPLATES


def test_old_records_decay() -> None:
    record = Yield(100, 50)
    for _ in range(200):
        record.decay()
    assert record.rate(0.01) < 0.1


def test_each_op_of_torch_is_sampled_once_before_forms_are_chosen() -> None:
    sampler, random = Sampler(("add", "chunk", "diff"), (DIFF,), 7), Random(7)
    opening = [sampler.next(random) for _ in range(3)]
    assert {(one.op, one.form, one.number) for one in opening} == {
        (op, OPENING_FORM, 0) for op in ("add", "chunk", "diff")
    }
    assert not sampler.opening
    gains = [gain for one in opening for gain in sampler.gains(one, one, 5, opening=True)]
    assert {gain.of for gain in gains} == {"op"}, "the opening says nothing of forms"
    later = [sampler.next(random) for _ in range(400)]
    assert {one.op for one in later} == {"add", "chunk", "diff", DIFF}
    assert {one.form for one in later} == set(UNBACKED_FORMS)


def test_a_form_is_credited_only_with_samples_made_in_it() -> None:
    sampler = Sampler((), (DIFF,), 7)
    chosen = Sample(DIFF, "out", 0, 0)
    assert list(sampler.gains(chosen, Draw(0), 3, opening=False)) == [Gain("op", DIFF, 1, 0)]
    made = Sample(DIFF, "layout", 2, 0)
    gains = list(sampler.gains(chosen, made, 3, opening=False))
    assert gains == [Gain("form", "layout", 1, 3), Gain("op", DIFF, 1, 3)]


def test_the_form_out_is_chosen_only_for_ops_that_take_it() -> None:
    assert takes_out("norm.nuc")
    assert takes_out("linalg.det")
    assert not takes_out("nn.functional.dropout3d")
    sampler, random = Sampler(("linalg.det", "nn.functional.dropout3d"), (), 7), Random(7)
    chosen = [sampler.next(random) for _ in range(300)]
    assert {one.op for one in chosen if one.form == "out"} == {"linalg.det"}
