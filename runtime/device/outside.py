"""Memory of a device that no tensor and no cache of the allocator owns."""

import torch


def outside_bytes(device: torch.device) -> int | None:
    """What is taken of a device beside what PyTorch's allocator holds, in bytes, as the driver says now.

    That is the process's context, what cuBLAS, cuDNN and NCCL take for themselves, and whatever other processes have
    there: a budget of reserved bytes leaves it out, the device's memory has to hold both. None where no driver tells:
    the simulated device has none.
    """
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return max(0, total - free - torch.cuda.memory_reserved(device))
