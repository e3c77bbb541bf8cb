"""What leaves makes way for what the host reads from the device."""

from collections.abc import Sequence

import pytest
import torch

from runtime.device import limited_memory, memory_stats, reset_peak_memory
from runtime.device.native import core
from tests.accelerators import ON_EACH
from tests.csrc.session.test_session import Loop, activations, anchor, engine, names, relief, sightings

__all__ = ["engine", "relief"]
DEPTH, FAR = 3, 1 << 20


class Reading(Loop):
    """Reads a number from the device in the midst of each layer; dropout draws the same in each loop's n-th step."""

    steps = 0

    def step(self) -> torch.Tensor:
        """Of numbers of its own."""
        self.steps += 1
        torch.manual_seed(self.steps)
        return super().step()

    def loss(self) -> torch.Tensor:
        """After each layer's first half."""
        out = self.data
        for layer in self.model:
            assert isinstance(layer, torch.nn.Sequential)
            out = layer[1](layer[0](out))
            assert out.sum().item() < float("inf")
            out = layer[3](layer[2](out))
        return out.square().mean()


def recorded(loop: Loop, engine: core.SwapSession) -> core.SwapIteration:
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    return sightings(engine, loop.step)


def policy_of(
    found: core.SwapIteration, chosen: Sequence[core.SwapSighting], latest_op: int, pace: core.SwapPace
) -> core.SwapPolicy:
    """Each chosen tensor leaves, by `latest_op` at most, and returns two operators before its next use."""
    targets, events = [], []
    for number, each in enumerate(chosen):
        use = next(s.op for s in found.sightings if s.storage == each.storage and s.op > each.op)
        place = (each.key, each.ordinal, each.op, each.position)
        targets.append(core.SwapTarget(str(number), 0, *place, each.result, latest_op=latest_op))
        for kind, op in ((core.SwapActionKind.RELEASE, use - 4), (core.SwapActionKind.SWAP_IN, use - 2)):
            events.append(core.SwapEvent(*anchor(found, op), kind=kind, targets=[number]))
    return core.SwapPolicy(targets, events, [], pace=pace)


@ON_EACH
def test_a_recorded_iteration_says_where_the_host_reads(device: torch.device, engine: core.SwapSession) -> None:
    loop = Reading(device, DEPTH)
    found = recorded(loop, engine)
    told = [names(found)[op] for op in found.reads]
    assert told == ["aten::item"] * DEPTH + ["aten::_to_copy"], "the loss goes to the CPU last"
    assert recorded(Loop(device, DEPTH), engine).reads[-1:] != [], "of any loop"
    loop.step()
    assert engine.end_iteration().reads == [], "where nothing is listed nothing is told"


@ON_EACH
def test_operators_that_know_a_size_only_after_reading_it_are_reads(
    device: torch.device, engine: core.SwapSession
) -> None:
    data = torch.arange(4096.0).to(device)
    there = torch.zeros(4096)
    more = data > 7
    found = sightings(
        engine, lambda: (data.nonzero(), data + 1, data.masked_select(more), there.copy_(data), data.copy_(there))
    )
    told = [names(found)[op] for op in found.reads]
    assert [name for name in told if "nonzero" in name or "select" in name] == ["aten::nonzero", "aten::masked_select"]
    assert told.count("aten::copy_") == 1, "what goes to the device is none"
    assert "aten::add.Tensor" not in told


@ON_EACH
def test_what_may_wait_leaves_between_reads_or_not_at_all(device: torch.device, engine: core.SwapSession) -> None:
    """Where no copy fits between two reads, and nobody needs its memory, none is made."""
    loop, other = Reading(device, DEPTH), Reading(device, DEPTH)
    found = recorded(loop, engine)
    chosen = activations(found, loop)
    other.step()
    other.step()
    engine.end_iteration()
    everywhere = list(range(len(found.operators)))
    for pace, latest, leave in (
        (core.SwapPace([], 2.0, 0.0), FAR, True),
        (core.SwapPace(everywhere, 2.0, 0.0), FAR, False),
        (core.SwapPace(everywhere, 2.0, 0.0), 0, True),
        (core.SwapPace(found.reads, 0.5, 0.0), FAR, True),
    ):
        engine.set_policy(policy_of(found, chosen, latest, pace))
        assert torch.equal(loop.step(), other.step())
        counts = engine.end_iteration().counts
        assert counts.matched >= len(chosen)
        assert (counts.swapped_out >= len(chosen)) == leave, (pace, counts.swapped_out)
        assert counts.fetched == 0
        assert leave or counts.swapped_out == counts.cancelled == 0


@ON_EACH
def test_who_waits_leaves_once_memory_is_asked_for(device: torch.device, engine: core.SwapSession) -> None:
    loop, other = Reading(device, DEPTH), Reading(device, DEPTH)
    found = recorded(loop, engine)
    chosen = activations(found, loop)
    reset_peak_memory(device)
    losses = [other.step() for _ in range(4)]
    peak = memory_stats(device).peak_bytes
    loop.step()
    engine.end_iteration()
    everywhere = core.SwapPace(list(range(len(found.operators))), 2.0, 0.0)
    engine.set_policy(policy_of(found, chosen, FAR, everywhere))
    with limited_memory(device, int(0.8 * peak)):
        engine.set_budget(int(0.8 * peak))
        assert torch.equal(loop.step(), losses[3])
    counts = engine.end_iteration().counts
    assert counts.swapped_out > counts.passive and counts.relieved > 0
    assert counts.swapped_out < counts.matched, "no more of them than it takes"


@ON_EACH
def test_who_dies_waiting_or_is_used_again_is_nobodys_business(device: torch.device, engine: core.SwapSession) -> None:
    loop = Reading(device, DEPTH)
    found = recorded(loop, engine)
    everywhere = core.SwapPace(list(range(len(found.operators))), 2.0, 0.0)
    policy = policy_of(found, activations(found, loop), FAR, everywhere)
    engine.set_policy(policy)
    for _ in range(2):
        loop.loss()  # nobody keeps it
        with pytest.raises(ZeroDivisionError):
            loop.loss().backward(torch.tensor(1.0 / 0))  # type: ignore[no-untyped-call]
        engine.end_iteration()
    engine.set_policy(None)
    engine.set_policy(policy)
    loop.loss().backward()  # type: ignore[no-untyped-call]
    engine.stop()
    engine.start()
    assert torch.isfinite(loop.step())
