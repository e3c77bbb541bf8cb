"""Where the bytes of buffers come from: a pool of their own, so that no other allocation splits their blocks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def private_room(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """A context in which a device allocates buffers.

    On CUDA a `torch.cuda.MemPool`, which lives as long as what is returned. The simulated device allocates by exact
    bytes, which nothing splits.
    """
    if device.type != "cuda":
        return nullcontext
    pool = torch.cuda.MemPool()
    return lambda: torch.cuda.use_mem_pool(pool, device)
