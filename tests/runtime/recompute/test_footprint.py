"""What a step takes under other policies, to the byte: by hand, and beside executed steps of models."""

import gc
import itertools
import random
from collections.abc import Callable, Sequence

import pytest
import torch

from experiments.recompute.models import MODELS, SMALL_NETWORKS, Trainee
from runtime.device import memory_stats
from runtime.recompute.course import Course
from runtime.recompute.footprint import Footprint
from runtime.recompute.policy import BlockPolicy, store_everything, store_nothing
from runtime.recompute.tape import StorePolicy
from runtime.recompute.walk import Walk
from tests.accelerators import prepared
from tests.runtime.recompute.stories import BEFORE, measured, policy
from tests.runtime.recompute.training import SMALL
from tests.soaking import some


def peak(blocks: int, *policies: BlockPolicy) -> int:
    each = list(policies) if len(policies) > 1 else list(policies) * blocks
    return measured(blocks).walk(each).peak_bytes


def test_with_nothing_stored_it_is_the_measured_peak() -> None:
    """Norm's and widen's results at once, while widen runs again."""
    assert measured(3).most_bytes == peak(3, policy(0, 0, 0)) == BEFORE + 500


def test_what_is_stored_waits_for_its_block() -> None:
    """Widen's and act's results of all blocks, the last of which has norm's beside widen's for a moment."""
    assert peak(3, policy(0, 1, 1)) == BEFORE + 2 * 450 + 500


def test_stored_results_split_what_runs_again() -> None:
    """Act is stored: when its gradient is there it is let go, and only then does widen run again."""
    assert peak(1, policy(0, 0, 1)) == BEFORE + 500  # norm's and widen's, not act's beside them
    assert peak(4, policy(0, 0, 1)) == BEFORE + 3 * 50 + 500
    assert peak(4, policy(0, 1, 0)) == BEFORE + 3 * 400 + 500  # act runs again from widen's


def test_blocks_may_differ_and_their_order_counts() -> None:
    assert peak(2, policy(0, 0, 0), policy(0, 1, 1)) == BEFORE + 500
    assert peak(2, policy(0, 1, 1), policy(0, 0, 0)) == BEFORE + 450 + 500


def test_what_runs_ahead_in_a_window_is_there_until_it_is_used() -> None:
    """Block 0 runs widen again while block 1 waits: beside block 1's own widen."""
    walked = measured(2).walk([policy(2, 0, 0, backward=(1,)), policy(0, 1, 1)])
    assert walked.peak_bytes == BEFORE + 100 + 50 + 400 + 400
    assert walked.ran[0].ahead[0][2] == [1] and walked.ran[0].on_demand == [2]


def test_each_block_alone_is_walked_through_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only it stores widen's and act's results; then only it does not, and has norm's beside widen's for a moment."""
    footprint, walks = measured(20), []

    def counted(*arguments: object) -> Course:
        walks.append(arguments)
        return Course(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("runtime.recompute.footprint.Course", counted)
    stored, again = [policy(0, 1, 1) for _ in range(20)], [policy(0, 0, 0) for _ in range(20)]
    assert footprint.peaks_alone(again, stored) == dict.fromkeys(range(20), BEFORE + 450)
    assert footprint.peaks_alone(stored, again) == {block: BEFORE + block * 450 + 500 for block in range(20)}
    assert len(walks) == 4 * 20


def build(name: str, device: torch.device) -> Trainee:
    if name not in SMALL_NETWORKS:
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    return MODELS[name](SMALL, device)


def step(trainee: Trainee, cast: bool) -> None:
    trainee.model.zero_grad()
    with torch.autocast("sim", torch.bfloat16, enabled=cast):
        loss = trainee.loss()
    loss.backward()  # type: ignore[no-untyped-call]


def footprint_of(trainee: Trainee, device: torch.device, cast: bool) -> Footprint:
    blocks = list(trainee.blocks)
    with Walk(blocks, device, store_nothing(len(blocks)), timed=True, intervals=True) as walk:
        step(trainee, cast)
        return walk.measurement.footprint()


def at_rest(trainee: Trainee) -> None:
    """No gradients, and nothing left in circles."""
    trainee.model.zero_grad()
    gc.collect()


def executed(trainee: Trainee, device: torch.device, policies: Sequence[BlockPolicy], cast: bool) -> int:
    at_rest(trainee)
    torch.accelerator.reset_peak_memory_stats(device)
    with Walk(list(trainee.blocks), device, policies):
        step(trainee, cast)
        return memory_stats(device).peak_bytes


def some_policy(nodes: int, dice: random.Random) -> BlockPolicy:
    """Any of the four for each operator, few or many of them stored."""
    often = dice.random()
    store = [dice.choice((1, 2, 3)) if dice.random() < often else 0 for _ in range(nodes)]
    return BlockPolicy(StorePolicy(store, others=dice.random() < 0.5), {}, {})


ABOVE = {"gpt2, eager attention": 1.02, "t5, decoder": 1.01, "mistral": 1.01}
"""Measured tapes hold on to tensors from outside, masks and positions, as long as an operator may read them again."""


@pytest.mark.parametrize(("name", "cast"), some(itertools.product(MODELS, (False, True)), of=3))
def test_any_policies_of_a_model_take_what_was_reckoned(name: str, cast: bool) -> None:
    """Operators stored at random, other ones in each block: one measured step tells all of their peaks."""
    device = prepared("sim")
    trainee, dice = build(name, device), random.Random(7)
    step(trainee, cast)
    at_rest(trainee)
    footprint = footprint_of(trainee, device, cast)
    blocks, nodes = len(trainee.blocks), len(footprint.calls[0].shape.nodes)
    choices: list[Callable[[], list[BlockPolicy]]] = [
        lambda: store_nothing(blocks),
        lambda: store_everything(blocks),
        *[lambda: [some_policy(nodes, dice) for _ in range(blocks)]] * 3,
    ]
    for choose in choices:
        policies = choose()
        took, told = executed(trainee, device, policies, cast), footprint.walk(policies).peak_bytes
        assert took <= told <= ABOVE.get(name, 1.0) * took
