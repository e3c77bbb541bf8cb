"""Choices that follow a relaxation's solution: what it swaps and computes again, then by its prices."""

from collections.abc import Callable, Iterator

from solvers.joint.choice import Choice, Prices, drop, fill, keep_all
from solvers.joint.draft import kept_of
from solvers.joint.given import Given
from solvers.joint.moment import Proof


def guided(given: Given, proof: Proof, stop: Callable[[], bool]) -> Iterator[Choice | None]:
    """Choices from nothing by the relaxation's prices, and from what it does most of."""
    prices = relaxed_prices(given, proof)
    yield fill(given, keep_all(given), prices, stop)
    for least in (0.5, 0.9):
        yield fill(given, rounded(given, proof, least, stop), prices, stop)


def relaxed_prices(given: Given, proof: Proof, noise: Callable[[], float] = lambda: 1.0) -> Prices:
    """Swaps at the duals of the link's rows, recomputations at their time."""
    out = [(int(key[4:]), dual) for key, dual in proof.duals.items() if key.startswith("out/")]
    back = [(int(key[3:]), dual) for key, dual in proof.duals.items() if key.startswith("in/")]
    unit = max(1, sum(dual for key, dual in proof.duals.items() if key == "step" or key.startswith("in/")))

    def swap(i: int, first: int, last: int) -> float:
        out_price = sum(dual for e, dual in out if e <= i) / unit
        in_price = sum(dual for s, dual in back if last <= s) / unit
        return out_price * given.out_time[i] + in_price * given.in_time[i]

    return Prices(swap, noise=noise)


def rounded(given: Given, proof: Proof, least: float, stop: Callable[[], bool] = lambda: False) -> Choice:
    """What the relaxation swaps or computes again by at least that much; the latest op first, so that chains hold."""
    choice = keep_all(given)
    kept = kept_of(given, choice.again)
    for i in range(proof.stage - 1, -1, -1):
        if stop():
            break
        gap = kept.gap(i, proof.stage)
        if gap is None:
            continue
        if proof.values.get(f"swap/{i}", 0.0) >= least:
            choice.away.add((i, gap[0]))
        elif proof.values.get(f"again/{i}", 0.0) + proof.values.get(f"hide/{i}", 0.0) >= least:
            current = kept_of(given, choice.again)
            now = current.gap(i, proof.stage)
            if now is not None:
                drop(given, choice, current, i, now[1], proof.stage)
    return choice
