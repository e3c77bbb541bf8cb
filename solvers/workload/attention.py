"""The attention block's kernels: norm, fused query-key-value projection, attention, projection, dropout, residual."""

from dataclasses import dataclass

from solvers.workload.kernels import INPUT, Kernel
from solvers.workload.setting import FULL, HALF, MASK, Setting

FLASH_BACKWARD = 5, 2
"""Flash attention's backward pass does five matrix products where the forward pass does two (Dao et al. 2022)."""


def attention_forward(x: Setting) -> list[Kernel]:
    """From the layer's input to the sum after attention."""
    norm = x.kernel("norm 1", (INPUT,), x.outer_bytes, x.outer_bytes, "reduction")
    gathered = x.enter("1", norm.name)
    core = _flash(x) if x.shape.attention == "flash" else _unfused(x)
    hidden = x.shape.hidden
    projection = x.linear("projection", (core[-1].name,), (x.tokens, hidden // x.tensor, hidden))
    reduced = x.leave("1", projection.name)
    before = [norm, *gathered, *_qkv(x, (gathered or [norm])[-1].name), *core, projection, *reduced]
    return [*before, *add(x, "1", before[-1].name, INPUT)]


def add(x: Setting, number: str, read: str, residual: str, group: str = "dropout add") -> list[Kernel]:
    """Bias, dropout and residual sum as Megatron's one fused kernel; its mask is a tensor of its own."""
    size = x.outer_bytes
    if not x.shape.dropout:
        return [x.kernel(f"add {number}", (read, residual), size, 2 * size)]
    mask = x.kernel(f"dropout mask {number}", (), MASK * x.outer_elements, 0, group=group and f"{group} {number}")
    reads, read_bytes = (read, mask.name, residual), 2 * size + mask.output_bytes
    return [mask, x.kernel(f"dropout add {number}", reads, size, read_bytes, group=mask.group or "")]


def _qkv(x: Setting, read: str) -> list[Kernel]:
    """The projection, its bias, rotated positions, and heads made contiguous: the last output is what is kept."""
    width = x.shape.qkv_width // x.tensor
    size = x.inner_bytes(x.shape.qkv_width)
    kernels = [x.linear("qkv matmul", (read,), (x.tokens, x.shape.hidden, width), "qkv")]
    names = ["qkv bias"] if x.shape.bias else []
    names += ["rotary positions"] if x.shape.positions == "rotary" else []
    for name in names:
        kernels.append(x.kernel(name, (kernels[-1].name,), size, size, group="qkv"))
    return [*kernels, x.kernel("split heads", (kernels[-1].name,), size, size, "copy", "qkv")]


def _score_bytes(x: Setting) -> int:
    """An s × s matrix for every head and sample of this device: 2·a·s²·b/t."""
    return HALF * x.shape.heads // x.tensor * x.shape.sequence * x.tokens


def _product(x: Setting, name: str, reads: tuple[str, ...], output: int, read: int, group: str = "") -> Kernel:
    """One batched product of attention: 2·s²·b·h/t operations."""
    flops = 2 * x.shape.sequence * x.tokens * x.shape.hidden // x.tensor
    return Kernel(name, reads, output, "attention", flops, read + output, group=group or None)


def _unfused(x: Setting) -> list[Kernel]:
    """Scores, softmax, dropout and context, every matrix in memory."""
    scores, head = _score_bytes(x), x.inner_bytes(x.shape.hidden)
    kernels = [
        _product(x, "scores", ("split heads",), scores, x.inner_bytes(x.shape.qkv_width) - _kv_bytes(x)),
        x.kernel("softmax", ("scores",), scores, scores, "reduction"),
    ]
    probabilities = "softmax"
    if x.shape.dropout:
        mask = x.kernel("attention mask", (), scores // HALF * MASK, 0, group="attention dropout")
        reads, read = (probabilities, mask.name), scores + mask.output_bytes
        kernels += [mask, x.kernel("attention dropout", reads, scores, read, group="attention dropout")]
        probabilities = "attention dropout"
    product = _product(x, "context matmul", (probabilities, "split heads"), head, scores + _kv_bytes(x), "context")
    return [*kernels, product, x.kernel("merge heads", (product.name,), head, head, "copy", "context")]


def _flash(x: Setting) -> list[Kernel]:
    """One kernel whose matrices never stand in memory; half of the products are masked and skipped."""
    qkv, head = x.inner_bytes(x.shape.qkv_width), x.inner_bytes(x.shape.hidden)
    flops = 2 * x.shape.sequence * x.tokens * x.shape.hidden // x.tensor
    output = head + FULL * x.tokens * x.shape.heads // x.tensor
    return [Kernel("flash attention", ("split heads",), output, "attention", flops, qkv + output)]


def _kv_bytes(x: Setting) -> int:
    """Keys, or values."""
    return x.inner_bytes(x.shape.kv_heads * (x.shape.hidden // x.shape.heads))


def attention_backward(x: Setting) -> list[Kernel]:
    """From the gradient of the sum after attention to the gradient of the layer's input."""
    above, size = "add gradient 2", x.outer_bytes
    kernels: list[Kernel] = []
    if x.shape.dropout:
        read = size + MASK * x.outer_elements
        kernels += [x.kernel("dropout 1 backward", ("dropout mask 1", above), size, read)]
    kernels += x.enter("gradient 1", kernels[-1].name if kernels else above)
    kernels += _projection_backward(x, kernels[-1].name if kernels else above)
    kernels += _flash_backward(x) if x.shape.attention == "flash" else _unfused_backward(x)
    sizes = (x.tokens, x.shape.hidden, x.shape.qkv_width // x.tensor)
    kernels += linear_backward(x, Product("qkv", sizes, "1"), kernels[-1].name, "norm 1")
    kernels += x.leave("gradient 1", "qkv input gradient")
    gradient = kernels[-1].name if x.tensor > 1 else "qkv input gradient"
    group = "norm 1 backward"
    kernels += [
        x.kernel("norm gradient 1", (INPUT, gradient), size, 2 * size, "reduction", group),
        x.kernel("add gradient 1", ("norm gradient 1", above), size, 2 * size, group=group),
    ]
    return kernels


@dataclass(frozen=True)
class Product:
    """A product of a layer: its name, rows, inner and outer columns, how many weights; whether it has a bias.

    `gathered`: its input is gathered along the sequence, and anew for its backward pass.
    """

    name: str
    sizes: tuple[int, int, int]
    gathered: str | None = None
    weights: int = 1
    bias: bool = True


def linear_backward(x: Setting, product: Product, gradient: str, source: str) -> list[Kernel]:
    """Gradients of a product's input, weights and bias, from the gradient of its output and its input."""
    name, sizes, weights = product.name, product.sizes, product.weights
    rows, inner, columns = sizes
    group = f"{name} backward"
    towards_input = x.linear(f"{name} input gradient", (gradient,), (rows, columns, inner), group, weights)
    again = [] if product.gathered is None else x.enter_again(product.gathered, source, towards_input)
    read = again[-1].name if again else source
    kernels = [towards_input, *again]
    kernels += [x.weight_gradient(f"{name} weight gradient", (gradient, read), sizes, group, weights)]
    if x.shape.bias and product.bias:
        kernels += [x.kernel(f"{name} bias gradient", (gradient,), 0, HALF * rows * columns, "reduction", group)]
    return kernels


def _projection_backward(x: Setting, gradient: str) -> list[Kernel]:
    sizes = (x.tokens, x.shape.hidden // x.tensor, x.shape.hidden)
    source = "flash attention" if x.shape.attention == "flash" else "merge heads"
    return linear_backward(x, Product("projection", sizes), gradient, source)


def _unfused_backward(x: Setting) -> list[Kernel]:
    """Context, dropout, softmax and scores backwards; keys and values of a group of heads share one gradient."""
    scores, head, keys = _score_bytes(x), x.inner_bytes(x.shape.hidden), _kv_bytes(x)
    probabilities = "attention dropout" if x.shape.dropout else "softmax"
    first, second, third = "context backward", "softmax backward", "scores backward"
    split = x.kernel("split gradient heads", ("projection input gradient",), head, head, "copy", first)
    kernels = [
        split,
        _product(x, "probabilities gradient", (split.name, "split heads"), scores, head + keys, first),
        _product(x, "values gradient", (split.name, probabilities), keys, head + scores, first),
    ]
    gradient = "probabilities gradient"
    if x.shape.dropout:
        read = scores + scores // HALF * MASK
        reads = (gradient, "attention mask")
        kernels += [x.kernel("attention dropout backward", reads, scores, read, group=second)]
        gradient = "attention dropout backward"
    parts = ("values gradient", "queries gradient", "keys gradient")
    return [
        *kernels,
        x.kernel("softmax gradient", (gradient, "softmax"), scores, 2 * scores, "reduction", second),
        _product(x, "queries gradient", ("softmax gradient", "split heads"), head, scores + keys, third),
        _product(x, "keys gradient", ("softmax gradient", "split heads"), keys, scores + head, third),
        *_merge_gradients(x, parts, third),
    ]


def _merge_gradients(x: Setting, parts: tuple[str, ...], group: str) -> list[Kernel]:
    size = x.inner_bytes(x.shape.qkv_width)
    merged = [x.kernel("merge gradient heads", parts, size, size, "copy", group)]
    if x.shape.positions == "rotary":
        merged += [x.kernel("rotary positions backward", (merged[-1].name,), size, size, group=group)]
    return merged


def _flash_backward(x: Setting) -> list[Kernel]:
    """One kernel that makes the matrices anew, block by block."""
    qkv = x.inner_bytes(x.shape.qkv_width)
    forward = _flash(x)[0]
    more, fewer = FLASH_BACKWARD
    reads = ("projection input gradient", "split heads", "flash attention")
    read = qkv + forward.output_bytes + x.inner_bytes(x.shape.hidden)
    flops = forward.flops * more // fewer
    kernel = Kernel("flash attention backward", reads, qkv, "attention", flops, read + qkv, group="flash backward")
    return [kernel, *_merge_gradients(x, (kernel.name,), "flash backward")]
