"""One transformer layer as Megatron-LM runs it under tensor parallelism: kernels, bytes and times (README.md §2–3).

s sequence, b microbatch, h hidden, a heads, t tensor parallelism; activations have two bytes, dropout masks one.
"""

from solvers.ir.hardware import Hardware
from solvers.workload.attention import attention_backward, attention_forward
from solvers.workload.costs import LayerCosts
from solvers.workload.kernels import assemble
from solvers.workload.mlp import mlp_backward, mlp_forward
from solvers.workload.setting import Setting
from solvers.workload.shape import ModelShape, Parallelism


def megatron_layer(
    shape: ModelShape, parallelism: Parallelism, cluster: Hardware, *, group_small: bool = True
) -> LayerCosts:
    """The forward and backward operators of one layer on one device, for one microbatch.

    `group_small` joins small kernels with their neighbour as Lynx §6 does. Raises `InvalidProblem` where the tensor
    parallelism does not divide the shape or the cluster is too small.
    """
    setting = Setting.of(shape, parallelism, cluster)
    forward = [*attention_forward(setting), *mlp_forward(setting)]
    backward = [*mlp_backward(setting), *attention_backward(setting)]
    name = f"{shape.name}, tensor {parallelism.tensor}, microbatch {parallelism.microbatch}"
    name += ", sequence parallel" if setting.sequence_parallel else ""
    return assemble(name, setting.outer_bytes, (forward, backward), setting.device, group_small)
