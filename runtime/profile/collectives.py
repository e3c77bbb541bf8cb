"""How fast processes exchange tensors: collectives over many sizes, and the one ring that explains them best."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from statistics import median
from typing import NamedTuple

import msgspec
import torch
import torch.distributed as dist

from runtime.profile.samples import sample
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Device, Hardware, Link

SIZES = tuple(1 << exponent for exponent in range(12, 29, 2))
"""Bytes that each process holds of the whole tensor, before or after."""
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""The collectives, and how often each goes around a ring of the processes."""
TRIALS, CALLS = 3, 5
MOST_S = 2.0
"""Sizes stop growing when one call takes this long."""
BUNDLE = "fabric"
"""What the links of a measured machine share: a ring over all devices was measured, no pair of them alone."""
RUN_AS = "torchrun --nproc-per-node 2 -m experiments.cli calibrate --collectives"


class Timing(NamedTuple):
    """One collective of one size."""

    name: str
    size_bytes: int
    seconds: float


class Ring(NamedTuple):
    """What a ring's hop costs: every timing is rounds · ((n − 1) · latency + (n − 1) / n · bytes / rate).

    `error` is the median of |fitted − measured| / measured.
    """

    bytes_per_s: int
    latency_us: float
    error: float

    def seconds(self, name: str, size_bytes: int, ranks: int) -> float:
        """What a collective of that size takes by these figures."""
        hops, moved = _moved(name, size_bytes, ranks)
        return hops * self.latency_us / 1e6 + moved / self.bytes_per_s


@contextmanager
def joined(device_type: str) -> Iterator[torch.device]:
    """This process's device, in a group with the others that `torchrun` started.

    Raises `InvalidInput` where torchrun did not start it, for a single process, several machines, or the simulated
    device.
    """
    if device_type == "sim":
        raise InvalidInput("device sim has no links between devices to measure: give --device cuda or cpu")
    ranks, here = (int(os.environ.get(name, "0")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if ranks < 2:
        raise InvalidInput(f"--collectives needs two processes or more, and there is one: start it with {RUN_AS}")
    if here not in (0, ranks):
        raise InvalidInput(f"--collectives measures one machine, these are {ranks} processes on several: start one")
    device = torch.device("cpu")
    if device_type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if device.index >= torch.cuda.device_count():
            raise InvalidInput(
                f"there are {ranks} processes and {torch.cuda.device_count()} CUDA devices: start as many as devices"
            )
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def measure_collectives(device: torch.device, sizes: Sequence[int] = SIZES) -> list[Timing]:
    """Each collective at each size, the slowest process's time; every process of the group calls this."""
    found = []
    for name in ROUNDS:
        for size in sizes:
            seconds = _slowest_s(device, _call(name, device, size))
            found.append(Timing(name, size, seconds))
            if seconds > MOST_S:
                break
    return found


def fit_ring(timings: Sequence[Timing], ranks: int) -> Ring:
    """The rate and latency whose relative errors have the least sum of squares; neither is negative."""
    rows = [_moved(one.name, one.size_bytes, ranks) for one in timings]
    table = torch.tensor(rows, dtype=torch.float64, device="cpu")
    times = torch.tensor([one.seconds for one in timings], dtype=torch.float64, device="cpu")
    table = table / times[:, None]
    ones = torch.ones(len(timings), 1, dtype=torch.float64, device="cpu")
    latency_s, inverse = torch.linalg.lstsq(table, ones).solution.flatten().tolist()
    if latency_s < 0:  # then the best without one
        latency_s, inverse = 0.0, torch.linalg.lstsq(table[:, 1:], ones).solution.item()
    if inverse <= 0:
        raise InvalidInput("larger collectives took no longer than small ones, so they tell no rate: measure again")
    ring = Ring(max(round(1 / inverse), 1), round(latency_s * 1e6, 3), 0.0)
    errors = [abs(ring.seconds(one.name, one.size_bytes, ranks) / one.seconds - 1) for one in timings]
    return ring._replace(error=median(errors))


def with_ring(hardware: Hardware, ranks: int, ring: Ring) -> Hardware:
    """As many devices like the one of `hardware`, its links with the host, and links of one bundle among them."""
    names = [f"n0.d{rank}" for rank in range(ranks)]
    one = hardware.device()
    devices: tuple[Device, ...] = tuple(msgspec.structs.replace(one, name=name) for name in names)
    links = [_renamed(link, one.name, name) for name in names for link in hardware.links]
    links += [
        Link(a=a, b=b, bytes_per_s=ring.bytes_per_s, latency_us=ring.latency_us, shares=BUNDLE)
        for a, b in combinations(names, 2)
    ]
    said = (
        f"{hardware.source}; {', '.join(ROUNDS)} among {ranks} processes of one machine, fitted by one ring within "
        f"{ring.error:.0%} (median)"
    )
    return Hardware(name=hardware.name, devices=devices, links=tuple(links), source=said)


def _renamed(link: Link, before: str, after: str) -> Link:
    a, b = (after if end == before else HOST for end in (link.a, link.b))
    return msgspec.structs.replace(link, a=a, b=b, shares=None if link.shares is None else f"{after} and {HOST}")


def _moved(name: str, size_bytes: int, ranks: int) -> tuple[float, float]:
    """Hops, and the bytes that each link carries."""
    rounds = ROUNDS[name]
    return float(rounds * (ranks - 1)), rounds * (ranks - 1) / ranks * size_bytes


def _call(name: str, device: torch.device, size_bytes: int) -> Callable[[], object]:
    ranks = dist.get_world_size()
    part = max(size_bytes // 4 // ranks, 1)
    whole, own = sample((part * ranks,), device), sample((part,), device)
    calls: Mapping[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX),  # sums of sums would overflow
        "all_gather": lambda: _function("all_gather_single", "all_gather_into_tensor")(whole, own),
        "reduce_scatter": lambda: _function("reduce_scatter_single", "reduce_scatter_tensor")(
            own, whole, op=dist.ReduceOp.MAX
        ),
    }
    return calls[name]


def _function(name: str, before: str) -> Callable[..., object]:
    """PyTorch's function of that name, which releases up to 2.12 know by another."""
    found: Callable[..., object] = getattr(dist, name, None) or getattr(dist, before)
    return found


def _slowest_s(device: torch.device, call: Callable[[], object]) -> float:
    """Seconds of one call, the median of some runs, of the process that takes longest."""
    call()
    taken = torch.tensor(median(_run_s(device, call) for _ in range(TRIALS)), dtype=torch.float64).to(device)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return max(float(taken.item()), 1e-9)


def _run_s(device: torch.device, call: Callable[[], object]) -> float:
    _finish(device)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    _finish(device)
    return (time.perf_counter() - began) / CALLS


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
