"""When a step is measured again: blocks ran other operators than in the measured one, or are given more than ever.

The first forward pass of many models is like no later one: caches of rotary embeddings and masks are made in it,
recurrent layers begin without a state, normalizations set themselves up. Later, sequences grow, and layers are thawed.
A plan for another step keeps no budget, so the next pass stores nothing and is measured, as the first one was. So is
the first pass that adds to gradients: the second microbatch, or the second step where they are set to zero.

Some passes grow inside only, as a decoder's sequences do, or attention where rows are fewer and longer. Blocks store no
more than planned then, and the next pass that is given as much as such a one is measured.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runtime.recompute.calls import Given
from runtime.recompute.layer import Layer

MOST_MEASURED, MOST_STRAYED = 8, 3
"""How often a session measures a pass again, and how often since the one before it ran other operators than its plan
knows: where work depends on data, as in mixtures of experts, a plan for the last pass is no better for the next."""
GROWTH = 17 / 16
"""From how many times as much as a call may store on its pass has grown: less is made up for by other plans."""


@dataclass(frozen=True)
class Occasion:
    """What a pass is about to do, as far as that is known when it begins.

    `given` is how much its first block is given, `trainable` how many parameters of the model want gradients; `adds`:
    some have one, to which the backward pass adds, which takes time, and memory for a moment.
    """

    given: Given = field(default_factory=Given)
    trainable: int = 0
    adds: bool = False


@dataclass
class Measuring:
    """Whether the next pass is measured again, and whether what was measured replaces what is known.

    `times`: how often a pass was measured; `strayed`: the last planned pass ran other operators than its plan knows, as
    so many `strays` before it did that another pass was measured for. `grown`: what a planned pass was given that was
    larger inside than the measured one, and none like it was measured since.
    """

    times: int = 0
    strays: int = 0
    strayed: bool = False
    known: Occasion = Occasion()
    grown: Given | None = None
    under_way: Occasion | None = None

    @property
    def follows(self) -> bool:
        """Whether passes that stray are measured; else plans are only corrected."""
        return self.times <= MOST_MEASURED and self.strays < MOST_STRAYED

    def follows_from(self, strayed: bool, growth: float) -> bool:
        """Whether a pass that strayed, or has grown so much, is a reason to measure one like it."""
        grown = growth > GROWTH and self.grown is None and self.times <= MOST_MEASURED
        return grown or (strayed and self.follows)

    def look(self, *, strayed: bool, growth: float, given: Given) -> bool:
        """A planned pass has ended: whether one like it is measured next, rather than planned for by what it took."""
        follows, self.strayed = self.follows_from(strayed, growth), strayed
        if growth > GROWTH:
            self.grown = given
        return follows

    def wanted(self, coming: Occasion, *, planned: bool) -> bool:
        """Whether the pass that begins is to be measured; where nothing is `planned` yet, only since it does more."""
        if self.times > MOST_MEASURED:
            return False
        larger = coming.given.bytes > self.known.given.bytes or (coming.adds and not self.known.adds)
        larger = larger or (self.grown is not None and coming.given.extent >= self.grown.extent)
        strayed = self.strayed and self.follows
        return larger or (planned and (strayed or coming.trainable > self.known.trainable))

    def begin(self, coming: Occasion) -> None:
        """The pass that begins is measured."""
        self.under_way = coming

    def end(self, before: Sequence[Layer], layers: Sequence[Layer], blocks: tuple[Counter[int], Counter[int]]) -> bool:
        """It has had its backward pass: whether its `layers` replace those known `before`.

        `blocks`: how often both called which, by place in the model. Not where the known ones are the same, nor where
        blocks that are known were not called, or less often and none makes more, unless more parameters want gradients:
        steps that leave blocks out at random, or whole forward passes, are planned by the one that left out fewest.
        """
        occasion, self.under_way, self.grown = self.under_way, None, None
        assert occasion is not None
        self.times, self.strays, self.strayed = self.times + 1, self.strays + self.strayed, False
        known, self.known = self.known, occasion
        if not before or occasion.trainable > known.trainable:
            return True
        if not {*blocks[0]} <= {*blocks[1]}:
            self.known = known
            return False
        larger = occasion.given.bytes > known.given.bytes or _made(layers) > _made(before)
        if occasion.given.bytes < known.given.bytes:
            self.known = replace(occasion, given=known.given)  # a smaller pass of other operators, or larger inside
        names = [one.names for one in before], [one.names for one in layers]
        fewer = blocks[1] < blocks[0] and {*names[1]} <= {*names[0]} and not larger
        if fewer and occasion.adds <= known.adds:
            self.known = known
        return larger or not (fewer or names[0] == names[1]) or occasion.adds > known.adds


def _made(layers: Sequence[Layer]) -> int:
    """What all blocks make."""
    return sum(sum(layer.made) for layer in layers)
