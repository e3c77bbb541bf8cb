"""PyTorch's samples of its operators with bytes and with shapes only: what results and gradients look like."""

import gc
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from runtime.device import SimDevice
from tests.csrc.sim.opinfo.copies import Copies
from tests.csrc.sim.opinfo.programs import Program, programs_of

Face = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]
"""Type, sizes, strides, bytes of the storage."""
Look = tuple[tuple[Face, ...], tuple[tuple[str, int, int], ...]] | str
"""Of one program: the faces of its tensors and its kernels with their nanoseconds and bytes, or why it was refused."""


def programs(
    shard: tuple[int, int], dtype: torch.dtype = torch.float32, *, chosen: str = "", samples: int = 1
) -> Iterator[Program]:
    """Forward and backward of the first samples of one operator in `shard[1]`."""
    from torch.testing._internal.common_methods_invocations import op_db  # seconds, which other files need not wait

    ways = frozenset({"forward", "backward", "in place"})
    operators = [op for op in op_db if dtype in op.supported_dtypes("cpu")]  # type: ignore[no-untyped-call]
    for op in operators[shard[0] :: shard[1]]:
        if re.search(chosen, op.full_name):
            yield from programs_of(op, dtype, samples, ways)


def look(sim: SimDevice, program: Program) -> Look:
    """Runs a program on the device as it is set up."""
    copies = Copies("sim")
    sim.reset()
    torch.manual_seed(0)
    try:
        leaves = tree_leaves(program.run(copies))
        faces = tuple(face(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device.type == "sim")
    except Exception as error:  # whatever PyTorch raises for this sample
        return f"{type(error).__name__}: {first_line(error)}"
    return faces, tuple((record.op, record.end_ns - record.start_ns, record.bytes) for record in sim.trace())


def looks(sim: SimDevice, programs: list[Program]) -> list[Look]:
    """Every program's; afterwards the device is empty."""
    sim.set_tracing(True)
    found = [look(sim, program) for program in programs]
    sim.set_tracing(False)
    gc.collect()
    return found


def face(tensor: torch.Tensor) -> Face:
    """What a tensor looks like."""
    nbytes = tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else -1
    stride = tensor.stride() if tensor.layout is torch.strided else ()
    return tensor.dtype, tuple(tensor.shape), tuple(stride), nbytes


def first_line(error: Any) -> str:
    """The sentence of a native error."""
    return str(error).split("\n", 1)[0]
