"""The peak that a swap schedule promises: what is in use at each op less what is gone then, whatever takes how long."""

from collections.abc import Mapping, Sequence

from solvers.ir.fields import TensorId
from solvers.ir.schedule import Schedule


def promised_peak_bytes(memory_bytes: Sequence[int], sizes: Mapping[TensorId, int], schedule: Schedule) -> int:
    """The most bytes in use at any op of a swap schedule; `memory_bytes[j]` is in use during op j without swapping.

    A tensor of `sizes[id]` bytes is gone from the op before which it is released to the one before which its swap-in
    stands. No duration matters: releases wait for their copies, and swap-ins are issued at fixed ops.
    """
    change = [0] * (len(memory_bytes) + 1)
    for action in schedule.actions:
        if action.do in ("release", "swap_in") and action.op is not None:
            sign = 1 if action.do == "release" else -1
            change[action.op] += sign * sum(sizes[name] for name in action.data)
    absent = most = 0
    for in_use, gone in zip(memory_bytes, change, strict=False):
        absent += gone
        most = max(most, in_use - absent)
    return most
