"""What a session is asked for: a model on one device, and a budget of that device's memory."""

import torch
from torch import nn

from runtime.device import memory_limit_bytes
from solvers.ir.amounts import parse_budget
from solvers.ir.errors import InvalidInput


def device_of(model: nn.Module) -> torch.device:
    """The one device that the model's parameters are on; raises `InvalidInput` where they are on several."""
    devices = {one.device for one in model.parameters()}
    if len(devices) != 1:
        told = ", ".join(sorted(map(str, devices))) or "none"
        raise InvalidInput(f"the model's parameters are on {told}: put them on one device")
    return devices.pop()


def budget_bytes_of(budget: int | str, device: torch.device) -> int:
    """The budget in bytes; raises `InvalidInput` where it is none, or the device counts no memory."""
    if device.type == "cpu":
        raise InvalidInput(
            "the model is on the CPU, where PyTorch counts no memory: put it on an accelerator, or on the simulated "
            "one (runtime.device.use_sim); runtime.recompute.record works on the CPU too"
        )
    if isinstance(budget, str):
        return parse_budget(budget, memory_limit_bytes(device), "budget")
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise InvalidInput(f"the budget is {budget!r}: give whole bytes, or text such as '8GiB'")
    return budget
