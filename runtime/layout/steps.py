"""What is known of a model's steps: of which inputs they were measured, and what they took beside what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, Literal, Self

import torch
from torch.utils._pytree import tree_leaves

from runtime.device import memory_stats
from runtime.profile.memory import MemoryProfile, activation_peak_bytes
from runtime.profile.memory.profile import ProfiledBlock

Phase = Literal["forward", "behind", "backward", "update", "between"]
"""Of a step: the model's forward, what comes behind it (a loss), the way back, the update, and what is none of it."""


@dataclass(frozen=True)
class Given:
    """The shapes of the tensors that a forward is given, in their order."""

    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, args: Any, kwargs: Any) -> Self:
        """That of a call's arguments."""
        return cls(tuple(tuple(one.shape) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)))

    @property
    def numbers(self) -> int:
        """Of all together."""
        return sum(prod(shape) for shape in self.shapes)

    def growth(self, before: "Given") -> float:
        """How many times as much a forward may take than one that was given `before`; 1 where nothing is longer.

        What it makes grows with each length at most, and with one length once more, as attention does. Infinite where
        other tensors are given.
        """
        if [len(one) for one in self.shapes] != [len(one) for one in before.shapes]:
            return inf
        ratios = [
            [max(1.0, now / then if then else inf if now else 1.0) for now, then in zip(*pair, strict=True)]
            for pair in zip(self.shapes, before.shapes, strict=True)
        ]
        return max((prod(one) * max(one, default=1.0) for one in ratios), default=1.0)

    def __str__(self) -> str:
        return ", ".join(" x ".join(map(str, shape)) for shape in self.shapes) or "no tensors"


@dataclass(frozen=True)
class Beside:
    """What steps took that no measured forward shows: all the time, and from its end until its results' gradients come.

    `passes` is how many forwards' graphs are there at once.
    """

    outside_bytes: int = 0
    behind_bytes: int = 0
    passes: int = 1

    @property
    def bytes(self) -> int:
        """Altogether, but for the passes."""
        return self.outside_bytes + self.behind_bytes

    def added_to(self, profile: MemoryProfile) -> MemoryProfile:
        """The profile of a step that takes as much, but for the passes."""
        segments, last, behind = list(profile.segments), len(profile.blocks), self.behind_bytes
        for number, one in enumerate(segments[profile.forward_start :], profile.forward_start):
            more = self.outside_bytes
            turns = one.place.block is None and one.place.ended == last and one.place.module != "optimizer"
            segments[number] = replace(
                one,
                start_bytes=one.start_bytes + more,
                peak_bytes=one.peak_bytes + more + (behind if turns else 0),
                end_bytes=one.end_bytes + more,
            )
        return replace(
            profile,
            segments=tuple(segments),
            fixed_bytes=profile.fixed_bytes + self.outside_bytes,
            last=replace(
                profile.last,
                forward_transient_bytes=profile.last.forward_transient_bytes + behind,
                backward_transient_bytes=profile.last.backward_transient_bytes + behind,
            ),
        )


class Steps:
    """The steps that were measured, each by what its forward was given, and what is beside them."""

    def __init__(self) -> None:
        self.beside = Beside()
        self._measured: list[tuple[Given | None, MemoryProfile]] = []

    def add(self, given: Given | None, profile: MemoryProfile) -> None:
        """A forward that was given this was measured; None: nobody knows what, and the next one counts as it.

        What is beside the largest one before grows with it, where it is a loss of the program's own: as its inputs.
        """
        if self._measured and given is not None:
            before, largest = max(self._measured, key=lambda one: _size(one[1]))
            if before is not None and before.numbers:
                loss = (_taken(largest.last) + self.beside.behind_bytes) * given.numbers // before.numbers
                behind = max(self.beside.behind_bytes, loss - _taken(profile.last))
                self.beside = replace(self.beside, behind_bytes=behind)
            self._measured = [one for one in self._measured if one[0] is None or one[0].growth(given) > 1]
        self._measured.append((given, profile))

    def growth(self, given: Given) -> float:
        """How many times as much this may take than a measured forward did; 1 where one was given as much."""
        self._measured = [(given if one is None else one, profile) for one, profile in self._measured]
        return min((given.growth(one) for one, _ in self._measured if one is not None), default=1.0)

    @property
    def known(self) -> tuple[Beside, list[tuple[Given | None, MemoryProfile]]]:
        """All of it, to be put back."""
        return self.beside, list(self._measured)

    @known.setter
    def known(self, before: tuple[Beside, list[tuple[Given | None, MemoryProfile]]]) -> None:
        self.beside, self._measured = before[0], list(before[1])

    @property
    def profile(self) -> MemoryProfile:
        """That of the largest one, with what is beside it."""
        return self.beside.added_to(max((profile for _, profile in self._measured), key=_size))


def _taken(block: ProfiledBlock) -> int:
    """The most that it holds and takes for a moment."""
    return block.activation_bytes + max(block.forward_transient_bytes, block.backward_transient_bytes)


def _size(profile: MemoryProfile) -> tuple[int, int]:
    """By its blocks, and what it takes where all keep what they save."""
    return len(profile.blocks), activation_peak_bytes(profile, ["keep"] * len(profile.blocks))


class Peaks:
    """In which part of a step the device's peak grew, and to what; `seen` since a layout was made."""

    def __init__(self, device: torch.device) -> None:
        self.seen: dict[Phase, int] = {}
        self._device = device
        self._phase: Phase = "between"
        self._last = 0

    def to(self, phase: Phase) -> None:
        """Another part of a step begins."""
        peak = memory_stats(self._device).peak_bytes
        if peak > self._last and self._phase != "between":
            self.seen[self._phase] = peak
        self._last, self._phase = peak, phase

    def backward_begins(self) -> None:
        """The first gradient of the model's results, or of what is in it, is known."""
        if self._phase != "backward":
            self.to("backward")

    def later(self, more_bytes: int) -> None:
        """The steps to come have so much on the device that those so far had not: states that the update has made."""
        self.seen = {phase: peak + more_bytes * (phase != "update") for phase, peak in self.seen.items()}

    def forget(self) -> None:
        """Another layout is made: the device's statistics begin anew."""
        self.seen, self._last, self._phase = {}, 0, "between"


def beside_after(
    before: Beside, seen: Mapping[Phase, int], peak_bytes: int, behind_peak_bytes: int, passes: int
) -> Beside:
    """What is beside, by the peaks of steps and what was predicted for them, altogether and behind the forward."""
    inside: Sequence[Phase] = ("forward", "backward", "update")
    outside = max(0, *(seen.get(phase, 0) - peak_bytes for phase in inside))
    behind = max(0, seen.get("behind", 0) - behind_peak_bytes - outside)
    return Beside(before.outside_bytes + outside, before.behind_bytes + behind, passes)
