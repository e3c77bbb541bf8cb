"""Profiles the memory of one training step: everything that a configuration's peak is reconstructed from."""

import logging
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from runtime.blocks.blocks import find_blocks
from runtime.blocks.on_demand import OnDemand, Resident, states_on_host
from runtime.device import memory_stats
from runtime.device.settling import settled
from runtime.profile.memory.doubts import doubts_of
from runtime.profile.memory.observing import Observer
from runtime.profile.memory.parameters import first_uses, ordered_parameters
from runtime.profile.memory.profile import MemoryProfile
from runtime.profile.memory.reading import Reader
from runtime.profile.place import place_of
from runtime.profile.recording import detailed_recording
from runtime.storage.garbage import without_collector
from solvers.ir.errors import InvalidInput

LOG = logging.getLogger("bayplan.memory")


def profile_memory(
    model: nn.Module,
    step: Callable[[], object],
    device: torch.device | str,
    *,
    name: str = "step",
    optimizer: torch.optim.Optimizer | None = None,
    warmup: int = 1,
    on_demand: bool = False,
) -> MemoryProfile:
    """What one call of `step`, one forward and one backward of `model`, holds on the device, and for how long.

    Every block is checkpointed meanwhile, so that the trace shows each block's forward with and without what it saves.
    `step` is called `warmup` times before, as it is; all calls train for real. `optimizer` tells which bytes are its
    states. `on_demand` keeps parameters, gradients and inputs of blocks off the device except while they are used, for
    a model that is larger than it (and may lie on the CPU before); then no call trains, as gradients are dropped.

    A step whose memory may be another one's the next time is warned of, and `remarks()` of the profile says so: blocks
    that were not called, and operators whose results are as large as the data's values say.

    Raises `InvalidInput` where the model has no repeated blocks, the device is a CPU, the step does not train the
    model, or the program checkpoints blocks by itself; what `step` raises passes through.
    """
    place = place_of(device)
    if place.type == "cpu":
        raise InvalidInput(
            "device cpu keeps no memory statistics: profile memory on an accelerator, such as sim or cuda"
        )
    blocks = find_blocks(model)
    if on_demand:
        with states_on_host(model, place):
            demand = OnDemand(model, list(blocks.values()))
            for _ in range(warmup):
                with Observer(model, blocks, place, demand).watching():
                    step()
            return _traced(model, blocks, place, demand, step, name, optimizer)
    for _ in range(warmup):
        step()
    return _traced(model, blocks, place, Resident(), step, name, optimizer)


def _traced(
    model: nn.Module,
    blocks: dict[str, nn.Module],
    place: torch.device,
    demand: Resident,
    step: Callable[[], object],
    name: str,
    optimizer: torch.optim.Optimizer | None,
) -> MemoryProfile:
    demand.begin()
    observer = Observer(model, blocks, place, demand)
    torch.accelerator.synchronize(place)
    settled(lambda: memory_stats(place).allocated_bytes)
    with without_collector(), detailed_recording(place, timed=False) as recorder, observer.watching():
        step()
    _require_trained(model, observer)
    modules = [blocks[call.name] for call in observer.calls]
    parameters, unused = ordered_parameters(model, modules, first_uses(recorder, model))
    doubts = doubts_of(recorder, blocks, {call.name for call in observer.calls})
    for doubt in doubts:
        LOG.warning("%s", doubt)
    return replace(Reader(observer).profile(name, parameters, unused, optimizer), doubts=doubts)


def _require_trained(model: nn.Module, observer: Observer) -> None:
    name, calls = type(model).__name__, observer.calls
    if calls and "forward" not in observer.events:
        raise InvalidInput(
            f"the step calls blocks of {name}, but never the model itself: give the module that the step calls"
        )
    if not calls:
        raise InvalidInput(
            f"the step calls no block of {name} with gradients on: profile a step that trains this model"
        )
    missing = next((call for call in calls if call.needs_gradient and "backward" not in call.events), None)
    if missing is not None:
        raise InvalidInput(
            f"block {missing.name} of {name} has no backward in the step, though what it computes needs gradients: "
            "profile a step whose loss depends on every block that is trained"
        )
