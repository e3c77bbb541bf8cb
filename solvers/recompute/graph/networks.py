"""Training graphs of convolutional networks by formulas: FLOPs, bytes, a roofline, and backward passes written for you.

Nothing here is measured. A forward operator states what its backward pass reads (Chen et al. 2016 call it the saved
tensors); `Network.training` then writes one backward operator for each, and sums of gradients where a tensor fans out.
"""

from dataclasses import dataclass, field

from solvers.ir.recompute import RecomputeOp

ELEMENT_BYTES = 4
"""float32."""
FLOPS_PER_S = 62.4e12
"""An A100's TF32 peak of 156 TFLOP/s at 40 %: an assumption."""
BYTES_PER_S = 1.3e12
"""An A100's 1.6 TB/s at some 80 %: an assumption."""
LAUNCH_US = 5.0
STATE_BYTES = 12
"""A parameter, its gradient and its momentum in float32 (SGD)."""


@dataclass(frozen=True)
class Map:
    """A feature map of one network: which forward operator made it (None: the batch), and its shape."""

    made_by: int | None
    channels: int
    height: int
    width: int

    def elements(self, batch: int) -> int:
        """Numbers in it for a whole batch."""
        return batch * self.channels * self.height * self.width


@dataclass(frozen=True)
class _Work:
    """What an operator does: floating-point operations, elements moved, and its backward pass over its forward one."""

    flops: int
    moved: int
    backward: float


@dataclass(frozen=True)
class _Forward:
    name: str
    time_us: float
    backward_us: float
    result: Map
    sources: tuple[Map, ...]
    saved: tuple[int, ...]
    """Forward operators whose outputs the backward pass reads."""
    alias: bool = False
    """Its gradient is the gradient of each source (a sum) or holds it (a concatenation): no backward operator."""


