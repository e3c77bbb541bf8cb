"""The graphs behind SmartSwap's tables: a real profile on the simulated device, and Llama 2 by formulas."""

import gc

from experiments.models.gpt import GptShape, build_gpt
from runtime.device import use_sim
from runtime.profile import profile_step
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.workload import ModelShape, Parallelism, megatron_layer, stage_extras, stage_graph, static_bytes


def gpt_profile(shape: GptShape, hardware: Hardware) -> OpGraph:
    """One real training step of a GPT, profiled on the simulated device of that hardware; times are its virtual ones.

    This makes the device of this process the simulated one.
    """
    gc.collect()  # what an earlier run left unreachable on the device is freed before the new one begins
    device = use_sim(hardware).device
    model, optimizer, step = build_gpt(shape, device)
    return profile_step(step, device, name=f"gpt-{shape.layers}l", model=model, optimizer=optimizer)


def llama_graph(shape: ModelShape, hardware: Hardware, layers: int, parallelism: Parallelism) -> OpGraph:
    """One microbatch through `layers` layers on one device of that hardware, every kernel by itself, with both ends."""
    costs = megatron_layer(shape, parallelism, hardware, group_small=False)
    embedding, head = stage_extras(shape, parallelism, hardware, stage=0)
    static = static_bytes(shape, parallelism, stage=0, layers=layers)
    return stage_graph(costs, layers, embedding=embedding, head=head, static_bytes=static)
