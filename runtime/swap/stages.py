"""When to make swap policies and when to keep one: SmartSwap's Algorithm 1, on integers only.

At the end of each iteration the machine compares its operator sequence with that of the iteration before. Each line of
the algorithm is quoted where it is carried out. Three things come in two forms:

| | default | `printed` |
|---|---|---|
| cosine | of the operators' counts: order-free, defined for any two lengths | of the id sequences themselves |
| GenPolicy iterations | n, as the text says | n + 1, as `StableStep > n` makes them |
| iterations that differ by turns | each kind has stages and policies of its own (`recurrence.py`) | warm up for ever |

What Algorithm 1 leaves open is resolved alike in both. A Stage that no line sets stays what it was. The change of
length is relative to the iteration before. Both bounds are strict, as in the algorithm (the text has "by more than 5 %"
and "below 95 %"). The first iteration is compared with itself, so WarmUp takes m + 1 iterations at the start, and after
a change m + 1 that are like their predecessors. Sequences of different lengths have no cosine as printed: the shorter
one is taken to end in zeros.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.loop.arguments import require
from solvers.ir.errors import InvalidInput

Operators: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
"""Operator ids (0, 1, …) in the order of execution; an array is compared some ten times faster than a list."""

MOST_OPERATOR_IDS = 1 << 20
"""Ids are dense: the profiler numbers operators by first appearance, and PyTorch has a few thousand."""


MOST_POLICIES = 1000
"""The portfolio lists all of them when a session starts, and each takes an iteration."""


class Stage(Enum):
    """What a session does in an iteration."""

    WARM_UP = "WarmUp"
    """Watch the operator sequence, and answer what does not fit by passive swaps."""
    GEN_POLICY = "GenPolicy"
    """Record in detail, and make and try one policy after each iteration."""
    STABLE = "Stable"
    """Keep the best policy."""


@dataclass(frozen=True)
class StageSettings:
    """The parameters of Algorithm 1; the defaults are the paper's (§4 and §7.1).

    `warm_up_iterations` is m: more similar iterations than this end the warm-up. `policies` is n. `length_tolerance` is
    the relative change of length from which on two sequences differ, `least_cosine` the cosine down to which they do.
    So many kinds of iterations are `remembered` with their policies for when one comes again, after a validation for
    instance (ours; 0 forgets them, and so does `printed`).
    Raises `InvalidInput` for a value outside of its range.
    """

    warm_up_iterations: int = 2
    policies: int = 5
    length_tolerance: float = 0.05
    least_cosine: float = 0.95
    printed: bool = False
    remembered: int = 8

    def __post_init__(self) -> None:
        """Refuse thresholds that can never be met, or always are."""
        for name in ("warm_up_iterations", "policies", "remembered"):
            require(name, getattr(self, name), Integral, "a whole number")
        for name in ("length_tolerance", "least_cosine"):
            require(name, getattr(self, name), Real, "a number")
        require("printed", self.printed, bool, "True or False")
        if self.warm_up_iterations < 0:
            raise InvalidInput(f"warm_up_iterations is {self.warm_up_iterations}: give 0 or more")
        if self.remembered < 0:
            raise InvalidInput(
                f"remembered is {self.remembered}: give 0 to forget the policies of other sequences, or more"
            )
        if not 1 <= self.policies <= MOST_POLICIES:
            raise InvalidInput(f"policies is {self.policies}: give 1 or more, up to {MOST_POLICIES}")
        if not self.length_tolerance > 0:
            raise InvalidInput(f"length_tolerance is {self.length_tolerance}: give a fraction above 0, such as 0.05")
        if not 0 <= self.least_cosine < 1:
            raise InvalidInput(f"least_cosine is {self.least_cosine}: give a number from 0 to below 1, such as 0.95")


class Similarity(NamedTuple):
    """How two operator sequences compare: relative change of length, cosine, and whether they pass for the same."""

    length_change: float
    cosine: float
    similar: bool


class Counted(NamedTuple):
    """A sequence of operators with what comparing it needs, made by `counted`."""

    ids: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def similarity(
    previous: Operators | Counted, current: Operators | Counted, settings: StageSettings | None = None
) -> Similarity:
    """Compare the operator sequences of two iterations by Algorithm 1's condition.

    Raises `InvalidInput` for ids that are no operator's.
    """
    return _compare(counted(previous), counted(current), settings or StageSettings())


class StageMachine:
    """Algorithm 1 with its static variables: one for each training loop."""

    def __init__(self, settings: StageSettings | None = None) -> None:
        self.settings = settings or StageSettings()
        self._stage = Stage.WARM_UP  # static PrevStage ← WarmUp
        self._stable_steps = 0  # static StableStep ← 0
        self._previous: Counted | None = None
        self._last: Similarity | None = None

    @property
    def stage(self) -> Stage:
        """The stage of the running iteration."""
        return self._stage

    @property
    def stable_steps(self) -> int:
        """StableStep: similar iterations since the last change or, after that, since GenPolicy began."""
        return self._stable_steps

    @property
    def last(self) -> Similarity | None:
        """The latest comparison; None before the first."""
        return self._last

    def advance(self, operators: Operators | Counted, *, alike: bool = False) -> Stage:
        """The stage of the next iteration, given the operators of the one that has just ended.

        They pass for the same as those before where somebody knows that they are `alike`. Raises `InvalidInput` for ids
        that are no operator's; the machine is then as it was.
        """
        current = counted(operators)
        previous = current if self._previous is None else self._previous  # static PrevOpSeq ← OpSeq
        self._last = _compare(previous, current, self.settings)
        if self._last.similar or alike:
            self._stable_steps += 1  # StableStep ← StableStep + 1
            self._pass_on()
        else:
            self._stage, self._stable_steps = Stage.WARM_UP, 0  # Stage, StableStep ← WarmUp, 0
        self._previous = current  # PrevStage, PrevOpSeq ← Stage, OpSeq
        return self._stage

    def begin_anew(self, operators: Operators | Counted) -> Stage:
        """Take the iteration that has just ended for one that is unlike its predecessor: the warm-up begins."""
        self._previous = counted(operators)
        self._stage, self._stable_steps = Stage.WARM_UP, 0
        return self._stage

    def _pass_on(self) -> None:
        """The inner branches; where neither applies, the algorithm sets no Stage and it stays."""
        if self._stage is Stage.WARM_UP and self._stable_steps > self.settings.warm_up_iterations:
            self._stage, self._stable_steps = Stage.GEN_POLICY, 0  # Stage, StableStep ← GenPolicy, 0
        elif self._stage is Stage.GEN_POLICY and self._stable_steps >= self._policy_iterations():
            self._stage = Stage.STABLE  # Stage ← Stable

    def _policy_iterations(self) -> int:
        """`StableStep > n` as printed; the text makes n policies."""
        return self.settings.policies + (1 if self.settings.printed else 0)


@dataclass(frozen=True)
class Sampling:
    """Which iterations are compared, for a still lower cost in the long run.

    While a policy stands and all latest iterations were of one kind, only each `every`-th is; a change in between is
    noticed later or, if it is gone again by then, not at all. Raises `InvalidInput` unless `every` is at least 1.
    """

    every: int = 1

    def __post_init__(self) -> None:
        """Refuse a sampling that compares no iteration."""
        if self.every < 1:
            raise InvalidInput(f"every is {self.every}: give 1 to compare all iterations, or more")

    def due(self, stage: Stage, iteration: int) -> bool:
        """Whether to compare an iteration; `iteration` counts from 0 since the stage began."""
        return stage is not Stage.STABLE or (iteration + 1) % self.every == 0


def counted(operators: Operators | Counted) -> Counted:
    """The sequence ready to be compared, as often as need be; raises `InvalidInput` for ids that are no operator's."""
    if isinstance(operators, Counted):
        return operators
    ids = np.asarray(operators, dtype=np.int64)
    if ids.ndim != 1:
        raise InvalidInput(f"operators have {ids.ndim} dimensions: give one id after the other")
    if ids.size > 0 and (ids.min() < 0 or ids.max() >= MOST_OPERATOR_IDS):
        outside = int(ids.min()) if ids.min() < 0 else int(ids.max())
        raise InvalidInput(f"{outside} is no operator's id: give ids from 0 to {MOST_OPERATOR_IDS - 1}")
    return Counted(ids, np.bincount(ids))


def _compare(previous: Counted, current: Counted, settings: StageSettings) -> Similarity:
    """`diff(len(OpSeq), len(PrevOpSeq)) < 5% and CosineSimilarity(OpSeq, PrevOpSeq) > 95%`."""
    length_change = relative_change(previous.ids.size, current.ids.size)
    cosine = _cosine(previous.ids, current.ids) if settings.printed else _cosine(previous.counts, current.counts)
    similar = length_change < settings.length_tolerance and cosine > settings.least_cosine
    return Similarity(length_change, cosine, similar)


def relative_change(previous: int, current: int) -> float:
    """By which share of the one before the current value differs; infinite where that was 0 and this is not."""
    if previous == 0:
        return 0.0 if current == 0 else math.inf
    return abs(current - previous) / previous


def _cosine(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> float:
    """The cosine of two vectors, the shorter one continued by zeros; equal vectors have 1, also where both are zero."""
    if np.array_equal(left, right):
        return 1.0
    common = min(left.size, right.size)
    product = int(left[:common] @ right[:common])
    norms = int(left @ left) * int(right @ right)
    return product / math.sqrt(norms) if norms > 0 else 0.0
