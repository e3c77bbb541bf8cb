"""What a search owes for what is scarce at a moment: shares of the relaxation's prices, none where nothing is."""

from dataclasses import replace

import pytest

from experiments.joint.cases import Case
from solvers.ir import Limits
from solvers.joint.given import Given, given_of
from solvers.joint.guided import LEAVES, STAYS, relaxed_prices, shadow_of
from solvers.joint.moment import Proof, Relaxation
from tests.solvers.joint.layered import layered


def _proof(given: Given, stage: int) -> Proof:
    found = Relaxation(given, stage).proof(Limits(time_s=60.0), "highs")
    assert found is not None
    return found


def test_what_leaves_before_the_moment_costs_a_share_of_its_price() -> None:
    given = given_of(layered(0.02, hardware="rtx-3090"))
    proof = max((_proof(given, stage) for stage in range(9, len(given), 9)), key=lambda proof: proof.bound_us)
    shadow = shadow_of(given, proof)
    assert shadow is not None and shadow.stage == proof.stage
    prices, priced = relaxed_prices(given, proof), 0
    for i, ticks in enumerate(shadow.leaves):
        read = next((user for user in given.graph.users[i] if user > proof.stage), len(given) - 1)
        assert ticks == (int(LEAVES * prices.swap(i, i, read)) if i < proof.stage else 0)
        priced += ticks > 0
    assert priced > 5


def test_a_price_of_pieces_is_one_of_bytes() -> None:
    given = given_of(layered(0.02))
    prices = {"step": 4_000, "memory/1": -8, "memory/1000": -16_000}
    shadow = shadow_of(given, Proof(len(given) // 2, given.base_us, prices, {}))
    assert shadow is not None and not any(shadow.leaves)
    assert shadow.stays == pytest.approx(STAYS * (8 + 16) / 4_000)


def test_prices_that_no_step_could_owe_are_left_out() -> None:
    given = given_of(layered(0.02))
    proof = Proof(len(given) // 2, given.base_us, {"step": 1, "memory/1": -(2**50)}, {})
    assert shadow_of(given, proof) is None
    assert shadow_of(given, replace(proof, duals={})) is not None


def test_on_mixtral_communication_repeated_in_the_backward_pass_owes_less_than_what_leaves_for_it() -> None:
    given = given_of(Case("mixtral-8x7b", "a100-sxm-80", 0.02, 8).problem())
    names = [op.name for op in given.problem.ops]
    shadow = shadow_of(given, _proof(given, names.index("head")))
    assert shadow is not None
    gather, second = (names.index(f"layer 16 {name}") for name in ("all-gather 2", "fc2"))
    assert given.time[gather] < shadow.leaves[gather] and shadow.leaves[second] < given.time[second]
