"""Ten budgets of GPT-300M with 24 layers, from tight to loose: how far `opt` ends from its certified bound."""

from collections.abc import Iterator

from experiments.graphs.cell import Asked

POSITIONS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Between the bound on the least budget and the peak without recomputation."""
WORK = 1.0
"""Deterministic work: the same plan on any machine, however busy."""


def budgets() -> Iterator[tuple[float, Asked]]:
    """Each budget, and what is asked of it."""
    for position in POSITIONS:
        yield position, Asked(graph=f"gpt300m@{position}", solver="opt", work=WORK)
