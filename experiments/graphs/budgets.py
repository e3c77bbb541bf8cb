"""Ten budgets of GPT-300M with 24 layers, from tight to loose: how far `opt` ends from its certified bound."""

from collections.abc import Iterator
from typing import Any

from experiments.graphs.cell import Asked
from experiments.graphs.store import Store

POSITIONS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Between the bound on the least budget and the peak without recomputation."""
WORK = 1.0
"""Deterministic work: the same plan on any machine, however busy."""


def budgets(store: Store) -> Iterator[dict[str, Any]]:
    """A row for each budget, as they come."""
    for position in POSITIONS:
        row = store.get(Asked(graph=f"gpt300m@{position}", solver="opt", work=WORK))
        yield {"position": position, **row}
