"""A pipeline stage around its layers: static memory, what the first and the last stage do besides (README.md §5)."""

from collections.abc import Sequence

from solvers.ir.fields import Bytes, Microseconds, Record, require
from solvers.ir.hardware import Hardware
from solvers.workload.attention import Product, linear_backward
from solvers.workload.kernels import GRADIENT, INPUT, Kernel, kernel_us
from solvers.workload.setting import FULL, HALF, MASK, Setting
from solvers.workload.shape import ModelShape, Parallelism

BYTES_PER_PARAMETER = 16
"""Lynx §2.1: 2 for the parameter, 2 for its gradient, 4 each for Adam's two moments and the single-precision copy."""


class StageExtra(Record, frozen=True, kw_only=True):
    """Work that only the first stage (embedding) or the last one (final norm, logits, loss) does.

    `activation_bytes` is what it keeps between the forward and the backward pass of one microbatch.
    """

    name: str
    forward_us: Microseconds = 0
    backward_us: Microseconds = 0
    activation_bytes: Bytes = 0


def static_bytes(shape: ModelShape, parallelism: Parallelism, stage: int, layers: int) -> int:
    """Parameters, gradients and optimizer states of a stage with `layers` layers, on one device.

    The word table is cut over the tensor-parallel devices; a pipeline's last stage holds a copy of a tied one.
    """
    require_stage(stage, parallelism)
    tensor = parallelism.tensor
    parameters = layers * device_parameters_per_layer(shape, tensor)
    table = -(-shape.vocab // tensor) * shape.hidden
    last = stage == parallelism.pipeline - 1
    if stage == 0:
        parameters += table + (shape.sequence * shape.hidden if shape.positions == "learned" else 0)
    if last:
        parameters += shape.norm_parameters()
    if last and (stage > 0 or not shape.tied_embeddings):
        parameters += table
    return BYTES_PER_PARAMETER * parameters


def device_parameters_per_layer(shape: ModelShape, tensor: int) -> int:
    """A layer's parameters on one device: norms, router and the biases after an all-reduce are not cut, the rest is."""
    whole = 2 * shape.norm_parameters() + (shape.hidden * shape.experts if shape.experts > 1 else 0)
    whole += shape.hidden * (1 + shape.experts) if shape.bias else 0
    return whole + -(-(shape.parameters_per_layer() - whole) // tensor)


def inflight(parallelism: Parallelism, stage: int) -> int:
    """Microbatches whose activations a stage holds at its peak under 1F1B: min(stages − stage, microbatches)."""
    require_stage(stage, parallelism)
    return min(parallelism.pipeline - stage, parallelism.microbatches)


def require_stage(stage: int, parallelism: Parallelism) -> None:
    """Refuse a stage that the pipeline does not have."""
    stages = parallelism.pipeline
    has, choose = ("1 stage", "0") if stages == 1 else (f"{stages} stages", f"0…{stages - 1}")
    require(0 <= stage < stages, f"stage is {stage}, but the pipeline has {has}: choose {choose}")


def embedding_extra(shape: ModelShape, parallelism: Parallelism, cluster: Hardware) -> StageExtra:
    """Look-up of words and positions (a vocabulary cut over devices needs a collective), and dropout.

    Keeps the dropout mask. The gradient of the table is a scatter of the same size as the look-up.
    """
    x = Setting.of(shape, parallelism, cluster)
    full, outer = x.full_bytes, x.outer_bytes
    look_up = x.kernel("embedding", (INPUT,), full, full, "copy")
    forward = [look_up, *x.leave("embedding", "embedding")]
    positions = shape.positions == "learned"
    forward += [x.kernel("positions", (), outer, 2 * outer)] if positions else []
    mask = MASK * x.outer_elements if shape.dropout else 0
    forward += [x.kernel("embedding dropout", (), outer, outer + mask)] if shape.dropout else []
    backward = [x.kernel("embedding dropout backward", (), outer, outer + mask)] if shape.dropout else []
    backward += [x.kernel("positions gradient", (), 0, outer, "reduction")] if positions else []
    backward += x.enter("embedding gradient", GRADIENT)
    backward += [x.kernel("embedding gradient", (), full, full, "copy")]
    return _extra("embedding", x, forward, backward, mask)


def head_extra(shape: ModelShape, parallelism: Parallelism, cluster: Hardware) -> StageExtra:
    """Final norm, logits and cross entropy over a vocabulary cut over devices.

    Keeps the norm's input and output and the logits in single precision: 4sbh/t·(1 + v/h) with sequence parallelism
    (Korthikanti et al. 2022, §4.3), and 4sbh + 4sbv/t without.
    """
    x = Setting.of(shape, parallelism, cluster)
    outer, columns = x.outer_bytes, -(-shape.vocab // x.tensor)
    logits, chances = HALF * x.tokens * columns, FULL * x.tokens * columns
    sizes = (x.tokens, shape.hidden, columns)
    forward = [
        x.kernel("final norm", (INPUT,), outer, outer, "reduction"),
        *x.enter("logits", "final norm"),
        x.linear("logits", ("final norm",), sizes),
        x.kernel("logits in single precision", ("logits",), chances, logits),
        x.kernel("softmax of logits", ("logits in single precision",), chances, 2 * chances, "reduction"),
    ]
    backward = [
        x.kernel("loss gradient", ("softmax of logits",), logits, chances),
        *linear_backward(x, Product("logits", sizes, "logits", bias=False), "loss gradient", "final norm"),
        *x.leave("logits gradient", "logits input gradient"),
        x.kernel("final norm backward", (INPUT,), outer, 2 * outer, "reduction"),
    ]
    return _extra("head", x, forward, backward, 2 * outer + chances)


def _extra(name: str, x: Setting, forward: Sequence[Kernel], backward: Sequence[Kernel], kept: int) -> StageExtra:
    first, second = (round(sum(kernel_us(x.device, kernel) for kernel in part)) for part in (forward, backward))
    return StageExtra(name=name, forward_us=first, backward_us=second, activation_bytes=kept)


def stage_extras(shape: ModelShape, parallelism: Parallelism, cluster: Hardware, stage: int) -> tuple[StageExtra, ...]:
    """What a stage does besides its layers: the embedding if it is the first, the head if it is the last."""
    require_stage(stage, parallelism)
    extras = [embedding_extra(shape, parallelism, cluster)] if stage == 0 else []
    last = stage == parallelism.pipeline - 1
    return (*extras, *([head_extra(shape, parallelism, cluster)] if last else []))
