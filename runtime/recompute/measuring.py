"""When a step is measured again: blocks ran other operators than in the measured one, or are given more than ever.

The first forward pass of many models is like no later one: caches of rotary embeddings and masks are made in it,
recurrent layers begin without a state, normalizations set themselves up. Later, sequences grow, and layers are thawed.
A plan for another step keeps no budget, so the next pass stores nothing and is measured, as the first one was. So is
the first pass that adds to gradients: the second microbatch, or the second step where they are set to zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.recompute.layer import Layer

MOST_MEASURED, MOST_STRAYED = 8, 3
"""How often a session measures a pass again, and how often since the one before it ran other operators than its plan
knows: where work depends on data, as in mixtures of experts, a plan for the last pass is no better for the next."""


@dataclass(frozen=True)
class Occasion:
    """What a pass is about to do, as far as that is known when it begins.

    `given_bytes` is what its first block is given, `trainable` how many parameters of the model want gradients; `adds`:
    some have one, to which the backward pass adds, which takes time, and memory for a moment.
    """

    given_bytes: int = 0
    trainable: int = 0
    adds: bool = False


@dataclass
class Measuring:
    """Whether the next pass is measured again, and whether what was measured replaces what is known.

    `times`: how often a pass was measured; `strayed`: the last planned pass ran other operators than its plan knows, as
    so many `strays` before it did that another pass was measured for.
    """

    times: int = 0
    strays: int = 0
    strayed: bool = False
    known: Occasion = Occasion()
    under_way: Occasion | None = None

    @property
    def follows(self) -> bool:
        """Whether passes that stray are measured; else plans are only corrected."""
        return self.times <= MOST_MEASURED and self.strays < MOST_STRAYED

    def wanted(self, coming: Occasion, *, planned: bool) -> bool:
        """Whether the pass that begins is to be measured; where nothing is `planned` yet, only since it does more."""
        if self.times > MOST_MEASURED:
            return False
        larger = coming.given_bytes > self.known.given_bytes or (coming.adds and not self.known.adds)
        strayed = self.strayed and self.follows
        return larger or (planned and (strayed or coming.trainable > self.known.trainable))

    def begin(self, coming: Occasion) -> None:
        """The pass that begins is measured."""
        self.under_way = coming

    def end(self, before: Sequence[Layer], layers: Sequence[Layer], blocks: tuple[set[int], set[int]]) -> bool:
        """It has had its backward pass: whether its `layers` replace those known `before`.

        `blocks` are the places in the model of both. Not where the known ones are the same, nor where blocks that are
        known were not called, unless more parameters want gradients: steps that leave blocks out at random are planned
        by the one that left out fewest.
        """
        occasion, self.under_way = self.under_way, None
        assert occasion is not None
        self.times, self.strays, self.strayed = self.times + 1, self.strays + self.strayed, False
        known, self.known = self.known, occasion
        if not before or occasion.trainable > known.trainable:
            return True
        if not blocks[0] <= blocks[1]:
            self.known = known
            return False
        if occasion.given_bytes < known.given_bytes:
            self.known = replace(occasion, given_bytes=known.given_bytes)  # a smaller pass of other operators
        same = [one.names for one in before] == [one.names for one in layers] and occasion.adds <= known.adds
        return not same or occasion.given_bytes > known.given_bytes
