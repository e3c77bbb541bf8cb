"""Ranks on real devices: the world is torch.distributed's own, by NCCL on CUDA or gloo on CPUs, nothing modelled."""

import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist

from runtime.device.memory import memory_stats
from runtime.ranks.torchrun import Started, meet
from solvers.ir.errors import InvalidInput
from solvers.ir.report import Report

RealDevice = Literal["cuda", "cpu"]
BACKENDS: dict[str, str] = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True)
class RealRank:
    """This process's rank: its device, and when it began."""

    device: torch.device
    who: Started
    began_s: float = field(default_factory=time.monotonic)

    def report(self) -> Report:
        """The rank's time by this machine's clock since it joined, and its peak of memory (a CPU's: 0); no lanes."""
        on_cuda = self.device.type == "cuda"
        if on_cuda:
            torch.cuda.synchronize(self.device)
        return Report(
            name=f"rank {self.who.rank}",
            how="executed",
            source=f"device {self.device}, {torch.cuda.get_device_name(self.device) if on_cuda else 'a CPU'}",
            makespan_us=(time.monotonic() - self.began_s) * 1e6,
            peak_bytes=memory_stats(self.device).peak_bytes if on_cuda else 0,
        )


def join_real(kind: str, who: Started, timeout: timedelta) -> tuple[RealRank, dist.ProcessGroup]:
    """Makes this process a rank of a real device. Raises `InvalidInput` where there is none for it."""
    device = torch.device("cpu") if kind == "cpu" else _own_cuda(who)
    group = meet(BACKENDS[kind], who, timeout, device if kind == "cuda" else None)
    return RealRank(device, who), group


def _own_cuda(who: Started) -> torch.device:
    """The device of the process's number on its machine, which becomes the current one."""
    if not torch.cuda.is_available():
        raise InvalidInput(
            f"device is 'cuda', but torch {torch.__version__} finds no CUDA device here: start where there is one, or "
            "choose device='sim'"
        )
    if not dist.is_nccl_available():
        raise InvalidInput(
            f"torch {torch.__version__} was built without NCCL: install one with it, or choose device='sim'"
        )
    there = torch.cuda.device_count()
    if who.local >= there:
        raise InvalidInput(
            f"LOCAL_RANK is {who.local}, but there are {there} CUDA devices here: start at most {there} processes "
            "(--nproc-per-node)"
        )
    torch.cuda.set_device(who.local)
    return torch.device("cuda", who.local)
