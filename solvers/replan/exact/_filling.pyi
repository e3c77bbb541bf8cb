"""How many layers stages can hold, and the cheapest flows of nodes to them, built from csrc/replan.

`bounds.Paths` and `transfer.transportation` are its faces for everyone else.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from solvers.replan.estimate.rounds import IntArray

Responses = NDArray[np.int64] | NDArray[np.int32]

class Filling:
    """`bounds.Paths` of one shape of pipeline, stage by stage; all numbers have 64 bits here.

    `each`, `first` and `last`: forward and backward of a layer, and what the first and the last stage take besides.
    """

    def __init__(
        self,
        depth: int,
        microbatches: int,
        layers: int,
        each: tuple[int, int],
        first: tuple[int, int],
        last: tuple[int, int],
        hop: int,
    ) -> None: ...
    def cheapest(self, rooms: IntArray, prices: IntArray, limit: int) -> tuple[int, list[int]]:
        """As `CheapestSplits` fills its tables: the least price, and the layers of stages from the first on."""
    def held(self, rooms: IntArray, layers: int, limit: int) -> tuple[IntArray, IntArray, IntArray] | None:
        """As `bounds.StageLimits.held`."""
    def most_in_all(self, rooms: IntArray, layers: int, limit: int) -> int:
        """As `bounds.Paths.most_in_all`."""
    def filled(self, rooms: IntArray, layers: int, limit: int, front: int = 0) -> list[int]:
        """As `bounds.Paths.filled`."""

def pipelines_us(forward: IntArray, backward: IntArray, microbatches: int, hop: int) -> IntArray:
    """T_pipe of pipelines of equal depth, by F5, their passes [pipeline, stage]."""

def prices(worth: dict[int, int], nodes: int, most: int) -> tuple[int, int, int, int]:
    """As `knapsack.prices_in_python`."""

def filled(worth: Mapping[int, int], nodes: int) -> list[tuple[int, int]]:
    """As `knapsack.fill_in_python`, in this order."""

def stage_prices(nodes: IntArray, sent: IntArray, weights: IntArray, widest: int, load: int) -> IntArray:
    """As `Market.stage_prices`, of what the layers in front of each that a kind lacks cost and weigh, [kind, layer]."""

def least_prices(prices: IntArray, most: int) -> list[int]:
    """As `CheapestSplits.least` of prices [layers behind, own], up to so many stages."""

def transported(cost: NDArray[np.float64], supply: IntArray, demand: IntArray) -> IntArray | None:
    """As `transportation._Paths.solve`, step by step: supplies and demands are equal in sum."""

def counted(
    worth: list[int], least: int, costs: list[list[int]], most: list[int], steps: int
) -> tuple[bool, list[int] | None]:
    """As `counts.counted_in_python`, step by step."""

def respond(
    behind: Responses | None, k: int, forward: Responses, backward: Responses, microbatches: int, hop: int
) -> Responses:
    """As `responses._respond`."""

def undominated(groups: IntArray, rows: Responses, order: IntArray, rank: IntArray | None = None) -> IntArray:
    """As `responses.undominated`, of rows [number, entries] and the order in which they are looked at."""

def most_within(forward: list[int], backward: list[int], most: int, hop: int, limit: int) -> int:
    """The most microbatches, up to `most`, that a pipeline of such stages ends within the limit."""
