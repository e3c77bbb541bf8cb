"""What is known of a model's steps, and what is reckoned from it."""

import math

import pytest
import torch
from torch import nn

from runtime.device import SimDevice
from runtime.layout import report, wrap
from runtime.layout.steps import Beside, Given, beside_after
from runtime.profile.memory import activation_peak_bytes, turn_bytes
from tests.runtime.layout.models import Language, loss_of
from tests.runtime.layout.training import Layouts, adamw, plain_loop


def given(*shapes: tuple[int, ...]) -> Given:
    return Given(shapes)


@pytest.mark.parametrize(
    ("now", "before", "growth"),
    [
        (given((8, 64)), given((8, 64)), 1.0),
        (given((4, 32)), given((8, 64)), 1.0),
        (given((16, 64)), given((8, 64)), 4.0),  # twice the rows, and once more
        (given((4, 128)), given((8, 64)), 4.0),  # longer rows, though no more numbers
        (given((8, 64), (3,)), given((8, 64), (2,)), 2.25),
        (given((8, 64, 1)), given((8, 64)), math.inf),
        (given((8, 64)), given(), math.inf),
        (given((1, 64)), given((0, 64)), math.inf),
        (given((0, 64)), given((0, 64)), 1.0),
        (given(), given(), 1.0),
    ],
)
def test_growth_is_infinite_where_nobody_knows(now: Given, before: Given, growth: float) -> None:
    assert now.growth(before) == growth


def test_arguments_are_told_by_their_tensors() -> None:
    args, kwargs = (torch.zeros(2, 3), [torch.zeros(4)], "text"), {"mask": torch.zeros(5, 1), "count": 7}
    assert str(Given.of(args, kwargs)) == "2 x 3, 4, 5 x 1"


def test_what_is_beside_is_what_no_prediction_has() -> None:
    before = Beside(100, 10, 1)
    assert beside_after(before, {}, 1000, 900, 1) == before
    assert (
        beside_after(before, {"forward": 990, "behind": 890, "backward": 1000, "update": 999}, 1000, 900, 1) == before
    )
    assert beside_after(before, {"behind": 950}, 1000, 900, 1) == Beside(100, 60, 1)
    assert beside_after(before, {"backward": 1030, "behind": 950}, 1000, 900, 2) == Beside(130, 30, 2)
    assert beside_after(before, {"between": 5000}, 1000, 900, 1) == before


def test_what_is_beside_comes_on_top_of_every_layout(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    profile, last = layouts.profile, len(layouts.profile.blocks)
    more = Beside(outside_bytes=5000, behind_bytes=70_000).added_to(profile)
    assert more.state_bytes == profile.state_bytes and more.fixed_bytes == profile.fixed_bytes + 5000
    for seed in range(20):
        policies = layouts.random_plan(seed).policies[1:-1]
        before, behind = activation_peak_bytes(profile, policies), turn_bytes(profile, policies)[0]
        assert behind <= before and last == len(policies)
        assert turn_bytes(more, policies)[0] == behind + 75_000
        assert activation_peak_bytes(more, policies) == max(before + 5000, behind + 75_000)
        assert turn_bytes(more, policies)[1] == turn_bytes(profile, policies)[1]


def test_a_graph_that_waits_holds_what_is_reckoned(sim: SimDevice) -> None:
    """By random layouts: what a forward leaves on the device until its backward pass."""
    layouts = Layouts(Language)
    for seed in range(6):
        plan = layouts.random_plan(seed, ("keep", "checkpoint"))
        model, _ = layouts.wrapped(plan)
        torch.accelerator.synchronize()
        before = torch.accelerator.memory_allocated()
        loss = loss_of(model, 0)
        held = torch.accelerator.memory_allocated() - before
        store = model.__dict__["_bayplan_layout"].store
        held -= len(store.here) * layouts.problem.chunk_bytes
        assert abs(held - turn_bytes(layouts.profile, plan.policies[1:-1])[1]) <= held // 50, seed
        loss.backward()  # type: ignore[no-untyped-call]
        del model, loss


def test_gradients_of_what_stays_lie_in_their_room(sim: SimDevice) -> None:
    """Autograd forgot the hooks that take them where the first forward was measured: they took memory twice."""
    model: nn.Module = Language()
    optimizer = adamw(list(model.parameters()))
    wrap(model, optimizer, budget="1GiB", host_budget="1GiB", chunk_bytes=20_000)
    plain_loop(model, optimizer)
    told = report(model)
    assert told.plan.persistent and told.overlapping
    assert {span.number for span in told.spans if span.what == "device-update"} == set(told.plan.persistent)
    assert told.peak_bytes <= told.predicted_peak_bytes
    loss_of(model, 9).backward()  # type: ignore[no-untyped-call]
    chunks = model.__dict__["_bayplan_layout"].store.chunks
    rooms = {chunk.gradients.untyped_storage().data_ptr() for chunk in chunks}
    assert {one.grad.untyped_storage().data_ptr() for one in model.parameters() if one.grad is not None} == rooms
