"""How many layers stages can hold, and the cheapest flows of nodes to them, built from csrc/replan.

`bounds.Paths` and `transfer.transportation` are its faces for everyone else.
"""

import numpy as np
from numpy.typing import NDArray

from solvers.replan.estimate.rounds import IntArray

class Filling:
    """`bounds.Paths.filled` of one shape of pipeline, stage by stage; all numbers have 64 bits here.

    A path of each family takes fixed + behind · suffix + own · layers, arrays [family, stage]; `own` is 0 where layers
    are free.
    """

    def __init__(self, fixed: IntArray, behind: IntArray, own: IntArray) -> None: ...
    def add(self, one: int, fixed: IntArray, turns: IntArray, stays: IntArray, front: IntArray, each: IntArray) -> None:
        """From now on windows of at least two widths bind as well, arrays [width, stage] as `windows.Windows` has."""
    def turn(self, one: int, fixed: IntArray, waits: IntArray, turns: IntArray) -> None:
        """From now on `turns.Turns` bind as well, where `front` is given: both its halves one below the other."""
    def cheapest(
        self, rooms: IntArray, fewest: IntArray, most: IntArray, prices: IntArray, limit: int
    ) -> tuple[int, list[int]]:
        """As `prices.Splits` fills its tables: the least price, and the layers of stages from the first on."""
    def fewest(self, held: IntArray, limit: int) -> IntArray:
        """As `windows.Windows.least`."""
    def fewer(self, fewest: IntArray, limit: int, front: int) -> IntArray:
        """As `turns.Turns.least`."""
    def filled(self, rooms: IntArray, layers: int, limit: int, front: int = 0) -> list[int]:
        """The most layers that the last 1…P stages hold together; fewer of them where all hold less than `layers`."""

def transported(cost: NDArray[np.float64], supply: IntArray, demand: IntArray) -> IntArray | None:
    """As `transportation._Paths.solve`, step by step: supplies and demands are equal in sum."""

def counted(
    worth: list[int], least: int, costs: list[list[int]], most: list[int], steps: int
) -> tuple[bool, list[int] | None]:
    """As `counts.counted_in_python`, step by step."""

def most_within(forward: list[int], backward: list[int], most: int, hop: int, limit: int) -> int:
    """The most microbatches, up to `most`, that a pipeline of such stages ends within the limit."""
