"""The trainings that are compared: plain, under a layout, and FSDP2 with CPU offload; one loop for all."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from experiments.models import Batches, Gpt, GptShape
from runtime.device import SimDevice, TraceRecord, clock, memory_stats, reset_peak_memory, use_sim
from runtime.layout import report, wrap
from runtime.layout.deciding import Asked, Decided, decide
from runtime.layout.fsdp2 import shard_by
from runtime.layout.host_lane import host_lane
from runtime.layout.measuring import measure
from runtime.layout.report import LayoutReport
from runtime.layout.updates import CPU_UPDATES_PER_S
from runtime.ranks import run_ranks
from solvers.ir import Hardware, Limits
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.sentences import one_line
from solvers.layout.fsdp2 import Fsdp2Settings

SETTLED = 3
"""The step from which on times count: states are made in the first, and updates overlap from the third on."""


@dataclass(frozen=True)
class Where:
    """The simulated device, and how much its kernels' times vary."""

    hardware: Hardware
    noise: float = 0.0


@dataclass
class Trained:
    """What a training computed, on the CPU, and what it took.

    `step_us` is the mean without the first steps; `trace` are the last step's records; `host_bytes` what parameters,
    gradients and states take on the host; `pinned_bytes` the most page-locked memory; `told` what a layout says itself.
    """

    losses: list[float]
    parameters: dict[str, Tensor]
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]
    step_us: float
    peak_bytes: int
    reserved_bytes: int
    retries: int
    host_bytes: int
    pinned_bytes: int
    races: int = 0
    trace: list[TraceRecord] = field(default_factory=list)
    told: LayoutReport | None = None


