"""From a measured step to the layout that it gets: pack the chunks, have a solver decide."""

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import nn

from runtime.blocks.saved import GRANULE_BYTES
from runtime.device import limited_memory, memory_limit_bytes, memory_stats, sim_hardware
from runtime.layout.chunk import aligned
from runtime.layout.foreach import is_portioned
from runtime.layout.prediction import Members, copy_ns, layout_costs, narrowed
from runtime.layout.update_costs import counts_on_device, states_per_number, update_cost, widened_ns
from runtime.layout.updates import CPU_UPDATES_PER_S
from runtime.profile.calibration import calibrate
from runtime.profile.machine import by_direction
from runtime.profile.memory import MemoryProfile, ProfiledBlock, activation_peak_bytes, turn_bytes
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy
from solvers.ir.solution import Limits, Solution, Status
from solvers.planner import build_solver, layout_problem, pack_chunks, require_valid, solve
from solvers.timeline.layout_launched import LayoutCosts

if TYPE_CHECKING:
    from solvers.planner import Packing


@dataclass(frozen=True)
class Asked:
    """What the user said of memory and of who decides."""

    device_bytes: int
    host_bytes: int | None
    plan: LayoutPlan | None
    solver: str
    limits: Limits
    chunk_bytes: int | None
    overlap_update: bool
    compute_dtype: torch.dtype | None = None
    passes: int = 1
    """How many forwards' graphs are there at once."""


@dataclass(frozen=True)
class Decided:
    """A step's profile, the problem that it makes, and the plan; `solution` is None where the plan was given."""

    profile: MemoryProfile
    problem: LayoutProblem
    packing: "Packing"
    plan: LayoutPlan
    solution: Solution[LayoutPlan] | None
    sizes: tuple[int, int]
    """The bytes of a number on its way, and of a master."""
    passes: int = 1

    @property
    def members(self) -> tuple[tuple[str, ...], ...]:
        """The names of the parameters of each chunk."""
        names = [parameter.name for parameter in self.profile.parameters]
        return tuple(tuple(names[number] for number in chunk.parameters) for chunk in self.packing.chunks)

    @property
    def unused(self) -> tuple[str, ...]:
        """Parameters that the step uses nowhere."""
        return tuple(parameter.name for parameter in self.profile.unused)

    @property
    def states_bytes(self) -> int:
        """What chunks, buffers for them and unused parameters take of the device."""
        chunks = [self.problem.chunks[number] for number in self.plan.persistent]
        states = sum(self.problem.chunk_bytes + chunk.persistent_bytes for chunk in chunks)
        used = min(self.plan.buffers, len(self.problem.chunks) - len(self.plan.persistent))
        return states + used * self.problem.chunk_bytes + sum(one.bytes for one in self.profile.unused)

    def peak_bytes(self, growth: float = 1.0) -> int:
        """The most that the device will hold in a step, by the profile of every moment.

        With `growth`, of a step in which what is neither a state nor there all the time takes so many times as much.
        """
        policies, interval = self.plan.policies[1:-1], self.problem.interval
        return self._with_states(activation_peak_bytes(self.profile, policies, interval), growth)

    def storing_least(self) -> "Decided":
        """The same where every block is checkpointed."""
        policies = self.plan.policies
        checkpoints: list[Policy] = ["checkpoint"] * (len(policies) - 2)
        least = policies[0], *checkpoints, policies[-1]
        return replace(self, plan=msgspec.structs.replace(self.plan, policies=least))

    def behind_peak_bytes(self, growth: float = 1.0) -> int:
        """The same between the last block's forward and its backward."""
        policies, interval = self.plan.policies[1:-1], self.problem.interval
        return self._with_states(turn_bytes(self.profile, policies, interval)[0], growth)

    def _with_states(self, activations: int, growth: float) -> int:
        """With what graphs of forwards before hold."""
        held, fixed = (
            turn_bytes(self.profile, self.plan.policies[1:-1], self.problem.interval)[1],
            self.profile.fixed_bytes,
        )
        held = activations - fixed + (self.passes - 1) * held
        return self.states_bytes + fixed + int(held * min(growth, MOST_GROWTH))


MOST_GROWTH = 1e6
"""Where a step has grown by more, or nobody knows by how much, nothing fits."""
MEASURING_BYTES = 256 << 20
"""What measuring a device may take of it: more than its caches hold, and little beside a model."""


def hardware_of(device: torch.device) -> Hardware:
    """What the device can do: of sim as it was set up, of others measured when it is first asked.

    Layouts know no link that both directions share: one that was measured so (on a busy machine) counts as two.
    """
    return sim_hardware() if device.type == "sim" else by_direction(_calibrated(device))


@cache
def _calibrated(device: torch.device) -> Hardware:
    """Measured beside what is there; the device's peak counts anew then."""
    room = memory_stats(device).reserved_bytes + MEASURING_BYTES
    with limited_memory(device, min(room, memory_limit_bytes(device))):
        found = calibrate(device)
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats(device)
    whole = msgspec.structs.replace(found.devices[0], memory_bytes=memory_limit_bytes(device))
    return msgspec.structs.replace(found, devices=(whole, *found.devices[1:]))


