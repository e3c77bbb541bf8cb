"""The peak of any mix of block policies from one profile: a static reconstruction (ProTrain §3.2, A.2 [R])."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from runtime.profile.memory.profile import MemoryProfile
from runtime.profile.memory.segments import Place, Segment
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import POLICIES, Policy

Deltas = Literal["all", "intra", "none"]
"""Which peaks count: every moment's, those inside hooked modules only (as hooks on layers see), or none at all."""


def peak_bytes(profile: MemoryProfile, policies: Sequence[Policy], interval: int = 1, deltas: Deltas = "all") -> int:
    """The most that the device holds in a step under these policies, one for each block of the profile.

    Swapped activations leave before the forward of the block `interval` + 1 later, where what runs behind the blocks
    counts as one, and are back when the backward of the block `interval` later begins (formats.md 8.9).
    States are held as in a plain step.
    """
    check_policies(profile, policies, interval)
    if deltas not in get_args(Deltas):
        raise InvalidInput(f"deltas {deltas!r} are unknown: choose of {', '.join(get_args(Deltas))}")
    plan = _Plan(profile, policies, interval)
    return max(_counted(segment, deltas) + shift for segment, shift in plan.moments())


def activation_peak_bytes(profile: MemoryProfile, policies: Sequence[Policy], interval: int = 1) -> int:
    """The same without the model's states, its gradients included: what chunks and buffers leave room for.

    That is `fixed_bytes`, and the most of activations and transients in forward and backward.
    """
    check_policies(profile, policies, interval)
    moments = _Plan(profile, policies, interval).moments(profile.forward_start)
    counted = [
        segment.peak_bytes - segment.gradient_bytes + shift
        for segment, shift in moments
        if segment.place.module != "optimizer"
    ]
    return max(counted) - profile.state_bytes


def turn_bytes(profile: MemoryProfile, policies: Sequence[Policy], interval: int = 1) -> tuple[int, int]:
    """The same of what comes between the last block's passes, and what the graph of a forward that has ended holds."""
    check_policies(profile, policies, interval)
    last, most, held = len(profile.blocks), 0, 0
    for segment, shift in _Plan(profile, policies, interval).moments(profile.forward_start):
        beside = shift - segment.gradient_bytes - profile.state_bytes
        if segment.place.block is None and segment.place.ended == last and segment.place.module != "optimizer":
            most = max(most, segment.peak_bytes + beside)
        if segment.place.run == "forward":
            held = segment.end_bytes + beside - profile.fixed_bytes
    return most, max(0, held)


def check_policies(profile: MemoryProfile, policies: Sequence[Policy], interval: int) -> None:
    """Raises `InvalidInput` where the policies do not fit the profile."""
    if len(policies) != len(profile.blocks):
        raise InvalidInput(f"{len(policies)} policies for {len(profile.blocks)} blocks: give one for each")
    for policy in policies:
        if policy not in POLICIES:
            raise InvalidInput(f"policy {policy!r} is unknown: choose of {', '.join(POLICIES)}")
    if interval < 1:
        raise InvalidInput(f"interval is {interval}: give at least 1")


def _counted(segment: Segment, deltas: Deltas) -> int:
    if deltas == "all" or (deltas == "intra" and segment.place.module is not None):
        return segment.peak_bytes
    return max(segment.start_bytes, segment.end_bytes)


