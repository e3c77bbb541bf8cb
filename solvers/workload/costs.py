"""One layer as its forward and backward operators: what every recomputation problem of this repository is made from."""

from solvers.ir.fields import Bytes, Index, Microseconds, Record, require, require_index


class ForwardOp(Record, frozen=True, kw_only=True):
    """A forward operator; `inputs` are earlier forward ops, `reads_input` says that it reads the layer's input.

    `comm` marks a collective. `flops` and `bytes` (traffic) are what its time was computed from, where known.
    """

    name: str
    time_us: Microseconds
    output_bytes: Bytes
    inputs: tuple[Index, ...] = ()
    reads_input: bool = False
    comm: bool = False
    op_class: str = "other"
    flops: Bytes | None = None
    bytes: Bytes | None = None


class BackwardOp(Record, frozen=True, kw_only=True):
    """A backward operator.

    `forward_inputs` are the forward ops whose output it reads, `backward_inputs` earlier backward ops;
    `reads_gradient`: the gradient of the layer's output, from the layer above; `reads_input`: the layer's input.
    `output_bytes` is 0 where it only makes gradients of weights, which static memory holds.
    """

    name: str
    time_us: Microseconds
    output_bytes: Bytes
    forward_inputs: tuple[Index, ...] = ()
    backward_inputs: tuple[Index, ...] = ()
    reads_input: bool = False
    reads_gradient: bool = False
    comm: bool = False
    op_class: str = "other"
    flops: Bytes | None = None
    bytes: Bytes | None = None


class LayerCosts(Record, frozen=True, kw_only=True):
    """A layer: the last forward op's output is the next layer's input, the last backward op's the gradient below.

    `input_bytes` is what the layer's input takes, counted apart from the outputs of its ops.
    """

    name: str
    input_bytes: Bytes
    forward: tuple[ForwardOp, ...]
    backward: tuple[BackwardOp, ...]

    def __post_init__(self) -> None:
        """Refuse an empty pass and ops that read themselves or later ones."""
        require(
            bool(self.forward and self.backward), f"layer {self.name!r} lacks a forward or a backward op: give both"
        )
        for number, op in enumerate(self.forward):
            _require_earlier(op.inputs, number, f"forward[{number}].inputs")
        for number, step in enumerate(self.backward):
            _require_earlier(step.backward_inputs, number, f"backward[{number}].backward_inputs")
            for source in step.forward_inputs:
                place = f"backward[{number}].forward_inputs"
                require_index(source, len(self.forward), place, "forward ops")

    @property
    def forward_us(self) -> int:
        """Time of one forward pass through the layer, collectives included."""
        return sum(op.time_us for op in self.forward)

    @property
    def backward_us(self) -> int:
        """Time of one backward pass through the layer, collectives included, without recomputation."""
        return sum(op.time_us for op in self.backward)

    @property
    def forward_comm_us(self) -> int:
        """Time of the collectives in a forward pass."""
        return sum(op.time_us for op in self.forward if op.comm)

    @property
    def backward_comm_us(self) -> int:
        """Time of the collectives in a backward pass."""
        return sum(op.time_us for op in self.backward if op.comm)

    @property
    def needed(self) -> tuple[bool, ...]:
        """For each forward op, whether some backward op reads its output."""
        read = {source for op in self.backward for source in op.forward_inputs}
        return tuple(number in read for number in range(len(self.forward)))

    @property
    def kept_bytes(self) -> int:
        """What a layer keeps for its backward pass where nothing is recomputed: its input and all needed outputs."""
        outputs = sum(op.output_bytes for op, needed in zip(self.forward, self.needed, strict=True) if needed)
        return self.input_bytes + outputs


def _require_earlier(sources: tuple[int, ...], number: int, place: str) -> None:
    for source in sources:
        require(
            0 <= source < number, f"{place} holds {source}, which is not an earlier op: list ops in execution order"
        )
