"""The MLP block's kernels: norm, two projections with an activation between, dropout, residual; or a mixture."""

from solvers.workload.attention import Product, add, linear_backward
from solvers.workload.kernels import GRADIENT, Kernel
from solvers.workload.setting import FULL, HALF, MASK, Setting


def mlp_forward(x: Setting) -> list[Kernel]:
    """From the sum after attention to the layer's output."""
    norm = x.kernel("norm 2", (_sum(x),), x.outer_bytes, x.outer_bytes, "reduction")
    gathered = x.enter("2", norm.name)
    source = (gathered or [norm])[-1].name
    chosen = _route(x, source) if x.shape.experts > 1 else []
    read = chosen[-1].name if chosen else source
    experts, rows, hidden = x.shape.experts, _rows(x), x.shape.hidden
    wide, narrow = x.inner_bytes(x.shape.fc1_width, rows), x.inner_bytes(x.shape.ffn, rows)
    kernels = [norm, *gathered, *chosen]
    kernels += [
        x.linear("fc1", (read,), (rows, hidden, x.shape.fc1_width // x.tensor), weights=experts),
        x.kernel("activation", ("fc1",), narrow, wide),
        x.linear("fc2", ("activation",), (rows, x.shape.ffn // x.tensor, hidden), weights=experts),
    ]
    if chosen:
        size = HALF * rows * hidden + chosen[0].output_bytes
        kernels += [x.kernel("combine experts", ("fc2", "router"), x.full_bytes, size, "copy")]
    kernels += x.leave("2", kernels[-1].name)
    return [*kernels, *add(x, "2", kernels[-1].name, _sum(x), group="")]


def _sum(x: Setting) -> str:
    return "dropout add 1" if x.shape.dropout else "add 1"


def _rows(x: Setting) -> int:
    """Rows of the experts' products: every token once for each expert it visits."""
    return x.tokens * x.shape.experts_per_token


def _route(x: Setting, read: str) -> list[Kernel]:
    """A mixture's router (on every device alike), and the tokens copied in the order of their experts."""
    hidden, experts = x.shape.hidden, x.shape.experts
    output = FULL * x.tokens * experts
    traffic = x.full_bytes + HALF * hidden * experts + output
    router = Kernel("router", (read,), output, "matmul", 2 * x.tokens * hidden * experts, traffic)
    size = HALF * _rows(x) * hidden
    return [router, x.kernel("permute tokens", (read, "router"), size, size, "copy")]


def mlp_backward(x: Setting) -> list[Kernel]:
    """From the gradient of the layer's output to that of the sum after attention."""
    size, mixture = x.outer_bytes, x.shape.experts > 1
    kernels: list[Kernel] = []
    if x.shape.dropout:
        reads, read = (GRADIENT, "dropout mask 2"), size + MASK * x.outer_elements
        kernels += [x.kernel("dropout 2 backward", reads, size, read)]
    kernels += x.enter("gradient 2", kernels[-1].name if kernels else GRADIENT)
    gradient = kernels[-1].name if kernels else GRADIENT
    kernels += _combine_backward(x, gradient) if mixture else []
    kernels += _products_backward(x, kernels[-1].name if mixture else gradient)
    kernels += _route_backward(x) if mixture else []
    source = "tokens gradient" if mixture else "fc1 input gradient"
    kernels += x.leave("gradient 2", source)
    source = kernels[-1].name if x.tensor > 1 else source
    group = "norm 2 backward"
    return [
        *kernels,
        x.kernel("norm gradient 2", (_sum(x), source), size, 2 * size, "reduction", group),
        x.kernel("add gradient 2", ("norm gradient 2", GRADIENT), size, 2 * size, group=group),
    ]


def _products_backward(x: Setting, gradient: str) -> list[Kernel]:
    mixture, rows, hidden = x.shape.experts > 1, _rows(x), x.shape.hidden
    wide, narrow = x.inner_bytes(x.shape.fc1_width, rows), x.inner_bytes(x.shape.ffn, rows)
    second, first = (rows, x.shape.ffn // x.tensor, hidden), (rows, hidden, x.shape.fc1_width // x.tensor)
    source, gathered = ("permute tokens", None) if mixture else ("norm 2", "2")
    return [
        *linear_backward(x, Product("fc2", second, weights=x.shape.experts), gradient, "activation"),
        x.kernel("activation backward", ("fc2 input gradient", "fc1"), wide, wide + narrow),
        *linear_backward(x, Product("fc1", first, gathered, x.shape.experts), "activation backward", source),
    ]


def _combine_backward(x: Setting, gradient: str) -> list[Kernel]:
    """Gradients of the router's probabilities and of the experts' outputs."""
    spread, chances = HALF * _rows(x) * x.shape.hidden, FULL * x.tokens * x.shape.experts
    group = "combine experts backward"
    return [
        x.kernel("chances gradient", (gradient, "fc2"), chances, x.full_bytes + spread, "reduction", group),
        x.kernel("experts gradient", (gradient, "router"), spread, x.full_bytes + chances, "copy", group),
    ]


def _route_backward(x: Setting) -> list[Kernel]:
    """Tokens back in their order, and the router's own gradients added."""
    hidden, experts, full = x.shape.hidden, x.shape.experts, x.full_bytes
    spread, chances = HALF * _rows(x) * hidden, FULL * x.tokens * experts
    flops, group = 2 * x.tokens * hidden * experts, "router backward"
    logits = x.kernel("router gradient", ("chances gradient", "router"), chances, 2 * chances, "reduction", group)
    traffic = full + chances + HALF * hidden * experts
    again = x.enter_again("2", "norm 2", None)
    read = again[-1].name if again else "norm 2"
    tokens = ("fc1 input gradient", "router input gradient", "router")
    return [
        *again,
        logits,
        Kernel("router weight gradient", (logits.name, read), 0, "matmul", flops, traffic, group=group),
        Kernel("router input gradient", (logits.name,), full, "matmul", flops, traffic, group=group),
        x.kernel("tokens gradient", tokens, full, full + spread, "copy", group),
    ]
