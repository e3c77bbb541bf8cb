"""Prices that a relaxation puts on the link, and on memory at its moment."""

from solvers.joint.choice import Prices, Shadow
from solvers.joint.given import Given
from solvers.joint.moment import Proof

LEAVES, STAYS = 0.6, 0.3
"""The shares of the link's and of memory's prices that a search charges. At the whole price of the link, sending what
the relaxation sends in part would gain nothing; at none, time of the link that is saved would count for nothing."""
MOST = 2**53
"""The most ticks that a choice may owe; with larger prices nothing is owed."""


def relaxed_prices(given: Given, proof: Proof) -> Prices:
    """Swaps at the duals of the link's rows, recomputations at their time."""
    out = [(int(key[4:]), dual) for key, dual in proof.duals.items() if key.startswith("out/")]
    back = [(int(key[3:]), dual) for key, dual in proof.duals.items() if key.startswith("in/")]
    unit = max(1, sum(dual for key, dual in proof.duals.items() if key == "step" or key.startswith("in/")))

    def swap(i: int, first: int, last: int) -> float:
        out_price = sum(dual for e, dual in out if e <= i) / unit
        in_price = sum(dual for s, dual in back if last <= s) / unit
        return out_price * given.out_time[i] + in_price * given.in_time[i]

    return Prices(swap)


def shadow_of(given: Given, proof: Proof) -> Shadow | None:
    """What a search charges for what is away at the moment, and for what stays; None where that is beyond `MOST`.

    An output is taken to return for the first op behind the moment that reads it.
    """
    swap, users, end = relaxed_prices(given, proof).swap, given.graph.users, len(given) - 1
    unit = max(1, sum(dual for key, dual in proof.duals.items() if key == "step" or key.startswith("in/")))
    memory = [(int(key.partition("/")[2]), dual) for key, dual in proof.duals.items() if key.startswith("memory/")]
    stays = STAYS * sum(-dual / grain for grain, dual in memory) / unit
    leaves = [0.0] * len(given)
    for i in range(proof.stage):
        leaves[i] = LEAVES * swap(i, i, next((user for user in users[i] if user > proof.stage), end))
    if sum(leaves) + stays * sum(given.graph.size) > MOST:
        return None
    return Shadow(proof.stage, [int(ticks) for ticks in leaves], stays)
