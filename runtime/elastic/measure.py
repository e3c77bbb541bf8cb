"""What a job costs, measured on one microbatch here: times and bytes of its layers as a replan problem (paper, IV)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from runtime.elastic.job import ElasticJob
from runtime.elastic.layer import Layer, loss_of
from solvers.ir.errors import InvalidInput
from solvers.ir.replan import ReplanProblem

REPEATS = 3
"""Passes whose fastest one counts; the first also makes what libraries make once."""


class Costs(NamedTuple):
    """One layer: a microbatch's passes in µs, bytes of states (gradients too) and of what its backward pass keeps."""

    forward_us: float
    backward_us: float
    static_bytes: int
    activation_bytes: int


@dataclass(frozen=True)
class Measured:
    """Each layer's costs, type and shape of what enters it, and buffers that forward passes write, by plain names."""

    costs: tuple[Costs, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    written: tuple[str, ...] = ()

    def warning(self) -> str | None:
        """A sentence, where even in fixed point the bits depend on which process runs which microbatch; else None."""
        if not self.written:
            return None
        more = f" and {len(self.written) - 1} more" if len(self.written) > 1 else ""
        return (
            f"forward passes write buffers ({self.written[0]}{more}): each process writes those of the microbatches "
            "that it runs, so that buffers, and losses that they enter, are not one process's, nor the same after "
            "failures: take layers without, such as LayerNorm or GroupNorm"
        )


@dataclass(frozen=True, kw_only=True)
class Link:
    """What is assumed of the cluster: rate between two nodes, a restart without transfers, time between failures."""

    bytes_per_s: int = 500_000_000
    restart_us: int = 300_000
    expected_interval_us: int = 600_000_000


def measure(job: ElasticJob) -> Measured:
    """Runs one microbatch through each layer, and one step of its optimizer; torch's random numbers stay the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as workers have
    try:
        with torch.random.fork_rng(devices=[]):
            return _measured(job)
    finally:
        torch.set_num_threads(threads)


def _measured(job: ElasticJob) -> Measured:
    hidden, targets = job.batches(0, 0)
    shapes, times, sizes, layers = [], [], [], []
    written: list[str] = []
    owners: dict[int, int] = {}
    for number in range(len(job.layers)):
        layer = Layer(job, number, canonical=False)
        shapes.append((str(hidden.dtype).removeprefix("torch."), tuple(hidden.shape)))
        before = {name: one.clone() for name, one in layer.module.named_buffers()}
        forward = [_timed(layer, 0, hidden) for _ in range(REPEATS)]
        after = dict(layer.module.named_buffers())
        written += [f"{number}.{name}" for name in before | after if not _same(before.get(name), after.get(name))]
        kept = _kept_bytes(layer, hidden)
        hidden = layer.forward(0, 0, hidden)
        times.append(min(forward))
        sizes.append(kept)
        layers.append(layer)
        _require_own(owners, layer)
    _, gradient = loss_of(job, hidden, targets)
    back: Tensor | None = gradient
    costs = []
    for layer, (kind, shape) in zip(reversed(layers), reversed(shapes), strict=True):
        if back is None:
            raise InvalidInput(
                f"layer {layer.number + 1} takes {kind} numbers of shape {shape}, which have no gradient: layers but "
                "the first one must take floating-point numbers"
            )
        began = time.perf_counter()
        back = layer.backward(0, back)
        took_us = (time.perf_counter() - began) * 1e6
        layer.update()
        costs.append(Costs(times[layer.number], took_us, layer.static_bytes(), sizes[layer.number]))
    return Measured(tuple(reversed(costs)), tuple(shapes), tuple(written))


def _require_own(owners: dict[int, int], layer: Layer) -> None:
    """Raise `InvalidInput` where a parameter is another layer's already, which may come to another process."""
    for name, one in layer.module.named_parameters():
        place = one.untyped_storage().data_ptr()
        owner = owners.setdefault(place, layer.number) if place else layer.number
        if owner != layer.number:
            raise InvalidInput(
                f"layers {owner} and {layer.number} share {name}, but each may come to another process, so that the "
                "two would part: let each layer make its own"
            )


def _same(before: Tensor | None, after: Tensor | None) -> bool:
    if before is None or after is None or (before.shape, before.dtype) != (after.shape, after.dtype):
        return False
    return torch.allclose(before, after, rtol=0, atol=0, equal_nan=True)


def _timed(layer: Layer, microbatch: int, hidden: Tensor) -> float:
    began = time.perf_counter()
    layer.forward(0, microbatch, hidden)
    took_us = (time.perf_counter() - began) * 1e6
    layer.forget()
    return took_us


def _kept_bytes(layer: Layer, hidden: Tensor) -> int:
    """Bytes of the storages that autograd keeps, parameters left out."""
    own = {one.untyped_storage().data_ptr() for one in layer.module.parameters()}
    kept: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        layer.forward(0, 0, hidden)
    layer.forget()
    return sum(kept.values())


def problem_of(name: str, job: ElasticJob, measured: Measured, nodes: int, link: Link) -> ReplanProblem:
    """The job on so many nodes, memory unlimited, before any failure.

    A layer's times and bytes are the means of those in between; what the first and the last one need beyond that are
    their extras. Rings over two nodes stand for all-reduces.
    """
    costs = measured.costs
    inner = costs[1:-1] or costs
    forward, backward = (round(fmean(one[which] for one in inner)) for which in (0, 1))
    static, activation = (round(fmean(one[which] for one in inner)) for which in (2, 3))
    first, last = costs[0], costs[-1]
    message = max((_bytes(shape) for shape in measured.shapes[1:]), default=0)
    return ReplanProblem(
        name=name,
        nodes=nodes,
        microbatches=job.microbatches,
        layers=len(costs),
        forward_us=max(1, forward),
        backward_us=max(1, backward),
        first_extra_us=(_beyond(first.forward_us, forward), _beyond(first.backward_us, backward)),
        last_extra_us=(_beyond(last.forward_us, forward), _beyond(last.backward_us, backward)),
        p2p_us=-(-message * 10**6 // link.bytes_per_s),
        sync_us=0,
        memory_bytes=2**50,
        layer_static_bytes=static,
        layer_activation_bytes=activation,
        first_static_bytes=_beyond(first.static_bytes, static),
        last_static_bytes=_beyond(last.static_bytes, static),
        max_depth=min(len(costs), nodes),
        layer_sync_us=-(-static * 10**6 // (4 * link.bytes_per_s)),
    )


def _beyond(value: float, mean: float) -> int:
    return max(0, round(value - mean))


def _bytes(shape: tuple[str, Sequence[int]]) -> int:
    kind, sizes = shape
    return torch.empty(sizes, dtype=getattr(torch, kind), device="meta").nbytes
