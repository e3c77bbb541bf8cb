"""What these tests share: ordinary programs on the devices of a small cluster."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from runtime.ranks import RankRun, run_ranks

T = TypeVar("T")
CLUSTER = "conf/hardware/sim-cluster.json"
Program = Callable[[int, torch.device], T]


def run(program: Program[T], ranks: int, **options: Any) -> RankRun[T]:
    """Runs `program(rank, device)` within a world of that many ranks on device sim."""

    def whole(rank: int) -> T:
        dist.init_process_group("sim")
        value = program(rank, torch.device("sim", rank))
        dist.destroy_process_group()
        return value

    return run_ranks(whole, ranks, **{"hardware": CLUSTER} | options)


def ended(threads: Callable[[], Sequence[object]]) -> bool:
    """Whether there are no such threads, now or soon: the system lists one a moment longer than it can be joined."""
    until_s = time.monotonic() + 60
    while threads() and time.monotonic() < until_s:
        time.sleep(0.01)
    return not threads()
