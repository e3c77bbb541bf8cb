"""What updates cost, on the device and on the host, and what states they keep."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from runtime.layout.gradients import ADDING_BYTES_PER_S
from runtime.layout.masters import settle_states
from runtime.layout.optimizers import raw_step
from runtime.layout.updates import CPU_UPDATES_PER_S
from runtime.profile.memory.charges import Charges
from solvers.timeline.cost import NOTHING, Cost


def widened_ns(size_bytes: int) -> float:
    """What the host does for a number of so many bytes on sim whose master is wider: it is added or copied, updated."""
    return 3 * size_bytes * 1e9 / ADDING_BYTES_PER_S + 1e9 / CPU_UPDATES_PER_S


def update_cost(optimizer: Optimizer, parameters: Sequence[nn.Parameter], device: torch.device) -> Cost:
    """What updating parameters costs on a device that tells, measured on others of their shapes.

    In the second of two steps, as the first one makes states. Asked only of an optimizer whose states and steps are
    known (`is_portioned`): another one's step may draw random numbers or count itself.
    """
    charges, cost = Charges(device), NOTHING
    shadow: Optimizer = object.__new__(type(optimizer))
    shadow.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    others = {id(one): _other(one, device) for one in parameters if one.requires_grad}
    groups = [
        dict(group, params=[others[id(one)] for one in group["params"] if id(one) in others])
        for group in optimizer.param_groups
    ]
    shadow.param_groups = [group for group in groups if group["params"]]
    shadow.state = defaultdict(dict)
    for one in parameters:
        if (known := optimizer.state.get(one)) and id(one) in others:  # loaded, or made with the optimizer (Adagrad's)
            shadow.state[others[id(one)]] = {key: _copied(value) for key, value in known.items()}
    settle_states(shadow)
    for _ in range(2):
        charges.to(None)
        with torch.no_grad():
            raw_step(optimizer)(shadow)
        cost = charges.cost_so_far()
    return cost


def _copied(value: object) -> object:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _other(parameter: nn.Parameter, device: torch.device) -> nn.Parameter:
    other = nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device=device).zero_())
    other.grad = torch.zeros_like(other)
    return other


STATES = {"SGD": 0, "Adagrad": 1, "RMSprop": 1, "Adadelta": 2, "Rprop": 2, "ASGD": 1}
"""States as large as the parameter that an optimizer keeps at least; others are taken to keep two, as Adam does."""


def states_per_number(optimizer: Optimizer) -> int:
    """How many numbers of state an optimizer keeps for each number of a parameter."""
    groups = optimizer.param_groups
    more = any(group.get("momentum") or group.get("amsgrad") for group in groups)
    return STATES.get(type(optimizer).__name__, 2) + more + any(group.get("centered") for group in groups)


def counts_on_device(optimizer: Optimizer) -> bool:
    """Whether the optimizer keeps the number of its steps where the parameter lies, in a tensor for each."""
    return any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
