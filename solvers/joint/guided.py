"""Prices that a relaxation puts on the link."""

from solvers.joint.choice import Prices
from solvers.joint.given import Given
from solvers.joint.moment import Proof


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
