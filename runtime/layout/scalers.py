"""Gradient scalers over masters on the host: what they copy there is read only when it has come.

PyTorch's scaler checks gradients where they lie, by a flag and a factor that it copies to each device without waiting.
Between devices streams keep the order; on the host an operator reads at once what a copy still writes.
"""

from typing import Any

import torch
from torch.amp import grad_scaler


def let_scalers_wait() -> None:
    """From now on gradient scalers of this process wait for what they copy to the host; once is enough."""
    replicator: Any = grad_scaler._MultiDeviceReplicator
    if getattr(replicator.get, "waits", False):
        return

    def get(self: Any, device: torch.device) -> torch.Tensor:
        held: torch.Tensor | None = self._per_device_tensors.get(device)
        if held is None:
            late = device.type != "cpu" or self.master.is_cpu
            held = self._per_device_tensors[device] = self.master.to(device=device, non_blocking=late, copy=True)
        return held

    get.waits = True  # type: ignore[attr-defined]
    replicator.get = get
