"""What one complete trace of a training step says: blocks, parameters, and the memory of every moment."""

from dataclasses import dataclass

from runtime.profile.memory.charges import Segment as Charged
from runtime.profile.memory.segments import Segment
from solvers.timeline.cost import Cost


@dataclass(frozen=True)
class ProfiledBlock:
    """One call of a block: its times (µs), and what it holds (bytes; storages by number, each once).

    `inputs` are the storages that a checkpoint of it keeps, `saved` those that backward needs if it keeps all: inputs
    and outputs under their own numbers, what is born inside under one. Transient bytes come on top of what is held: in
    forward of the inputs of a checkpointed block or of all that a kept one saves, whichever needs more; in backward of
    all that it saves. A `frozen` block saves nothing, whatever its policy, since nothing at it or before it is trained:
    it has no backward, and its inputs count as transient. `own_bytes` are its storages that nobody else holds, one by
    one: what swapping it moves.

    `forward`, `recompute` (up to the last save) and `backward` are what each pass costs of host and device, what runs
    between two blocks in the pass before; backward in pieces, each with the parameter whose gradient it completes.
    None where the device does not tell.
    """

    name: str
    forward_us: int
    backward_us: int
    activation_bytes: int
    input_bytes: int
    forward_transient_bytes: int
    backward_transient_bytes: int
    inputs: tuple[int, ...] = ()
    saved: tuple[int, ...] = ()
    frozen: bool = False
    own_bytes: tuple[int, ...] = ()
    forward: Cost | None = None
    recompute: Cost | None = None
    backward: tuple[Charged, ...] | None = None


@dataclass(frozen=True)
class ProfiledParameter:
    """A parameter under its first name, its bytes, and the blocks that use it; several: it is tied.

    `blocks` counts as a layout problem does: 0 is what runs before the first block, block k is k + 1, and the last one
    is what runs behind the last block.
    """

    name: str
    bytes: int
    blocks: tuple[int, ...]
    trainable: bool


@dataclass(frozen=True)
class OpenCache:
    """Copies of weights that autocast still holds in backward, as its context has not ended: storages by number.

    Whatever recomputes first makes it drop them; else they go with the context, before segment `end`.
    """

    storages: frozenset[int]
    end: int


@dataclass(frozen=True)
class MemoryProfile:
    """A step profiled with every block checkpointed.

    `parameters` come in the order of their first use, `unused` are those that forward uses nowhere; `parameter_bytes`
    is what all of them take on the device. `storages` are the bytes of what blocks hold, by number; `lives` says which
    of them the program holds itself, and in which segments: number, first segment, first segment without it.
    `first` is what runs before the blocks, `last` what runs behind them, loss included. `fixed_bytes` is the rest:
    inputs, buffers, whatever else was on the device before forward, but no parameters, gradients and optimizer states;
    segments count all of these as a plain step holds them. Forward begins with segment `forward_start`.
    """

    name: str
    blocks: tuple[ProfiledBlock, ...]
    parameters: tuple[ProfiledParameter, ...]
    unused: tuple[ProfiledParameter, ...]
    storages: tuple[int, ...]
    lives: tuple[tuple[int, int, int], ...]
    cache: OpenCache
    segments: tuple[Segment, ...]
    first: ProfiledBlock
    last: ProfiledBlock
    forward_start: int
    parameter_bytes: int
    fixed_bytes: int
    doubts: tuple[str, ...] = ()

    @property
    def state_bytes(self) -> int:
        """Parameters, optimizer states and gradients from before, as they lie on the device when forward begins."""
        return self.segments[self.forward_start].start_bytes - self.fixed_bytes

    @property
    def peak_bytes(self) -> int:
        """The peak of the profiled step itself, its states where a plain step has them."""
        return max(segment.peak_bytes for segment in self.segments)

    def remarks(self) -> tuple[str, ...]:
        """Sentences on what is odd about the model: parameters used nowhere, why other steps may differ."""
        names = [parameter.name for parameter in self.unused]
        if not names:
            return self.doubts
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        some = "a parameter is" if len(names) == 1 else f"{len(names)} parameters are"
        return (f"{some} used nowhere ({shown}): in no chunk, always on the device", *self.doubts)
