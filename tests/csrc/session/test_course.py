"""Where a policy is in an iteration that leaves some of its operators out."""

import pytest
import torch

from runtime.device.native import core
from runtime.swap.landmarks import landmarks
from tests.accelerators import ON_EACH
from tests.csrc.session.test_session import Loop, activations, anchor, engine, sightings

__all__ = ["engine"]
DEPTH, LEFT_OUT = 6, 2


def policy_of(found: core.SwapIteration, loop: Loop, *, marked: bool = True) -> core.SwapPolicy:
    """Each activation leaves; its block is free, and it returns, three operators before its next use."""
    weights = {weight.untyped_storage()._cdata for weight in loop.model.parameters()}
    told = landmarks(found.phases, found.sightings, weights)
    targets, events = [], []
    for number, each in enumerate(activations(found, loop)):
        use = next(s.op for s in found.sightings if s.storage == each.storage and s.op > each.op)
        spot = told.sighted[each.op, each.position]
        targets.append(
            core.SwapTarget(str(number), 0, each.key, each.ordinal, each.op, each.position, each.result, 0, *spot)
        )
        for kind in (core.SwapActionKind.RELEASE, core.SwapActionKind.SWAP_IN):
            events.append(core.SwapEvent(*anchor(found, use - 3), kind, [number], *told.spot(use - 3)))
    marks = [core.SwapLandmark(*landmark) for landmark in told.found] if marked else []
    return core.SwapPolicy(targets, events, [], landmarks=marks)


def recorded(loop: Loop, engine: core.SwapSession) -> core.SwapIteration:
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    return sightings(engine, loop.step)


def without_one(loop: Loop) -> None:
    """A step that leaves a layer out."""
    out = loop.data
    for number, layer in enumerate(loop.model):
        out = out if number == LEFT_OUT else layer(out)
    out.square().mean().backward()  # type: ignore[no-untyped-call]


@ON_EACH
def test_a_layer_that_is_left_out_shifts_no_return_of_another(device: torch.device, engine: core.SwapSession) -> None:
    loop = Loop(device, DEPTH)
    found = recorded(loop, engine)
    missed, late = {}, {}
    for marked in (False, True):
        policy = policy_of(found, loop, marked=marked)
        engine.set_policy(policy)
        loop.step()
        counts = engine.end_iteration().counts
        assert counts.missed_events == counts.fetched == counts.cancelled == 0, "as it was recorded"
        without_one(loop)
        counts = engine.end_iteration().counts
        missed[marked], late[marked] = counts.missed_events, counts.fetched + counts.cancelled
    assert late[True] <= 1 < late[False]
    assert missed[True] < missed[False]


@ON_EACH
def test_where_a_parameter_is_gone_the_iterations_begin_counts(device: torch.device, engine: core.SwapSession) -> None:
    loop = Loop(device, DEPTH)
    found = recorded(loop, engine)
    engine.set_policy(policy_of(found, loop))
    for weight in loop.model.parameters():
        weight.data = weight.detach().clone()  # the same values elsewhere
    loop.optimizer.state.clear()
    for _ in range(2):
        loop.step()
        counts = engine.end_iteration().counts
    assert counts.missed_events == counts.fetched == 0 < counts.matched


@ON_EACH
def test_landmarks_of_nobody_are_none(device: torch.device, engine: core.SwapSession) -> None:
    loop = Loop(device, DEPTH)
    found = recorded(loop, engine)
    policy = policy_of(found, loop, marked=False)
    other = core.SwapPolicy([], [], [], landmarks=[core.SwapLandmark(64, 0, 0)])
    engine.set_policy(other)
    loop.step()
    engine.set_policy(policy)
    engine.end_iteration()
    loop.step()
    assert engine.end_iteration().counts.fetched == 0
    with pytest.raises(RuntimeError, match="phase is 9"):
        core.SwapLandmark(0, 9, 0)
