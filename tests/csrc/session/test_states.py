"""What outlives iterations leaves at an event, told by its storage, and is back when the optimizer uses it."""

import copy

import pytest
import torch

from runtime.device.native import core
from tests.accelerators import ON_EACH
from tests.csrc.session.test_reads import DEPTH, Reading, recorded
from tests.csrc.session.test_session import MIB, Loop, anchor, engine

__all__ = ["engine"]
LEAVES = 3


def moments(loop: Loop) -> dict[int, torch.Tensor]:
    """The optimizer's larger tensors, by the addresses of their storages."""
    found = [one for state in loop.optimizer.state.values() for one in state.values() if one.numel() > 1024]
    return {one.untyped_storage()._cdata: one for one in found}


def policy_of(found: core.SwapIteration, loop: Loop, least: int = 0, bytes_off: int = 0) -> core.SwapPolicy:
    """Each moment leaves before an early operator of the forward pass and returns five operators before its use."""
    targets, events = [], []
    for number, (storage, moment) in enumerate(moments(loop).items()):
        use = next(each.op for each in found.sightings if each.storage == storage)
        size = moment.untyped_storage().nbytes() + bytes_off
        targets.append(
            core.SwapTarget(str(number), size, 0, 0, LEAVES, 0, least_pass_bytes=least, latest_op=0, storage=storage)
        )
        for kind, op in (
            (core.SwapActionKind.SWAP_OUT, LEAVES),
            (core.SwapActionKind.RELEASE, use - 6),
            (core.SwapActionKind.SWAP_IN, use - 5),
        ):
            events.append(core.SwapEvent(*anchor(found, op), kind=kind, targets=[number]))
    return core.SwapPolicy(targets, events, [])


@ON_EACH
def test_states_are_away_while_nobody_needs_them(device: torch.device, engine: core.SwapSession) -> None:
    loop, other = Reading(device, DEPTH), Reading(device, DEPTH)
    found = recorded(loop, engine)
    count = len(moments(loop))
    other.step()
    other.step()
    engine.end_iteration()
    for policy, leave, matched in (
        (policy_of(found, loop), count, count),
        (policy_of(found, loop, least=1 << 40), 0, count),
        (policy_of(found, loop, bytes_off=1), 0, 0),
    ):
        engine.set_policy(policy)
        assert torch.equal(loop.step(), other.step())
        ended = engine.end_iteration()
        assert (ended.counts.matched, ended.unmatched) == (matched, count - matched)
        assert ended.counts.swapped_out == ended.counts.in_time == leave
        assert ended.counts.fetched == ended.counts.cancelled == 0
    assert all(map(torch.equal, moments(loop).values(), moments(other).values()))


@ON_EACH
def test_states_that_were_replaced_do_not_leave(device: torch.device, engine: core.SwapSession) -> None:
    loop, other = Reading(device, DEPTH), Reading(device, DEPTH)
    found = recorded(loop, engine)
    other.step()
    other.step()
    engine.set_policy(policy_of(found, loop))
    for each in (loop, other):
        each.optimizer.load_state_dict(copy.deepcopy(each.optimizer.state_dict()))
    engine.end_iteration()
    for _ in range(2):
        assert torch.equal(loop.step(), other.step())
        counts = engine.end_iteration().counts
        assert counts.swapped_out == counts.fetched == 0


@ON_EACH
def test_who_is_sighted_leaves_at_no_event(device: torch.device, engine: core.SwapSession) -> None:
    target = core.SwapTarget("one", MIB, 1, 0, 0, 0)
    event = core.SwapEvent(0, 0, 0, 0, core.SwapActionKind.SWAP_OUT, [0])
    with pytest.raises(RuntimeError, match="it leaves when it is sighted, give its storage to say when"):
        engine.set_policy(core.SwapPolicy([target], [event], []))