@dataclass
class Network:
    """Collects forward operators; each method adds one and answers its feature map."""

    batch: int
    parameters: int = 0
    forward: list[_Forward] = field(default_factory=list)

    def image(self, channels: int, size: int) -> Map:
        """The batch; it is never recomputed and counts as static memory of whoever loads it."""
        return Map(None, channels, size, size)

    def convolution(self, x: Map, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Map:
        """2·K²·C_in/groups·C_out·H·W FLOPs an image; the backward pass takes twice that and reads the input."""
        height, width = -(-x.height // stride), -(-x.width // stride)
        weights = kernel * kernel * x.channels // groups * channels
        self.parameters += weights
        result = self._next(channels, height, width)
        flops = 2 * weights * height * width * self.batch
        moved = x.elements(self.batch) + result.elements(self.batch) + weights
        return self._add("conv", result, (x,), _Work(flops, moved, 2.0), self._made(x))

    def transposed(self, x: Map, channels: int) -> Map:
        """A 2×2 up-convolution: doubles height and width."""
        weights = 4 * x.channels * channels
        self.parameters += weights
        result = self._next(channels, 2 * x.height, 2 * x.width)
        flops = 2 * weights * x.height * x.width * self.batch
        moved = x.elements(self.batch) + result.elements(self.batch) + weights
        return self._add("up", result, (x,), _Work(flops, moved, 2.0), self._made(x))

    def linear(self, x: Map, features: int) -> Map:
        """A dense layer over everything; the backward pass reads the input."""
        weights = x.channels * x.height * x.width * features
        self.parameters += weights
        result = self._next(features, 1, 1)
        moved = x.elements(self.batch) + result.elements(self.batch) + weights
        return self._add("linear", result, (x,), _Work(2 * weights * self.batch, moved, 2.0), self._made(x))

    def normalise(self, x: Map) -> Map:
        """Batch normalisation: two reads and a write; the backward pass reads the input."""
        self.parameters += 2 * x.channels
        return self._pointwise("norm", x, 3, self._made(x))

    def relu(self, x: Map) -> Map:
        """The backward pass reads the output only."""
        return self._pointwise("relu", x, 2, (len(self.forward),))

    def pool(self, x: Map, stride: int = 2) -> Map:
        """Maximum over windows; the backward pass reads input and output. Stride 0: the mean over everything."""
        size = (1, 1) if stride == 0 else (-(-x.height // stride), -(-x.width // stride))
        result = self._next(x.channels, *size)
        moved = x.elements(self.batch) + result.elements(self.batch)
        saved = () if stride == 0 else (*self._made(x), len(self.forward))
        return self._add("pool", result, (x,), _Work(0, moved, 1.0), saved)

    def add(self, x: Map, y: Map) -> Map:
        """A residual sum; its gradient is both sources' gradient."""
        return self._join("add", (x, y), x.channels)

    def concatenate(self, x: Map, y: Map) -> Map:
        """A skip connection; its gradient holds both sources' gradients."""
        return self._join("concat", (x, y), x.channels + y.channels)

    def training(self) -> tuple[RecomputeOp, ...]:
        """Forward, loss and backward operators in execution order, times cumulatively rounded to whole microseconds."""
        return _Training(self).ops()

    def _join(self, name: str, sources: tuple[Map, Map], channels: int) -> Map:
        result = self._next(channels, sources[0].height, sources[0].width)
        moved = sum(source.elements(self.batch) for source in sources) + result.elements(self.batch)
        return self._add(name, result, sources, _Work(0, moved, 1.0), (), alias=True)

    def _pointwise(self, name: str, x: Map, passes: int, saved: tuple[int, ...]) -> Map:
        result = self._next(x.channels, x.height, x.width)
        return self._add(name, result, (x,), _Work(0, passes * x.elements(self.batch), 1.5), saved)

    def _next(self, channels: int, height: int, width: int) -> Map:
        return Map(len(self.forward), channels, height, width)

    def _made(self, x: Map) -> tuple[int, ...]:
        return () if x.made_by is None else (x.made_by,)

    def _add(
        self,
        name: str,
        result: Map,
        sources: tuple[Map, ...],
        work: _Work,
        saved: tuple[int, ...],
        alias: bool = False,
    ) -> Map:
        time_us = max(work.flops / FLOPS_PER_S, work.moved * ELEMENT_BYTES / BYTES_PER_S) * 1e6
        name = f"{name}{len(self.forward)}"
        self.forward.append(
            _Forward(name, time_us + LAUNCH_US, work.backward * time_us + LAUNCH_US, result, sources, saved, alias)
        )
        return result


class _Training:
    """Writes the backward pass; `gradients[i]` lists the ops that hold gradients of forward op i's output."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.found: list[RecomputeOp] = []
        self.gradients: dict[int, list[int]] = {}
        self.clock = 0.0

    def ops(self) -> tuple[RecomputeOp, ...]:
        forward = self.network.forward
        for op in forward:
            self._op(op.name, op.time_us, op.result, [source.made_by for source in op.sources])
        final = len(forward) - 1
        self.gradients[final] = [self._op("loss", LAUNCH_US, forward[final].result, [final])]
        for number in reversed(range(len(forward))):
            self._backward(number)
        return tuple(self.found)

    def _backward(self, number: int) -> None:
        op = self.network.forward[number]
        held = sorted(set(self.gradients.get(number, ())))
        if not held:
            return
        gradient = held[0]
        if len(held) > 1:
            bytes_moved = 3 * op.result.elements(self.network.batch) * ELEMENT_BYTES
            gradient = self._op(f"{op.name}_sum", bytes_moved / BYTES_PER_S * 1e6 + LAUNCH_US, op.result, held)
        if not op.alias:
            wanted = op.sources[0] if op.sources[0].made_by is not None else None
            gradient = self._op(f"{op.name}_back", op.backward_us, wanted, [gradient, *op.saved])
        for source in op.sources:
            if source.made_by is not None:
                self.gradients.setdefault(source.made_by, []).append(gradient)

    def _op(self, name: str, time_us: float, result: Map | None, inputs: "list[int | None] | list[int]") -> int:
        """`result` None: only gradients of parameters, which are static."""
        before, self.clock = round(self.clock), self.clock + time_us
        self.found.append(
            RecomputeOp(
                name=name,
                time_us=round(self.clock) - before,
                output_bytes=0 if result is None else result.elements(self.network.batch) * ELEMENT_BYTES,
                inputs=tuple(sorted({source for source in inputs if source is not None})),
                comm=False,
            )
        )
        return len(self.found) - 1
