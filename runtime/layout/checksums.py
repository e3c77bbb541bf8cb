"""Of what no version counts (`.data`): the bytes themselves."""

import zlib

import torch
from torch import Tensor

from runtime.layout.chunk import Chunk


def checksums(chunk: Chunk) -> tuple[int, ...]:
    """Of the bytes of all masters and gradients."""
    masters = [slot.master for slot in chunk.slots]
    return tuple(_checksum(one) for one in [*masters, *(one.grad for one in masters)] if one is not None)


def _checksum(tensor: Tensor) -> int:
    held = tensor.detach()
    plain = held if held.layout is torch.strided else held.to_dense()
    return zlib.crc32(plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
