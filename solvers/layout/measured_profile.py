"""From figures measured block by block to the `layout` problem of one device that carries the plan out itself."""

import math
from dataclasses import dataclass

import msgspec

from solvers.ir.hardware import Hardware
from solvers.ir.layout import LayoutBlock, LayoutChunk, LayoutProblem
from solvers.layout.assumptions import CPU_UPDATES_PER_S
from solvers.layout.blocks import BlockCosts
from solvers.layout.chunks import Chunk, Packing
from solvers.layout.make import NamedBlock, Rank, Sizes, assemble
from solvers.layout.moves import Moves

BlockFigures = tuple[str, bool, tuple[int, int, int, int, int, int]]
"""A block's name, whether it has a choice, and its figures in the order of `BlockCosts`."""


@dataclass(frozen=True, kw_only=True)
class MeasuredLayout:
    """A step as measured, and what it may take.

    `moved_bytes` are the storages that swapping each block moves, one by one. `parameter_bytes` is the size of a number
    on its way, `state_bytes` the optimizer's states per byte of it. `stays_bytes` lie beside a byte of a
    persistent chunk, `away_bytes` on the host for one of any other, besides the optimizer's states: gradients, masters,
    copies. `frozen_bytes` is what a byte of a frozen chunk has beside it, on either: masters that are wider than what
    travels. `counter_bytes` are what the optimizer keeps on the device of each parameter beside its states.
    """

    name: str
    blocks: tuple[BlockFigures, ...]
    moved_bytes: tuple[tuple[int, ...], ...]
    packing: Packing
    device_bytes: int
    host_bytes: int
    fixed_bytes: int
    parameter_bytes: int
    state_bytes: float
    stays_bytes: float
    away_bytes: float
    frozen_bytes: float
    counter_bytes: int
    overlap_update: bool
    cpu_updates_per_s: int = CPU_UPDATES_PER_S


def problem_of(measured: MeasuredLayout, hardware: Hardware) -> LayoutProblem:
    """The problem of one rank: of a chunk only what is used travels, and the host holds masters and gradients, too."""
    moves = Moves.of(hardware, 1)
    rank = Rank(
        device_bytes=measured.device_bytes,
        host_bytes=measured.host_bytes,
        chunk_bytes=measured.packing.chunk_bytes,
        overlap_update=measured.overlap_update,
        cpu_updates_per_s=measured.cpu_updates_per_s,
    )
    problem = assemble(
        measured.name,
        [_named(figures) for figures in measured.blocks],
        measured.packing,
        moves,
        rank,
        measured.fixed_bytes,
        Sizes(measured.parameter_bytes, measured.state_bytes),
    )
    pairs = zip(problem.chunks, measured.packing.chunks, strict=True)
    return msgspec.structs.replace(
        problem,
        chunks=tuple(_chunk(one, of, moves, measured) for one, of in pairs),
        blocks=tuple(_one_by_one(*one, moves) for one in zip(problem.blocks, measured.moved_bytes, strict=True)),
    )


def _one_by_one(block: LayoutBlock, moved: tuple[int, ...], moves: Moves) -> LayoutBlock:
    """A copy for each storage, each with its latency."""
    if not moved:
        return block
    out_us, in_us = moves.out_of_us(moved), moves.in_of_us(moved)
    return msgspec.structs.replace(block, swap_out_us=out_us, swap_in_us=in_us)


def _named(figures: BlockFigures) -> NamedBlock:
    name, choice, costs = figures
    return name, BlockCosts(*costs), choice


def _chunk(one: LayoutChunk, packed: Chunk, moves: Moves, measured: MeasuredLayout) -> LayoutChunk:
    states, frozen = measured.state_bytes, measured.frozen_bytes
    counters = measured.counter_bytes * len(packed.parameters) if one.trainable else 0
    stays = states + measured.stays_bytes if one.trainable else frozen
    away = states + measured.away_bytes if one.trainable else 1 + frozen
    return msgspec.structs.replace(
        one,
        load_us=moves.in_us(packed.bytes),
        offload_us=moves.out_us(packed.bytes) if one.trainable else 0,
        persistent_bytes=math.ceil(packed.bytes * stays) + counters,
        host_bytes=math.ceil(packed.bytes * away),
    )