@dataclass
class _Plan:
    """Moments of the step that these policies make, as the profile's segments shifted by what else is held."""

    profile: MemoryProfile
    policies: Sequence[Policy]
    interval: int

    def __post_init__(self) -> None:
        blocks = enumerate(self.profile.blocks)
        self._last_use = {number: place for place, block in blocks for number in (*block.inputs, *block.saved)}
        checkpointed = (number for number, policy in enumerate(self.policies) if policy == "checkpoint")
        self._first_again = max((one for one in checkpointed if not self.profile.blocks[one].frozen), default=-1)
        self._starts: dict[tuple[str, int | None], int] = {}
        for segment in self.profile.segments:
            self._starts.setdefault((segment.place.run, segment.place.block), segment.start_bytes)

    def moments(self, start: int = 0) -> Iterator[tuple[Segment, int]]:
        """Segments of the profile that this step has, from number `start` on, each with the bytes to add."""
        shifts: dict[tuple[Place, frozenset[int], frozenset[int]], int] = {}
        at_forward: dict[int | None, frozenset[int]] = {}
        for number, (segment, program) in enumerate(zip(self.profile.segments, self._programs(), strict=True)):
            place = replace(segment.place, module=None)
            if place.run == "forward":
                at_forward.setdefault(place.block, program)
            if number < start or not self._happens(segment):
                continue
            if self._moved(place):
                key = place, at_forward[place.block], at_forward[place.block]
            else:
                key = place, program | self._cached(number, place), program
            if key not in shifts:
                shifts[key] = self._shift(*key)
            yield segment, shifts[key]

    def _programs(self) -> Iterator[frozenset[int]]:
        """For each segment the storages that the program itself holds, in any configuration."""
        begin, end = defaultdict(list), defaultdict(list)
        for number, first, last in self.profile.lives:
            begin[first].append(number)
            end[last].append(number)
        program: frozenset[int] = frozenset()
        for segment in range(len(self.profile.segments)):
            if segment in begin or segment in end:
                program = program.union(begin[segment]).difference(end[segment])
            yield program

    def _cached(self, number: int, place: Place) -> frozenset[int]:
        """What autocast holds of other blocks' weights in backward, if its context is open then: until a recomputation.

        In the profiled step the last block's was that.
        """
        block = place.ended if place.block is None else place.block
        over = place.block is None or place.recomputed
        if place.run == "forward" or number >= self.profile.cache.end or block < self._first_again + over:
            return frozenset()
        own = () if place.block is None else self.profile.blocks[place.block].saved
        return self.profile.cache.storages.difference(own)

    def _happens(self, segment: Segment) -> bool:
        """Checkpointed blocks run forward without saving; of others the recomputation stands for their forward."""
        place = segment.place
        if place.block is None or place.run == "backward" or self.profile.blocks[place.block].frozen:
            return True
        if self.policies[place.block] == "checkpoint":
            return place.run == "forward" or segment.needed
        return place.run == "recompute"

    def _moved(self, place: Place) -> bool:
        return place.run == "recompute" and place.block is not None and self.policies[place.block] != "checkpoint"

    def _shift(self, place: Place, ours: frozenset[int], traced: frozenset[int]) -> int:
        """Bytes beyond the profiled step, where the program holds `ours` in this step and `traced` in that one."""
        block = place.block
        if block is None:
            between = place.run == "forward" and place.ended < len(self.profile.blocks)
            return self._more(place.ended, place.ended - between, ours, traced)
        own = self.profile.blocks[block]
        if self._moved(place):
            moved = self._starts["forward", block] - self._starts["recompute", block]
            return self._more(block, block, ours, traced) + moved
        if place.run == "forward" or own.frozen:
            return self._more(block, block, ours, traced)
        if place.run == "recompute" or self.policies[block] == "checkpoint":
            return self._more(block, block, ours.union(own.inputs), traced.union(own.inputs))
        still = set(own.inputs) & set(own.saved) if place.recomputed else own.saved
        return self._more(block, block, ours, traced.union(own.inputs), still)

    def _more(self, upto: int, at: int, ours: Iterable[int], traced: Iterable[int], own: Iterable[int] = ()) -> int:
        """Bytes that blocks before `upto`, the program, and block `at` hold when that runs, beyond the profiled step.

        What was swapped out is away even if the program holds it, unless a block still reads it.
        """
        held, away = self._held(upto, at)
        kept = (number for number in ours if number not in away or self._last_use[number] >= at)
        profiled = (number for block in self.profile.blocks[:upto] if not block.frozen for number in block.inputs)
        return self._sum(held.union(kept, own)) - self._sum({*profiled, *traced})

    def _held(self, upto: int, at: int) -> tuple[set[int], set[int]]:
        """Storages that blocks before `upto` hold when block `at` runs, and those that they have sent away."""
        held: set[int] = set()
        away: set[int] = set()
        for number, (block, policy) in enumerate(zip(self.profile.blocks[:upto], self.policies[:upto], strict=True)):
            if policy == "checkpoint":
                held.update(() if block.frozen else block.inputs)
            else:
                (held if policy == "keep" or at - number <= self.interval else away).update(block.saved)
        return held, away

    def _sum(self, numbers: Iterable[int]) -> int:
        return sum(self.profile.storages[number] for number in numbers)
