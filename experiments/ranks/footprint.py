"""What a rank of `experiments.ranks.large` has in memory, block by block, from shapes alone: nothing is run.

One step of the program is gone through in its order, with `Schedule1F1B`'s order of microbatches, and every tensor is
counted from the operator that makes it to the statement, or the step of autograd, that lets it go. What an operator
takes for itself comes from the table of kernels' temporaries, as on device sim. Tensors that could not matter are left
out: rotary positions, the smaller halves of norms, and gradients' last additions take less than what comes right
before or after them, where the sequence is at least twice as long as a head is wide (others are refused).
"""

from typing import NamedTuple

from experiments.ranks.ledger import Ledger, blocks
from experiments.ranks.sizes import FLAG, FULL, HALF, WORD, Sizes
from solvers.ir.errors import InvalidInput
from solvers.workload import ModelShape, Parallelism
from solvers.workload.stage import inflight

STATES = 4
"""Parameters, gradients and AdamW's two moments, all of them in bfloat16."""


class Footprint(NamedTuple):
    """What lives when most does, in bytes, by what it is for."""

    static: int
    """Parameters, gradients, moments, and a count of steps for each parameter."""
    constants: int
    """The mask of attention, the angles of positions, and the step's tokens."""
    messages: int
    """What the schedule receives into, and what it still holds of what it sent or returned."""
    others: int
    """What the other microbatches in flight keep for their backward passes."""
    microbatch: int
    """What the one that runs has kept, and not yet used."""
    working: int
    """Gradients, results on their way, and what the kernel takes for itself."""

    @property
    def peak(self) -> int:
        """All of it."""
        return sum(self)


def footprint(shape: ModelShape, cut: Parallelism, stage: int) -> Footprint:
    """A rank of a stage at the moment when most is in use. Raises `InvalidInput` for a shape that is not Llama's."""
    return Rehearsal(shape, cut, stage).footprint()