def parameters_of(shape: GptShape) -> int:
    """How many numbers the model has."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Gpt(shape).parameters())


def train_plain(shape: GptShape, where: Where, steps: int) -> Trained:
    """As anyone trains, on a device that holds everything."""
    sim = _opened(where, None)
    model, optimizer = _built(shape, torch.device("sim:0"))
    return _trained(shape, model, optimizer, torch.device("sim:0"), steps, sim)


def decided(shape: GptShape, where: Where, solver: str, device_bytes: int, host_bytes: int) -> Decided | str:
    """Measures a step on a device of that size and has a solver decide; a sentence where nothing fits."""
    _opened(where, device_bytes)
    device = torch.device("sim:0")
    model, optimizer = _built(shape, None)
    batch = Batches(shape.batch, shape.context, shape.seed)[0]

    def step() -> None:
        """Holds what the loop holds: the batch and the loss count in the peak."""
        inputs, targets = (part.to(device) for part in batch)
        loss = model(inputs, targets)
        loss.backward()

    asked = Asked(device_bytes, host_bytes, None, solver, Limits(work=1.0), None, True)
    try:
        return decide(measure(model, step, device), model, optimizer, device, asked)
    except InfeasibleBudget as refused:
        return str(refused)
    except torch.OutOfMemoryError as error:
        return f"a step cannot be measured block by block: {one_line(error)}"


def train_laid_out(shape: GptShape, where: Where, steps: int, plan: Decided) -> Trained:
    """Under a layout, on a device that has what the layout was planned for."""
    problem = plan.problem
    sim = _opened(where, problem.device_bytes)
    model, optimizer = _built(shape, None)
    wrap(
        model, optimizer, budget=problem.device_bytes, host_budget=problem.host_bytes, plan=plan.plan,
        profile=plan.profile, device="sim:0",
    )  # fmt: skip
    done = _trained(shape, model, optimizer, torch.device("sim:0"), steps, sim)
    return replace(done, told=report(model))


def train_fsdp2(shape: GptShape, where: Where, steps: int, settings: Fsdp2Settings) -> Trained:
    """PyTorch's FSDP2 on one rank; what it updates on the host takes as long there as a layout's updates do."""

    def program(rank: int) -> Trained:
        dist.init_process_group("sim")
        device = torch.device("sim", rank)
        model = _model(shape)
        torch.manual_seed(shape.seed)
        shard_by(model, settings, init_device_mesh("sim", (1,)), device)
        optimizer = _optimizer(shape, model)
        numbers = sum(one.numel() for one in model.parameters() if one.device.type == "cpu")
        lane = host_lane(device)

        def update() -> None:
            lane.submit(optimizer.step, round(numbers / CPU_UPDATES_PER_S * 1e9), None, "update").wait()

        done = _trained(shape, model, optimizer, device, steps, None, update)
        dist.destroy_process_group()
        return done

    gc.collect()
    run = run_ranks(program, 1, hardware=where.hardware, noise=where.noise, races="record")
    (done,) = run.values
    return replace(done, races=len(run.races), pinned_bytes=run.sim.counters().pinned_peak_bytes)


def _opened(where: Where, capacity_bytes: int | None) -> SimDevice:
    gc.collect()  # what an earlier run left in circles would count in this one's memory
    torch.set_num_threads(1)  # sums in parallel come in another order
    sim = use_sim(where.hardware, capacity_bytes=capacity_bytes, noise=where.noise, races="record")
    sim.reset()
    return sim


def _model(shape: GptShape) -> Gpt:
    torch.manual_seed(shape.seed)
    return Gpt(shape)


def _built(shape: GptShape, device: torch.device | None) -> tuple[Gpt, torch.optim.Optimizer]:
    model = _model(shape)
    if device is not None:
        model = model.to(device)
    torch.manual_seed(shape.seed)
    return model, _optimizer(shape, model)


def _optimizer(shape: GptShape, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, fused=True)


def _trained(
    shape: GptShape,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    steps: int,
    sim: SimDevice | None,
    update: Callable[[], object] | None = None,
) -> Trained:
    """The loop: nothing in it knows how the model is kept."""
    batches, now_ns = Batches(shape.batch, shape.context, shape.seed), clock(device)
    losses, times, peak = [], [], 0
    traced = 0
    for step in range(steps):
        if sim is not None and step == steps - 1:
            sim.set_tracing(True)
            traced = len(sim.trace())
        reset_peak_memory(device)
        began = now_ns()
        inputs, targets = (part.to(device) for part in batches[step])
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        (update or optimizer.step)()
        losses.append(loss.item())
        del loss
        torch.accelerator.synchronize(device)
        times.append((now_ns() - began) / 1e3)
        peak = max(peak, memory_stats(device).peak_bytes) if step else peak
    trace = [] if sim is None else sim.trace()[traced:]
    if sim is not None:
        sim.set_tracing(False)
    stats, counted = memory_stats(device), times[SETTLED:]
    return Trained(
        losses,
        {_plain(name): _on_cpu(one) for name, one in model.named_parameters()},
        {_plain(name): _on_cpu(one.grad) for name, one in model.named_parameters() if one.grad is not None},
        {name: _on_cpu(one) for name, one in model.named_buffers()},
        sum(counted) / len(counted),
        peak,
        stats.reserved_peak_bytes,
        stats.retries,
        _host_bytes(model, optimizer),
        0 if sim is None else sim.counters().pinned_peak_bytes,
        0 if sim is None else len(sim.races()),
        trace,
    )


def _plain(name: str) -> str:
    """A parameter's name without what FSDP2's checkpoints put into it."""
    return name.replace("_checkpoint_wrapped_module.", "")


def _on_cpu(tensor: Tensor) -> Tensor:
    whole = tensor.detach()
    if isinstance(whole, DTensor):
        whole = whole.to_local()
    return whole.cpu().clone()


def _host_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Parameters, gradients and states that lie on the host."""
    held = [one for parameter in model.parameters() for one in (parameter, parameter.grad) if one is not None]
    held += [one for states in optimizer.state.values() for one in states.values() if isinstance(one, Tensor)]
    local = [one.to_local() if isinstance(one, DTensor) else one for one in held]
    return sum(one.nbytes for one in local if one.device.type == "cpu")
