"""From what was observed to a profile: sizes, transients and times of blocks, and of what runs around them."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from runtime.blocks.saved import device_bytes
from runtime.profile.memory.charges import Key
from runtime.profile.memory.charges import Segment as Charged
from runtime.profile.memory.observing import Call, Observer
from runtime.profile.memory.profile import MemoryProfile, OpenCache, ProfiledBlock, ProfiledParameter
from runtime.profile.memory.segments import Pass, Segment
from solvers.timeline.cost import Cost, together


class Reader:
    """Reads a profile off an observer whose step has ended."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._calls = observer.calls
        self._segments = list(observer.tape.segments)
        for call in self._calls:
            for number in range(call.last_save, call.recompute_end):
                self._segments[number] = replace(self._segments[number], needed=False)
        self._storages = list(observer.boundaries.bytes)
        users = observer.boundaries.users
        self._shared = frozenset(number for number, count in enumerate(users) if count > 1)
        self._base = self._segments[observer.forward_start].start_bytes

    def profile(
        self,
        name: str,
        parameters: tuple[ProfiledParameter, ...],
        unused: tuple[ProfiledParameter, ...],
        optimizer: torch.optim.Optimizer | None,
    ) -> MemoryProfile:
        """The profile of a model with these parameters, trained by this optimizer."""
        blocks = tuple(self._block(number, call) for number, call in enumerate(self._calls))
        first = self._first()
        parameter_bytes = self._observer.parameter_bytes
        states = parameter_bytes + self._observer.old_gradient_bytes + optimizer_bytes(optimizer, self._observer.device)
        return MemoryProfile(
            name=name,
            blocks=blocks,
            parameters=parameters,
            unused=unused,
            storages=tuple(self._storages),
            lives=self._lives(),
            cache=self._cache(),
            segments=tuple(self._segments),
            first=first,
            last=self._last(first, blocks),
            forward_start=self._observer.forward_start,
            parameter_bytes=parameter_bytes,
            fixed_bytes=max(0, self._base - states),
        )

    def _lives(self) -> tuple[tuple[int, int, int], ...]:
        spans = self._observer.lives.spans.items()
        return tuple((number, begin, len(self._segments) if end is None else end) for number, (begin, end) in spans)

    def _cache(self) -> OpenCache:
        seen = self._observer
        return OpenCache(seen.cached or frozenset(), seen.cache_end or len(self._segments))

    def _block(self, number: int, call: Call) -> ProfiledBlock:
        if "recompute" not in call.events:
            return self._frozen(number, call)
        shared, inside = call.saved.split()
        self._storages.append(sum(inside))
        saved = (*shared, len(self._storages) - 1)
        input_bytes, saved_bytes = self._own_bytes(call.inputs), self._own_bytes(saved)
        forward, backward = self._transients(number, input_bytes, saved_bytes)
        return self._timed(
            number,
            ProfiledBlock(
                name=call.name,
                forward_us=_us(call.events["forward"], call.events["forward end"]),
                backward_us=self._backward_us(call),
                activation_bytes=saved_bytes,
                input_bytes=input_bytes,
                forward_transient_bytes=forward,
                backward_transient_bytes=backward,
                inputs=call.inputs,
                saved=saved,
                own_bytes=(*(self._storages[one] for one in shared if one not in self._shared), *inside),
            ),
        )

    def _backward_us(self, call: Call) -> int:
        events = call.events
        end = events.get("backward end", self._observer.events["backward over"])
        return _us(events["backward"], events["recompute"]) + _us(events["recompute end"], end)

    def _timed(self, number: int, block: ProfiledBlock) -> ProfiledBlock:
        """With what its passes cost, where the device tells; what runs behind the last block is no block's."""
        charges, last = self._observer.charges, len(self._calls) - 1
        keys: list[Key] = [("forward", number), ("behind", number)]
        forward = charges.cost(*keys[: 1 + (number < last)])
        recompute = charges.cost(("recompute", number))
        back: list[Key] = [("backward", number), ("ahead", number)]
        backward = charges.of(*back[: 1 + (number > 0)])
        return _with_costs(block, forward, recompute, backward)

    def _frozen(self, number: int, call: Call) -> ProfiledBlock:
        plain = self._inside(number, "forward")
        transient = _peak(plain) - plain[0].start_bytes + self._own_bytes(call.inputs)
        forward_us = _us(call.events["forward"], call.events["forward end"])
        frozen = ProfiledBlock(call.name, forward_us, 0, 0, 0, transient, 0, inputs=call.inputs, frozen=True)
        return self._timed(number, frozen)

    def _inside(self, number: int, run: Pass) -> list[Segment]:
        return [one for one in self._segments if one.place.block == number and one.place.run == run]

    def _own_bytes(self, storages: Sequence[int]) -> int:
        return sum(self._storages[one] for one in storages if one not in self._shared)

    def _transients(self, number: int, input_bytes: int, saved_bytes: int) -> tuple[int, int]:
        """Beyond inputs of a checkpointed block or all that a kept one saves, whichever needs more; of both passes."""
        plain, saving = self._inside(number, "forward"), self._inside(number, "recompute")
        after = [segment for segment in self._inside(number, "backward") if segment.place.recomputed]
        without = _peak(plain) - plain[0].start_bytes
        with_all = _peak(saving) - saving[0].start_bytes - (saved_bytes - input_bytes)
        here = plain[0].start_bytes - input_bytes + saved_bytes
        return max(0, without, with_all), max(0, _peak([*saving, *after]) - here)

    def _first(self) -> ProfiledBlock:
        """What runs before the first block: all that it leaves, but for that block's inputs, counts as saved."""
        kept = self._inside(0, "forward")[0].start_bytes - self._base - self._own_bytes(self._calls[0].inputs)
        events, calls = self._observer.events, self._calls
        begin = calls[0].events.get("backward left", events["end"])
        times = _us(events["forward"], calls[0].events["entering"]), _us(begin, events.get("optimizer", events["end"]))
        first, charges = self._edge("first", 0, kept, self._base, times), self._observer.charges
        return _with_costs(first, charges.cost(("forward", -1)), None, charges.of(("ahead", 0)))

    def _last(self, first: ProfiledBlock, blocks: Sequence[ProfiledBlock]) -> ProfiledBlock:
        """What runs behind the last block, until its gradient is there."""
        before = self._base + first.activation_bytes + sum(block.input_bytes for block in blocks)
        forward = [segment for segment in self._segments if segment.place.run == "forward"]
        events, call = self._observer.events, self._calls[-1]
        turn = events.get("backward", events["end"])
        times = _us(call.events["left"], turn), _us(turn, call.events.get("backward", events["backward over"]))
        last = self._edge("last", len(blocks), forward[-1].end_bytes - before, before, times)
        charges, number = self._observer.charges, len(self._calls)
        return _with_costs(last, charges.cost(("behind", number - 1)), None, charges.of(("turn", number)))

    def _edge(self, name: str, ended: int, kept: int, before: int, times: tuple[int, int]) -> ProfiledBlock:
        outside = [
            segment
            for segment in self._segments[self._observer.forward_start :]
            if segment.place.block is None and segment.place.ended == ended and segment.place.module != "optimizer"
        ]
        kept = max(0, kept)
        forward, backward = (
            max(0, _peak([segment for segment in outside if segment.place.run == run]) - before - kept)
            for run in ("forward", "backward")
        )
        return ProfiledBlock(name, *times, kept, 0, forward, backward)


def optimizer_bytes(optimizer: torch.optim.Optimizer | None, device: torch.device) -> int:
    """Bytes of an optimizer's states on the device."""
    if optimizer is None:
        return 0
    states = [one for state in optimizer.state.values() for one in state.values() if isinstance(one, torch.Tensor)]
    sizes = {one.untyped_storage()._cdata: device_bytes(one) for one in states if one.device == device}
    return sum(sizes.values())


def _peak(segments: Sequence[Segment]) -> int:
    """The most of what the segments hold, without the gradients that the step has made."""
    return max((segment.peak_bytes - segment.gradient_bytes for segment in segments), default=0)


def _with_costs(
    block: ProfiledBlock, forward: Cost | None, recompute: Cost | None, backward: tuple[Charged, ...] | None
) -> ProfiledBlock:
    """Times are then those of passes that host and device begin together."""
    if forward is None or backward is None:
        return block
    return replace(
        block,
        forward_us=forward.alone_us,
        backward_us=together([cost for cost, _ in backward]).alone_us,
        forward=forward,
        recompute=recompute,
        backward=backward,
    )


def _us(begin: torch.Event, end: torch.Event) -> int:
    return max(0, round(begin.elapsed_time(end) * 1000))
