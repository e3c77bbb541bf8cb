"""Ten budgets of GPT-300M with 24 layers, from tight to loose: how far `opt` ends from its certified bound."""

from collections.abc import Iterator

from experiments.graphs.cell import Asked

POSITIONS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Between the bound on the least budget and the peak without recomputation."""
TIME_S = 30.0
"""What the goal allows, on one thread of a machine that has nothing else to do."""
WORK = 1.0
"""Deterministic work: the same plan on any machine, however busy."""


def in_time() -> Iterator[tuple[float, Asked]]:
    """Each budget, and what is asked of it within seconds of the clock."""
    for position in POSITIONS:
        yield position, Asked(graph=f"gpt300m@{position}", solver="opt", time_s=TIME_S)


def by_work() -> Iterator[tuple[float, Asked]]:
    """The same with deterministic work."""
    for position in POSITIONS:
        yield position, Asked(graph=f"gpt300m@{position}", solver="opt", work=WORK)
