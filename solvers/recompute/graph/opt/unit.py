"""Times in their greatest common unit: the same graph in other units of time has the same plan and the same gap."""

import math
from typing import Any

from msgspec.structs import replace

from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Watch
from solvers.recompute.graph.answers import Answer


def shortest(problem: RecomputeGraphProblem) -> tuple[RecomputeGraphProblem, int]:
    """The problem with its times divided by their greatest common divisor, and that divisor (1 without any time)."""
    factor = math.gcd(*(op.time_us for op in problem.ops)) or 1
    if factor == 1:
        return problem, 1
    ops = tuple(replace(op, time_us=op.time_us // factor) for op in problem.ops)
    return replace(problem, ops=ops), factor


def in_us(answer: Answer, factor: int) -> Answer:
    """An answer of the problem in units of `factor` µs, in µs."""

    def grown(value: Any) -> Any:
        return None if value is None else value * factor

    certificate = answer.certificate
    return replace(
        answer,
        objective=grown(answer.objective),
        bound=grown(answer.bound),
        base=grown(answer.base),
        certificate=None if certificate is None else _dearer(certificate, factor),
    )


def watch_in_us(watch: Watch | None, factor: int) -> Watch | None:
    """The caller's watch, for a search in units of `factor` µs."""
    if watch is None or factor == 1:
        return watch

    def grown(value: float | None) -> float | None:
        return None if value is None else value * factor

    return lambda incumbent, bound, elapsed_s: watch(grown(incumbent), grown(bound), elapsed_s)


def _dearer(certificate: dict[str, Any], factor: int) -> dict[str, Any]:
    """The same proof with every time and price `factor` times as large."""
    leaves = [
        {
            **leaf,
            "duals": {key: value * _price(key, factor) for key, value in leaf["duals"].items()},
            "windows": {
                zone: {str(int(time) * factor): price * factor for time, price in prices.items()}
                for zone, prices in leaf["windows"].items()
            },
        }
        for leaf in certificate["leaves"]
    ]
    return {**certificate, "leaves": leaves}


def _price(key: str, factor: int) -> int:
    """What a row's price grows by: rows of times are `factor` times as long themselves."""
    return 1 if key.split("/")[0] == "window" else factor