def decide(
    profile: MemoryProfile,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    asked: Asked,
) -> Decided:
    """The layout of a profiled step.

    Raises `InfeasibleBudget` with the least device and host memory where neither is enough, `InvalidInput` where a
    given plan is none of this step's.
    """
    parameters = [(one.name, aligned(one.bytes), one.blocks, one.trainable) for one in profile.parameters]
    packing = pack_chunks(parameters, asked.chunk_bytes)
    size, wide = _sizes(model, asked.compute_dtype)
    hardware = hardware_of(device)
    problem = layout_problem(
        hardware,
        name=f"{profile.name} on {hardware.name}",
        blocks=tuple(_figures(profile, hardware, asked.passes)),
        moved_bytes=((), *(block.own_bytes for block in profile.blocks), ()),
        packing=packing,
        device_bytes=asked.device_bytes,
        host_bytes=_host_bytes(hardware) if asked.host_bytes is None else asked.host_bytes,
        fixed_bytes=profile.fixed_bytes + sum(one.bytes for one in profile.unused),
        parameter_bytes=size,
        state_bytes=states_per_number(optimizer) * wide / size,
        stays_bytes=1.0 if size == wide else 2 * wide / size,
        away_bytes=2.0 if size == wide else 2 + 2 * wide / size,
        counter_bytes=GRANULE_BYTES if counts_on_device(optimizer) else 0,
        frozen_bytes=0.0 if size == wide else wide / size,
        overlap_update=asked.overlap_update,
        cpu_updates_per_s=CPU_UPDATES_PER_S if size == wide else int(1e9 / widened_ns(size)),
    )
    if asked.plan is not None:
        _require_fitting(problem, asked.plan)
        return Decided(profile, problem, packing, asked.plan, None, (size, wide), asked.passes)
    solution = solve(build_solver(asked.solver, {}), problem, asked.limits).solution
    if solution.status is Status.INFEASIBLE:
        raise InfeasibleBudget(solution.reason or "no layout fits", solution.least_budget_bytes)
    if solution.plan is None:
        raise InvalidInput(f"{asked.solver} found no layout ({solution.reason}): choose another solver")
    return Decided(profile, problem, packing, solution.plan, solution, (size, wide), asked.passes)


def costs_of(
    decided: Decided, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> LayoutCosts | None:
    """What the plan's actions cost, where the device tells; persistent chunks are updated once for it, on the device.

    None also for an optimizer that is not known to be one of PyTorch's, which is not tried out. To be asked while
    nothing has been moved.
    """
    if not is_portioned(optimizer):
        return None
    size, wide = decided.sizes
    named, hardware = dict(model.named_parameters()), hardware_of(device)
    members = Members(
        names=decided.members,
        chunk_bytes=[chunk.bytes for chunk in decided.packing.chunks],
        parameter_bytes=size,
        master_bytes=wide,
        host_ns=1e9 / CPU_UPDATES_PER_S if size == wide else widened_ns(size),
    )
    updates = {}
    for number in decided.plan.persistent if decided.profile.first.forward is not None else ():
        own = [named[name] for name in decided.members[number]]
        updates[number] = update_cost(optimizer, own, device).then(narrowed(hardware, own, size, wide))
    return layout_costs(decided.profile, hardware, decided.plan, members, updates)


def _sizes(model: nn.Module, dtype: torch.dtype | None) -> tuple[int, int]:
    """The bytes of a number on its way, and of a master."""
    wide = max(parameter.element_size() for parameter in model.parameters())
    return wide if dtype is None else dtype.itemsize, wide


def _require_fitting(problem: LayoutProblem, plan: LayoutPlan) -> None:
    if len(plan.policies) != len(problem.blocks):
        raise InvalidInput(
            f"the plan has policies for {len(plan.policies)} blocks, but this step has {len(problem.blocks)} (what "
            "runs before and behind the model's blocks counts): plan for this model"
        )
    require_valid(problem, plan, "the given plan")


def _figures(
    profile: MemoryProfile, hardware: Hardware, passes: int
) -> list[tuple[str, bool, tuple[int, int, int, int, int, int]]]:
    """Each block's choice and figures, of so many passes at once; backward with its gradients' moves."""
    last = len(profile.blocks) + 1
    first, behind = (_without_loads(profile, *one, hardware) for one in ((profile.first, 0), (profile.last, last)))
    moves = defaultdict[int, float](float)
    for one in profile.parameters:
        if one.trainable:
            moves[one.blocks[0]] += hardware.device().launch_us + copy_ns(hardware, 2 * one.bytes) / 1000
    blocks = [(first, False), *((block, not block.frozen) for block in profile.blocks), (behind, False)]
    return [
        _block(replace(block, backward_us=block.backward_us + round(moves[number])), choice, passes)
        for number, (block, choice) in enumerate(blocks)
    ]


def _without_loads(profile: MemoryProfile, edge: ProfiledBlock, number: int, hardware: Hardware) -> ProfiledBlock:
    """What runs around the blocks, without the loads of its parameters where these were measured with it."""
    if edge.forward is not None:
        return edge
    link = hardware.link(HOST, hardware.device().name)
    loads = sum(link.transfer_us(one.bytes) for one in profile.parameters if number in one.blocks)
    return replace(edge, forward_us=max(0, edge.forward_us - loads))


def _block(one: ProfiledBlock, choice: bool, passes: int) -> tuple[str, bool, tuple[int, int, int, int, int, int]]:
    figures = (
        one.forward_us,
        one.backward_us,
        one.activation_bytes * passes,
        one.input_bytes * passes,
        one.forward_transient_bytes,
        one.backward_transient_bytes,
    )
    return one.name, choice, figures


def _host_bytes(hardware: Hardware) -> int:
    """The host's memory by the hardware file, else what this machine has."""
    for device in hardware.devices:
        if device.name == HOST:
            return device.memory_bytes
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
