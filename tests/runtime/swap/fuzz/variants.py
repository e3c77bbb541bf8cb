"""How a session is used, drawn at random."""

import random
from dataclasses import dataclass, field
from typing import Literal

from runtime.swap.portfolio import PolicyChoice
from runtime.swap.stages import StageSettings
from tests.runtime.swap.fuzz.budgets import Need


@dataclass(frozen=True)
class Variant:
    """How a session is used; the budget is `share` of the way from what the program needs at once to its peak.

    Below 0 it is that much less than it needs at once. `begins` and `pauses` are iterations: the first in the session,
    and one that runs while it rests.
    """

    share: float
    matching: Literal["features", "index"] = "features"
    record_stream: Literal["custom", "printed", "torch"] = "custom"
    boundaries: Literal["optimizer", "given"] = "optimizer"
    begins: int = 0
    pauses: int | None = None
    sample_every: int = 1
    stages: StageSettings = field(default_factory=StageSettings)
    solver: Literal["greedy-swap", "capuchin-swap"] | tuple[PolicyChoice, ...] = "greedy-swap"
    headroom: float = 0.0

    def budget_bytes(self, need: Need) -> int:
        """The budget for a program."""
        spread = need.peak_bytes - need.floor_bytes if self.share >= 0 else need.floor_bytes
        return int(need.floor_bytes + self.share * spread)


def draw_variant(seed: int) -> Variant:
    """The variant of a seed: one in eight has less memory than the program needs at once."""
    rng = random.Random(f"variant {seed}")  # not the numbers that drew the program
    return Variant(
        share=-rng.uniform(0.1, 0.6) if rng.random() < 1 / 8 else rng.choice((0.0, rng.random(), rng.random() / 4)),
        matching=rng.choice(("features", "features", "index")),
        record_stream=rng.choice(("custom", "custom", "printed", "torch")),
        boundaries=rng.choice(("optimizer", "optimizer", "given")),
        begins=rng.choice((0, 0, 0, 3)),
        pauses=rng.choice((None, None, None, 9)),
        sample_every=rng.choice((1, 1, 3)),
        stages=_stages(rng),
        solver=rng.choice(("greedy-swap", "greedy-swap", "capuchin-swap")),
        headroom=rng.choice((0.0, 0.0, 0.1)),
    )


def _stages(rng: random.Random) -> StageSettings:
    """Often impatient, and at times so generous that an outdated policy stays whatever changes."""
    generous = rng.random() < 1 / 3
    return StageSettings(
        warm_up_iterations=rng.choice((0, 1, 2)),
        policies=rng.choice((1, 2, 5)),
        length_tolerance=10.0 if generous else 0.05,
        least_cosine=0.0 if generous else 0.95,
        remembered=rng.choice((0, 1, 8)),
    )
