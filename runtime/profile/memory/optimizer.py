"""What an optimizer holds."""

import torch


def growing_state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """The optimizer's states, as far as they grow with parameters: its step counters do not count."""
    states = (value for state in optimizer.state.values() for value in state.values())
    return sum(value.nbytes for value in states if isinstance(value, torch.Tensor) and value.ndim)
