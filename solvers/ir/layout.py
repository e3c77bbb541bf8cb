"""The `layout` kind: which chunks stay on the device, how many buffers, what each block does (formats.md 8)."""

from itertools import pairwise
from typing import ClassVar, Literal

from solvers.ir.fields import LARGEST, Bytes, Count, Index, Microseconds, Record, require, require_index
from solvers.ir.problem import Plan, Problem

Policy = Literal["keep", "swap", "checkpoint"]
POLICIES: tuple[Policy, ...] = ("keep", "swap", "checkpoint")
"""What may become of a block's activations between its forward and its backward."""
MOST = {"blocks": 10_000, "chunks": 100_000}
"""Larger counts are refused as typing errors: no solver is made for them."""
OF_GRADIENTS = ("reduce_us", "offload_us", "cpu_update_us", "allreduce_us", "device_update_us")
"""What only a trainable chunk has."""
OF_RANKS = ("gather_us", "reduce_us", "allreduce_us")
"""What only several ranks have."""


class LayoutChunk(Record, frozen=True, kw_only=True):
    """Parameters that travel together, per rank: what each move and update takes, and where their states lie.

    Not persistent: `load_us` brings this rank's share from the host, `gather_us` the others' shares; after backward
    `reduce_us`, `offload_us` and `cpu_update_us` follow; `host_bytes` lie in host memory. Persistent: `allreduce_us`
    and `device_update_us` follow; `persistent_bytes` lie on the device besides the chunk itself.
    """

    trainable: bool
    load_us: Microseconds
    gather_us: Microseconds
    reduce_us: Microseconds
    offload_us: Microseconds
    cpu_update_us: Microseconds
    allreduce_us: Microseconds
    device_update_us: Microseconds
    persistent_bytes: Bytes
    host_bytes: Bytes


class LayoutBlock(Record, frozen=True, kw_only=True):
    """A block: its times, what it saves for backward, what it holds besides while it runs, the chunks that it uses.

    `activation_bytes` is all that it saves, `input_bytes` what a checkpoint keeps of it; the transient bytes come on
    top while it runs. `choice` is false where nothing but `keep` is possible.
    """

    name: str
    forward_us: Microseconds
    backward_us: Microseconds
    activation_bytes: Bytes
    input_bytes: Bytes
    forward_transient_bytes: Bytes
    backward_transient_bytes: Bytes
    chunks: tuple[Index, ...]
    swap_out_us: Microseconds
    swap_in_us: Microseconds
    choice: bool = True


class LayoutProblem(Problem, frozen=True, kw_only=True):
    """One training step of one rank: chunks and blocks in execution order (formats.md 8).

    `chunk_bytes` is what a buffer and a persistent chunk take; a swapped block's activations may lie on the device
    until `interval` more blocks have run. `overlap_update` is false where no update may start before all gradients
    are there (clipping, loss scaling, accumulation).
    """

    device_bytes: Bytes
    host_bytes: Bytes
    ranks: Count
    fixed_bytes: Bytes
    chunk_bytes: Count
    interval: Count
    overlap_update: bool
    chunks: tuple[LayoutChunk, ...]
    blocks: tuple[LayoutBlock, ...]
    KIND: ClassVar[str] = "layout"

    def __post_init__(self) -> None:
        """Refuse empty and absurd sizes, chunks that are missing, unused or contradictory, and sums beyond 2^53."""
        for name, most in MOST.items():
            count = len(getattr(self, name))
            require(count > 0, f"{name} is empty: a layout problem needs at least one of them")
            require(count <= most, f"there are {count} {name}, but at most {most} can be planned: correct them")
        for number, chunk in enumerate(self.chunks):
            self._check_chunk(number, chunk)
        for number, block in enumerate(self.blocks):
            self._check_block(number, block)
        used = {index for block in self.blocks for index in block.chunks}
        unused = next((index for index in range(len(self.chunks)) if index not in used), None)
        require(
            unused is None,
            f"chunks[{unused}] is used by no block: leave it out, and add to fixed_bytes what of it lies on the device",
        )
        self._check_sums()

    def _check_chunk(self, number: int, chunk: LayoutChunk) -> None:
        """No gradients of a frozen chunk, and nothing to exchange where there is one rank."""
        for name in OF_GRADIENTS if not chunk.trainable else ():
            time = getattr(chunk, name)
            require(time == 0, f"chunks[{number}] is frozen, but its {name} is {time}: it has no gradients, give 0")
        for name in OF_RANKS if self.ranks == 1 else ():
            time = getattr(chunk, name)
            require(time == 0, f"chunks[{number}].{name} is {time}, but there is only 1 rank: give 0, or more ranks")

    def _check_block(self, number: int, block: LayoutBlock) -> None:
        """Chunks that are there, each once, in ascending order."""
        for place, index in enumerate(block.chunks):
            require_index(index, len(self.chunks), f"blocks[{number}].chunks[{place}]", "chunks")
        for before, after in pairwise(block.chunks):
            require(
                before < after,
                f"blocks[{number}].chunks has {after} after {before}: list each once, in ascending order",
            )

    def _check_sums(self) -> None:
        """Steps and memory of any decision that every JSON reader holds exactly."""
        asked = [0] * len(self.chunks)
        for block in self.blocks:
            for index in block.chunks:
                asked[index] += 2
        step = sum(2 * b.forward_us + b.backward_us + b.swap_out_us + b.swap_in_us for b in self.blocks)
        for times, chunk in zip(asked, self.chunks, strict=True):
            step += times * (chunk.load_us + chunk.gather_us) + sum(getattr(chunk, name) for name in OF_GRADIENTS)
        require(step <= LARGEST, f"a step may take {step} us, beyond the {LARGEST} that files hold: correct the times")
        saved = sum(max(block.activation_bytes, block.input_bytes) for block in self.blocks)
        device = self.fixed_bytes + saved + sum(self.chunk_bytes + chunk.persistent_bytes for chunk in self.chunks)
        device += max(max(b.forward_transient_bytes, b.backward_transient_bytes) for b in self.blocks)
        host = sum(chunk.host_bytes for chunk in self.chunks) + sum(b.activation_bytes for b in self.blocks)
        for place, held in (("the device", device), ("the host", host)):
            require(
                held <= LARGEST,
                f"{place} may hold {held} bytes, beyond the {LARGEST} that files hold: correct the sizes",
            )


class LayoutPlan(Plan, frozen=True, kw_only=True):
    """The decision: persistent chunks (ascending), buffers for all others, and a policy for each block."""

    persistent: tuple[Index, ...]
    buffers: Index
    policies: tuple[Policy, ...]
