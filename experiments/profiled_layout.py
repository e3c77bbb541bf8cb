"""From a memory profile to a `layout` problem: measured blocks, chunks packed from the profiled parameters."""

from runtime.profile.memory import MemoryProfile, ProfiledBlock
from solvers.ir.hardware import Hardware
from solvers.ir.layout import LayoutProblem
from solvers.layout.assumptions import CONTEXT_BYTES, CPU_UPDATES_PER_S, PARAMETER_BYTES, STATE_BYTES
from solvers.layout.blocks import BlockCosts
from solvers.layout.chunks import Parameter, packed
from solvers.layout.make import NamedBlock, assemble
from solvers.layout.moves import Moves


def layout_problem(
    profile: MemoryProfile,
    hardware: Hardware,
    *,
    ranks: int = 1,
    hosts: int = 1,
    device_bytes: int | None = None,
    host_bytes: int | None = None,
    chunk_bytes: int | None = None,
    overlap_update: bool = True,
    context_bytes: int = CONTEXT_BYTES,
    parameter_bytes: int = PARAMETER_BYTES,
    state_bytes: int = STATE_BYTES,
    cpu_updates_per_s: int = CPU_UPDATES_PER_S,
) -> LayoutProblem:
    """The layout problem of one rank that runs the profiled step, of `ranks` alike.

    Block 0 is what runs before the blocks, the last one what runs behind them; neither has a choice, nor has a frozen
    block, which keeps nothing. `parameter_bytes` and `state_bytes` are those of one parameter and of its optimizer
    states (the profile's parameters have that size). A parameter used nowhere is in no chunk: its bytes are fixed
    (`profile.remarks()` says so).
    """
    parameters = [Parameter(one.name, one.bytes, one.blocks, one.trainable) for one in profile.parameters]
    inside = [(block.name, _costs(block), not block.frozen) for block in profile.blocks]
    return assemble(
        f"{profile.name}, {ranks} × {hardware.name}",
        [_edge(profile.first), *inside, _edge(profile.last)],
        packed(parameters, chunk_bytes),
        Moves.of(hardware, ranks, hosts),
        fixed_bytes=profile.fixed_bytes + sum(one.bytes for one in profile.unused) + context_bytes,
        device_bytes=device_bytes,
        host_bytes=host_bytes,
        overlap_update=overlap_update,
        cpu_updates_per_s=cpu_updates_per_s,
        parameter_bytes=parameter_bytes,
        state_bytes=state_bytes / parameter_bytes,
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
