"""SmartSwap's decision: which activations leave the device, and when each returns."""

from solvers.swap.greedy import GreedySwap
from solvers.swap.lower import lower

__all__ = ["GreedySwap", "lower"]
