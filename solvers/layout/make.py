"""From a model's shape and a machine to a `layout` problem: every time and size of one rank's step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.layout import MOST, LayoutBlock, LayoutChunk, LayoutProblem
from solvers.layout.assumptions import (
    CONTEXT_BYTES,
    CPU_UPDATES_PER_S,
    LOGIT_BYTES,
    PARAMETER_BYTES,
    STATE_BYTES,
    TOKEN_BYTES,
    UPDATE_TRAFFIC_BYTES,
)
from solvers.layout.blocks import BlockCosts
from solvers.layout.chunks import Chunk, Packing, packed
from solvers.layout.moves import Moves
from solvers.layout.shapes import shape_blocks, shape_parameters
from solvers.workload.kernels import roofline_us
from solvers.workload.shape import ModelShape

NamedBlock = tuple[str, BlockCosts, bool]
"""A block's name and costs, and whether it has a choice."""


@dataclass(frozen=True)
class Updates:
    """What the optimizer does: bytes of a parameter, its states per byte of it, and how many a host updates."""

    parameter_bytes: int
    state_bytes: float
    cpu_per_s: int

    def cpu_us(self, chunk: Chunk, moves: Moves) -> int:
        """This rank's share of a chunk's parameters, with its share of the host's processors."""
        parameters = chunk.bytes // self.parameter_bytes
        return -(-parameters * moves.ranks_per_host * 1_000_000 // (moves.ranks * self.cpu_per_s))

    def device_us(self, chunk: Chunk, moves: Moves) -> int:
        """This rank's share of a chunk's parameters, bound by the device's memory."""
        device = moves.hardware.device(moves.device)
        parameters = -(-chunk.bytes // (self.parameter_bytes * moves.ranks))
        return math.ceil(roofline_us(device, "elementwise", 0, UPDATE_TRAFFIC_BYTES * parameters))


@dataclass(frozen=True)
class Rank:
    """One of `ranks` data-parallel ranks, evenly on `hosts` hosts.

    `device_bytes` and `host_bytes` (of a whole host, shared by its ranks) are the hardware's unless given,
    `chunk_bytes` is searched for (`best_packing`). `overlap_update` is false under gradient clipping,
    loss scaling or accumulation.
    """

    ranks: int = 1
    hosts: int = 1
    device_bytes: int | None = None
    host_bytes: int | None = None
    chunk_bytes: int | None = None
    overlap_update: bool = True
    cpu_updates_per_s: int = CPU_UPDATES_PER_S


ALONE = Rank()
"""The only rank, with all that its hardware has."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of one parameter, and of optimizer states per byte of parameters."""

    parameter_bytes: int = PARAMETER_BYTES
    state_bytes: float = STATE_BYTES / PARAMETER_BYTES


MIXED_PRECISION = Sizes()
"""Parameters of half precision with Adam's states."""


def problem_from_shape(
    shape: ModelShape,
    hardware: Hardware,
    rank: Rank,
    *,
    batch: int,
    sequence: int = 1024,
) -> LayoutProblem:
    """The layout problem of one rank.

    `batch` is the number of samples of a step, all ranks together, as in ProTrain's table 4. Raises `InvalidInput`
    where the numbers do not go together.
    """
    _require_few(shape)
    ranks, hosts = rank.ranks, rank.hosts
    moves = Moves.of(hardware, ranks, hosts)
    if batch < 1 or batch % ranks:
        raise InvalidInput(f"batch is {batch} for {ranks} ranks: give a multiple of the ranks, since all take alike")
    cut = msgspec.structs.replace(shape, sequence=sequence)
    samples = batch // ranks
    fixed = samples * sequence * (TOKEN_BYTES + LOGIT_BYTES * shape.vocab) + CONTEXT_BYTES
    name = f"{shape.name}, batch {batch} of {sequence} tokens, {ranks} × {hardware.name}"
    return assemble(
        f"{name} on {hosts} hosts" if hosts > 1 else name,
        shape_blocks(cut, samples, hardware),
        packed(shape_parameters(cut), rank.chunk_bytes),
        moves,
        rank,
        fixed,
    )


def _require_few(shape: ModelShape) -> None:
    """Refuse what would become too many blocks, or chunks of one expert each, before any is made."""
    counts = (
        ("layers", shape.layers, MOST["blocks"] - 2),
        ("experts in all layers", shape.layers * shape.experts, MOST["chunks"]),
    )
    for what, count, most in counts:
        if count > most:
            raise InvalidInput(
                f"shape {shape.name!r} has {count} {what}, but a layout is planned for at most {most}: correct it"
            )


def assemble(
    name: str,
    blocks: Sequence[NamedBlock],
    packing: Packing,
    moves: Moves,
    rank: Rank,
    fixed_bytes: int,
    sizes: Sizes = MIXED_PRECISION,
) -> LayoutProblem:
    """The problem of these blocks and chunks, with `fixed_bytes` on the device whatever is decided."""
    for what, value in (("cpu_updates_per_s", rank.cpu_updates_per_s), ("parameter_bytes", sizes.parameter_bytes)):
        if value < 1:
            raise InvalidInput(f"{what} is {value}: give at least 1")
    updates = Updates(sizes.parameter_bytes, sizes.state_bytes, rank.cpu_updates_per_s)
    host_bytes, device_bytes = rank.host_bytes, rank.device_bytes
    found = hardware_host_bytes(moves.hardware) if host_bytes is None else host_bytes
    device = moves.hardware.device(moves.device)
    return LayoutProblem(
        name=name,
        device_bytes=device.memory_bytes if device_bytes is None else device_bytes,
        host_bytes=found // moves.ranks_per_host,
        ranks=moves.ranks,
        fixed_bytes=fixed_bytes,
        chunk_bytes=packing.chunk_bytes,
        interval=swap_interval([costs for _, costs, choice in blocks if choice], moves),
        overlap_update=rank.overlap_update,
        chunks=_chunks(packing, moves, updates),
        blocks=tuple(_block(number, block, packing, moves) for number, block in enumerate(blocks)),
    )


def hardware_host_bytes(hardware: Hardware) -> int:
    """The memory of a host; raises `InvalidInput` where the file does not list the host among its devices."""
    for device in hardware.devices:
        if device.name == HOST:
            return device.memory_bytes
    raise InvalidInput(
        f"hardware {hardware.name!r} does not say how much memory a host has: list {HOST!r} under devices, or say it "
        "(host_bytes; on the command line --host-bytes)"
    )


def swap_interval(blocks: Sequence[BlockCosts], moves: Moves) -> int:
    """How many blocks run while the typical one is swapped out: max(1, ceil((A / d2h) / F)), of the medians.

    1 where there is no block to swap. (ProTrain §3.3.)
    """
    if not blocks:
        return 1
    out_us = moves.out_us(round(median(block.activation_bytes for block in blocks)))
    return max(1, math.ceil(out_us / max(1, median(block.forward_us for block in blocks))))


def _block(number: int, block: NamedBlock, packing: Packing, moves: Moves) -> LayoutBlock:
    name, costs, choice = block
    return LayoutBlock(
        name=name,
        forward_us=costs.forward_us,
        backward_us=costs.backward_us,
        activation_bytes=costs.activation_bytes,
        input_bytes=costs.input_bytes,
        forward_transient_bytes=costs.forward_transient_bytes,
        backward_transient_bytes=costs.backward_transient_bytes,
        chunks=tuple(index for index, chunk in enumerate(packing.chunks) if number in chunk.blocks),
        swap_out_us=moves.out_us(costs.activation_bytes),
        swap_in_us=moves.in_us(costs.activation_bytes),
        choice=choice,
    )


def _chunks(packing: Packing, moves: Moves, updates: Updates) -> tuple[LayoutChunk, ...]:
    """Whole chunks travel, a rank's share of one over the host link; states are those of the parameters in it.

    A persistent chunk's gradients are summed and its updated parameters gathered, as long as an all-reduce. A frozen
    chunk has neither gradients nor states: away from the device the host holds its parameters.
    """
    share = -(-packing.chunk_bytes // moves.ranks)
    load_us, offload_us = moves.in_us(share), moves.out_us(share)
    gather_us, reduce_us = moves.gather_us(packing.chunk_bytes), moves.reduce_us(packing.chunk_bytes)
    found = []
    for chunk in packing.chunks:
        trained = chunk.trainable
        states = math.ceil(chunk.bytes * updates.state_bytes / moves.ranks) if trained else 0
        found.append(
            LayoutChunk(
                trainable=trained,
                load_us=load_us,
                gather_us=gather_us,
                reduce_us=reduce_us if trained else 0,
                offload_us=offload_us if trained else 0,
                cpu_update_us=updates.cpu_us(chunk, moves) if trained else 0,
                allreduce_us=reduce_us + gather_us if trained else 0,
                device_update_us=updates.device_us(chunk, moves) if trained else 0,
                persistent_bytes=states,
                host_bytes=states if trained else -(-chunk.bytes // moves.ranks),
            )
        )
    return tuple(found)
