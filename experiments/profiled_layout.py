"""From a memory profile to a `layout` problem: measured blocks, chunks packed from the profiled parameters."""

from runtime.profile.memory import MemoryProfile, ProfiledBlock
from solvers.ir.hardware import Hardware
from solvers.ir.layout import LayoutProblem
from solvers.layout.assumptions import CONTEXT_BYTES
from solvers.layout.blocks import BlockCosts
from solvers.layout.chunks import Parameter, packed
from solvers.layout.make import ALONE, MIXED_PRECISION, NamedBlock, Rank, Sizes, assemble
from solvers.layout.moves import Moves


def layout_problem(
    profile: MemoryProfile,
    hardware: Hardware,
    rank: Rank = ALONE,
    *,
    context_bytes: int = CONTEXT_BYTES,
    sizes: Sizes = MIXED_PRECISION,
) -> LayoutProblem:
    """The layout problem of one rank that runs the profiled step, of several alike.

    Block 0 is what runs before the blocks, the last one what runs behind them; neither has a choice, nor has a frozen
    block, which keeps nothing. `sizes` are those of the profile's parameters and their optimizer states. A
    parameter used nowhere is in no chunk: its bytes are fixed (`profile.remarks()` says so).
    """
    parameters = [Parameter(one.name, one.bytes, one.blocks, one.trainable) for one in profile.parameters]
    inside = [(block.name, _costs(block), not block.frozen) for block in profile.blocks]
    return assemble(
        f"{profile.name}, {rank.ranks} × {hardware.name}",
        [_edge(profile.first), *inside, _edge(profile.last)],
        packed(parameters, rank.chunk_bytes),
        Moves.of(hardware, rank.ranks, rank.hosts),
        rank,
        profile.fixed_bytes + sum(one.bytes for one in profile.unused) + context_bytes,
        sizes,
    )


def _edge(block: ProfiledBlock) -> NamedBlock:
    return block.name, _costs(block), False


def _costs(block: ProfiledBlock) -> BlockCosts:
    return BlockCosts(
        forward_us=block.forward_us,
        backward_us=block.backward_us,
        activation_bytes=block.activation_bytes,
        input_bytes=block.input_bytes,
        forward_transient_bytes=block.forward_transient_bytes,
        backward_transient_bytes=block.backward_transient_bytes,
    )