class Rehearsal:
    """One step of a rank: what each of its operators makes, and what is let go. A name is one tensor's.

    Names that begin with "microbatch m/" are what its forward pass keeps; the schedule's begin with "message/".
    """

    def __init__(self, shape: ModelShape, cut: Parallelism, stage: int) -> None:
        if not (shape.gated and shape.norm == "rmsnorm" and shape.positions == "rotary") or shape.dropout or shape.bias:
            raise InvalidInput(
                f"{shape.name} has dropout, biases, or no gates, root-mean-square norms and rotary positions: choose "
                "one of Llama's layers"
            )
        if shape.sequence < 2 * shape.hidden // shape.heads:
            raise InvalidInput(
                f"sequence is {shape.sequence}, less than twice the {shape.hidden // shape.heads} numbers of a head: "
                "give a longer one"
            )
        if shape.heads == cut.tensor:
            raise InvalidInput(f"tensor is {cut.tensor}, as many as heads: give each rank two heads or more")
        self._x, self._cut, self._stage = Sizes(shape, cut.tensor), cut, stage
        self._layers = shape.layers // cut.pipeline
        self._first, self._last = stage == 0, stage == cut.pipeline - 1
        self._ledger = Ledger()
        self._running = ""

    def footprint(self) -> Footprint:
        """Goes through the step, in the order of `Schedule1F1B`."""
        self._begin()
        flying = inflight(self._cut, self._stage)
        for number in range(flying):
            self._forward(number)
        for number in range(self._cut.microbatches):
            self._backward(number)
            if number + flying < self._cut.microbatches:
                self._forward(number + flying)
        running = self._ledger.kernel.partition("/")[0]
        sums = dict.fromkeys(Footprint._fields, 0)
        for name, size in self._ledger.at_most.items():
            group = name.partition("/")[0]
            kept = "microbatch" if group == running else "others" if group.startswith("microbatch") else "working"
            sums[{"message": "messages"}.get(group, group if group in sums else kept)] += size
        return Footprint(**sums)

    def _make(self, kernel: str, takes: int = 0, /, **results: int) -> None:
        """Short-lived results."""
        self._ledger.make(f"{self._running}/{kernel}", results, takes)

    def _keep(self, kernel: str, layer: int | str, takes: int = 0, /, **results: int) -> None:
        """Results that the backward pass reads."""
        named = {f"{self._running}/{layer} {name}": size for name, size in results.items()}
        self._ledger.make(f"{self._running}/{kernel}", named, takes)

    def _free(self, *names: str) -> None:
        self._ledger.free(*names)

    def _drop(self, layer: int | str, *names: str) -> None:
        """What was kept, and was read for the last time."""
        self._ledger.free(*(f"{self._running}/{layer} {name}" for name in names))

    def _begin(self) -> None:
        x, shape = self._x, self._x.shape
        width, columns = shape.hidden, x.rows * shape.hidden
        layer = [width, width, width * x.qkv, width * (width // x.tensor), width * x.fc1, width * x.ffn]
        sizes = layer * self._layers + [columns] * (self._first + self._last) + [width] * self._last
        static = sum(STATES * blocks(HALF * size) + blocks(FULL) for size in sizes)
        head = shape.hidden // shape.heads
        constants = [FLAG * x.sequence**2 * (shape.heads // shape.kv_heads), x.half(head), x.half(head)]
        constants += [WORD * x.sequence * self._cut.microbatches]
        neighbours = (not self._first) + (not self._last)
        messages = neighbours * self._cut.microbatches * blocks(x.hidden)
        self._ledger.make(
            "static", {"static": static, "constants": sum(map(blocks, constants)), "message/in": messages}
        )

    # Forward.

    def _forward(self, number: int) -> None:
        self._running = f"microbatch {number}"
        if self._first:
            self._look_up()
        for layer in range(self._layers):
            self._attention(layer)
            self._perceptron(layer)
        if self._last:
            self._loss(number)

    def _own_part(self, of: str) -> None:
        """Where words stand in this rank's part of the vocabulary, and whose they are: by two comparisons."""
        tokens = self._x.sequence
        self._keep("own part", of, places=WORD * tokens)
        self._make("comparisons", below=FLAG * tokens, above=FLAG * tokens)
        self._keep("elsewhere", of, elsewhere=FLAG * tokens)
        self._free("below", "above")

    def _look_up(self) -> None:
        self._own_part("words")
        self._make("look-up", found=self._x.hidden)
        self._keep("others' words are 0", -1, output=self._x.hidden)
        self._free("found")

    def _norm(self, layer: int | str) -> None:
        """Squares in single precision, beside the input's copy; kept are one number a token, and the result."""
        x = self._x
        self._make("norm", single=x.full(x.shape.hidden), square=x.full(x.shape.hidden))
        self._free("single", "square")
        self._keep("norm", layer, scale=x.full(1), normed=x.hidden)

    def _attention(self, layer: int) -> None:
        x = self._x
        self._norm(f"{layer} attention")
        self._make("qkv", qkv=x.half(x.qkv), rotated=x.queries)
        self._keep("queries", layer, queries=x.queries)
        # Keys of one head are in order as they are rotated; others are copied, as values are, which stand beside them.
        self._keep("keys", layer, keys=x.keys, values=x.keys)
        if x.groups > 1:
            self._make("keys copied", rotated_keys=x.keys)
        self._make("scores", scores=x.scores)
        self._keep("softmax", layer, chances=x.scores)
        self._free("scores")
        self._make("context", mixed=x.queries)
        self._keep("merge heads", layer, merged=x.queries)
        self._free("qkv", "rotated", "rotated_keys", "mixed")
        self._add("projection", layer, "middle")

    def _add(self, product: str, layer: int, result: str) -> None:
        """A product by rows, reduced where it stands, and the sum with what went past it."""
        self._make(product, partial=self._x.hidden)
        self._keep("add", layer, **{result: self._x.hidden})
        self._free("partial")

    def _perceptron(self, layer: int) -> None:
        x = self._x
        self._norm(f"{layer} perceptron")
        self._keep("fc1", layer, wide=x.half(x.fc1))
        self._make("silu", silu=x.half(x.ffn))
        self._keep("gate", layer, narrow=x.half(x.ffn))
        self._free("silu")
        self._add("fc2", layer, "output")

    def _loss(self, number: int) -> None:
        """The schedule's variable holds the logits until those of the next microbatch take their place."""
        x = self._x
        self._norm("final")
        self._ledger.make(f"{self._running}/logits", {"message/logits": x.half(x.rows)})
        self._make("single precision", single=x.full(x.rows))
        self._make("highest", highest=x.full(1))
        self._own_part("targets")
        self._keep("shifted, then probabilities", "loss", chances=x.full(x.rows))
        self._make("target and sum", wanted=x.full(1), total=x.full(1), difference=x.full(1))
        self._ledger.make(f"{self._running}/loss", {f"message/loss {number}": FULL}, x.loss_takes)
        self._free("single", "highest", "wanted", "total", "difference")

    # Backward: `gradient` is that of a layer's output; without it, it is in the buffer that it was received into.

    def _backward(self, number: int) -> None:
        self._running = f"microbatch {number}"
        if self._last:
            self._loss_backward()
        for layer in reversed(range(self._layers)):
            self._perceptron_backward(layer)
            self._attention_backward(layer)
        if self._first:
            self._look_up_backward()
        # Sent back, and held by the schedule until the next one is.
        self._ledger.rename("gradient", "message/sent back")
        self._free("one")
        self._drop(self._layers - 1, "output")

    def _loss_backward(self) -> None:
        x = self._x
        self._make("one", one=FULL)  # autograd's, as long as the backward pass is
        self._make("here", here=x.full(1))
        self._make("gradient of logits", found=x.full(x.rows))
        self._make("its factor", factor=FULL)
        self._drop("loss", "chances")
        self._drop("targets", "places", "elsewhere")
        self._free("here", "factor")
        self._make("in bfloat16", of_logits=x.half(x.rows))
        self._free("found")
        self._product("head", x.rows, x.shape.hidden, "inner")
        self._free("of_logits")
        self._drop("final", "normed")
        self._norm_backward("final", (self._layers - 1, "output"), "gradient")

    def _product(self, name: str, columns: int, inner: int, result: str) -> None:
        """Gradients of a product's weights, which are added to those that stay, and of its input."""
        x = self._x
        self._make(f"{name}: weights", weights=HALF * inner * columns)
        self._make(f"{name}: input", x.product_takes(columns, inner), **{result: x.half(inner)})
        self._free("weights")

    def _norm_backward(self, norm: str, read: tuple[int, str], result: str) -> None:
        """From `inner`, the gradient of what the norm gave. `read` is what it was given."""
        x = self._x
        self._make("normal, along, their product", normal=x.hidden, along=x.hidden, product=x.hidden)
        self._make("norm's weights", of_weight=HALF * x.shape.hidden)
        self._make("mean", x.mean_takes, mean=x.half(1))
        self._free("product", "mean")
        self._make("difference, result", **{"difference": x.hidden, result: x.hidden})
        self._free("inner", "normal", "along", "difference", "of_weight")
        self._drop(norm, "scale")
        self._drop(*read)

    def _perceptron_backward(self, layer: int) -> None:
        x = self._x
        self._product("fc2", x.shape.hidden, x.ffn, "of_narrow")
        self._drop(layer, "narrow")
        self._make("gate", silu=x.half(x.ffn), of_gate=x.half(x.ffn))
        self._make("gate and value", of_wide=x.half(x.fc1))
        self._free("silu", "of_gate", "of_narrow")
        self._drop(layer, "wide")
        self._product("fc1", x.fc1, x.shape.hidden, "inner")
        self._free("of_wide")
        self._drop(f"{layer} perceptron", "normed")
        self._norm_backward(f"{layer} perceptron", (layer, "middle"), "past")
        self._make("add", middle=x.hidden)
        self._free("past", "gradient")

    def _attention_backward(self, layer: int) -> None:
        x = self._x
        self._product("projection", x.shape.hidden, x.shape.hidden // x.tensor, "of_merged")
        self._drop(layer, "merged")
        self._make("heads apart", of_mixed=x.queries)
        self._free("of_merged")
        self._make("values", of_values=x.keys)
        self._make("probabilities", of_chances=x.scores)
        self._free("of_mixed")
        self._drop(layer, "values")
        self._make("softmax", of_scores=x.scores)
        self._free("of_chances")
        self._drop(layer, "chances")
        self._make("mask and scale", scaled=x.scores)
        self._free("of_scores")
        self._make("keys and queries", of_keys=x.keys, of_queries=x.queries)
        self._free("scaled")
        self._drop(layer, "queries", "keys")
        self._make("heads together", of_qkv=x.half(x.qkv))
        self._free("of_keys", "of_queries", "of_values")
        self._product("qkv", x.qkv, x.shape.hidden, "inner")
        self._free("of_qkv")
        self._drop(f"{layer} attention", "normed")
        self._norm_backward(f"{layer} attention", (layer - 1, "output"), "past")
        self._make("add", gradient=x.hidden)
        self._free("past", "middle")

    def _look_up_backward(self) -> None:
        self._make("mask", masked=self._x.hidden)
        self._free("gradient")
        self._drop("words", "elsewhere")
        self._make("table", table=HALF * self._x.rows * self._x.shape.hidden)
        self._drop("words", "places")
        self._free("masked", "table")
