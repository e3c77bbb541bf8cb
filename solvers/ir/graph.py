"""One training step as operators and tensors: what a profile measures and problems are made from (formats.md 9)."""

from typing import ClassVar, Literal

import msgspec

from solvers.ir.fields import (
    Bytes,
    Count,
    Index,
    Microseconds,
    Record,
    TensorId,
    require,
    require_index,
    require_unique,
)
from solvers.ir.requests import StepRequests

Phase = Literal["forward", "backward", "optimizer"]
TensorKind = Literal["parameter", "gradient", "optimizer", "activation", "input", "other"]
OTHER_SEQUENCE = "the operator sequence differs from the step before"
"""What a profile's `source` says where the step before ran other operators: a plan of it need not hold."""
OTHER_SIZES = "tensors have other sizes than in the step before"
"""How a remark of a profile's `source` begins where the step before ran the same operators on other sizes."""
NOT_MEASURED = "kernels whose temporaries were not measured"
"""How a remark of a profile's `source` begins where memory is an estimate: shapes only, kernels that no table knows."""
OTHER_KERNELS = "temporaries are those of kernels"
"""How one begins where a table was measured under other conditions than those of the process."""


class Launch(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What launching an operator costs, and what it takes without.

    `device_us` is the device's own time, the host being far ahead; `host_us` the host's until the operator's last
    kernel is issued, what ran since the operator before included; both rounded cumulatively. The operator ends no
    earlier than `tail_us` after its last kernel is issued (None: `device_us`). Where `host_waits`, the host goes on
    only when it has ended.
    """

    device_us: Microseconds
    host_us: Microseconds
    tail_us: Microseconds | None = None
    host_waits: bool = False


class Op(Record, frozen=True, kw_only=True):
    """An operator that does work on the device.

    `inputs` and `outputs` are tensor ids in flattened argument order (a tensor may repeat: two views of one storage).
    `time_us` is the increment of the compute stream's clock, waiting for the host included; cumulative time is rounded,
    so rounding never adds up. `launch` tells the two apart, where it was measured. `replay` is false where the op must
    not run twice; absent, it may.
    """

    name: str
    phase: Phase
    time_us: Microseconds
    inputs: tuple[TensorId, ...] = ()
    outputs: tuple[TensorId, ...] = ()
    kind: Literal["compute", "comm"] = "compute"
    flops: Bytes | None = None
    bytes: Bytes | None = None
    launch: Launch | msgspec.UnsetType = msgspec.UNSET
    replay: bool | msgspec.UnsetType = msgspec.UNSET


class Tensor(Record, frozen=True, kw_only=True):
    """A storage, not a view.

    `born` is the op that produced it (None: alive before the step), `uses` the ops that read or write it, in order;
    `saved` whether autograd keeps it for the backward pass. `inner` says where to find a tensor that its op made and
    keeps without returning it (dropout its mask): its index among the distinct storages that operators inside `born`
    returned, in order; None where `born` returned it, or where nobody looked.
    """

    id: TensorId
    bytes: Bytes
    born: Index | None = None
    uses: tuple[Index, ...] = ()
    saved: bool = False
    kind: TensorKind = "other"
    inner: Index | None = None


class OpGraph(Record, frozen=True, kw_only=True):
    """The operators of one step in execution order, and their tensors (`bayplan-graph/1`).

    `memory_bytes[j]` is the peak on the device while op j runs, everything included. `layer_of_op[j]` is the layer that
    op j belongs to, where known. `resident_bytes` were in use when the step began, where known. `granule_bytes`: the
    device gives memory in multiples of it, so that a tensor's block is its size rounded up; None: not known, no
    rounding. `requests`: all that the step asked of an allocator that holds segments, where it was profiled on one.
    `replays_from`: the op before which nothing can run again; absent, there is no such op.
    `source` says what measured or computed the numbers.
    """

    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    memory_bytes: tuple[Bytes, ...]
    source: str = ""
    layer_of_op: tuple[Index | None, ...] | None = None
    resident_bytes: Bytes | None = None
    granule_bytes: Count | None = None
    requests: StepRequests | msgspec.UnsetType = msgspec.UNSET
    replays_from: Index | msgspec.UnsetType = msgspec.UNSET
    FORMAT: ClassVar[str] = "bayplan-graph/1"

    def __post_init__(self) -> None:
        """Refuse lists of unequal length, repeated ids and dangling references."""
        count = len(self.ops)
        require(
            count > 0,
            f"graph {self.name!r} has no ops: profile a step that does some work, in the thread that calls it",
        )
        require(
            len(self.memory_bytes) == count,
            f"memory_bytes has {len(self.memory_bytes)} entries for {count} ops: give one each",
        )
        if self.layer_of_op is not None:
            require(
                len(self.layer_of_op) == count,
                f"layer_of_op has {len(self.layer_of_op)} entries for {count} ops: give one each",
            )
        if self.replays_from is not msgspec.UNSET:
            require_index(self.replays_from, count, "replays_from", "ops")
        require_unique([tensor.id for tensor in self.tensors], "tensor")
        self._check_tensors(count)
        known = {tensor.id for tensor in self.tensors}
        for number, op in enumerate(self.ops):
            for name in (*op.inputs, *op.outputs):
                require(
                    name in known, f"ops[{number}] refers to tensor {name!r}, which is not listed under tensors: add it"
                )

    def _check_tensors(self, count: int) -> None:
        for number, tensor in enumerate(self.tensors):
            if tensor.born is not None:
                require_index(tensor.born, count, f"tensors[{number}].born", "ops")
            for use in tensor.uses:
                require_index(use, count, f"tensors[{number}].uses", "ops")
            require(list(tensor.uses) == sorted(tensor.uses), f"tensors[{number}].uses are not in order: sort them")

    def block_bytes(self, tensor: Tensor) -> int:
        """What the tensor takes on the device."""
        granule = self.granule_bytes or 1
        return -(-tensor.bytes // granule) * granule

    def tensor(self, name: TensorId) -> Tensor:
        """The tensor of that id."""
        return next(tensor for tensor in self.tensors if tensor.id == name)
