"""Where to measure: a device that exists, with its index."""

import torch

from solvers.ir.errors import InvalidInput


def place_of(device: torch.device | str) -> torch.device:
    """The device with its index (the current one, unless it says which); none for the CPU.

    Raises `InvalidInput` where torch does not know the device or cannot use it in this process.
    """
    try:
        return torch.empty(0, device=device).device  # allocates nothing
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InvalidInput(
            f"device {str(device)!r} cannot be used in this process ({reason}): choose another"
        ) from error
