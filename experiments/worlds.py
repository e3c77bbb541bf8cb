"""Worlds in which a policy is executed: a device, its hardware, and how noisy it is."""

import gc
from dataclasses import dataclass

import msgspec
import torch

from experiments.config import AllocatorKind, DeviceKind, HardwareConf
from experiments.hardware import read_hardware
from runtime.device import CachingAllocator, accelerator, reset_peak_memory, use_sim
from runtime.device.native import load
from solvers.ir import Hardware, InvalidInput

GB = 10**9
SIMULATED = "sim-"
"""How the names of the shipped hardware files begin that no machine stands behind."""


@dataclass(frozen=True)
class World:
    """One device as a run finds it.

    Of `sim` only: `noise` varies each kernel's time by up to that fraction, `allocator` says how memory is given out.
    """

    kind: DeviceKind
    hardware: Hardware
    noise: float = 0.0
    seed: int = 0
    allocator: AllocatorKind = AllocatorKind.exact

    def open(self, capacity_bytes: int | None = None) -> torch.device:
        """The device with this much memory (all that its hardware has, unless given), its clocks and peaks at zero.

        What an earlier run left unreachable is freed first. A CUDA device keeps its own clock and noise, and its
        allocator refuses what would go beyond the capacity.
        """
        gc.collect()
        if self.kind is DeviceKind.sim:
            return use_sim(
                self.hardware,
                capacity_bytes=capacity_bytes,
                noise=self.noise,
                seed=self.seed,
                allocator=self._segments or "exact",
            ).device
        device = accelerator("cuda")
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.empty_cache()
        share = 1.0 if capacity_bytes is None else min(1.0, capacity_bytes / total)
        torch.cuda.set_per_process_memory_fraction(share, device)
        reset_peak_memory(device)
        return device

    @property
    def _segments(self) -> CachingAllocator | None:
        if self.allocator is AllocatorKind.exact:
            return None
        return CachingAllocator(expandable_segments=self.allocator is AllocatorKind.expandable)

    def require(self) -> None:
        """Refuse a device that is not there, without touching it; raises `InvalidInput`."""
        if self.kind is DeviceKind.sim:
            load("runtime._sim")
        else:
            accelerator("cuda")

    @property
    def name(self) -> str:
        """What executed, for provenance."""
        noise = f", noise ±{self.noise:.0%} with seed {self.seed}" if self.noise else ""
        if self.kind is DeviceKind.cuda:
            return f"executed on {torch.cuda.get_device_name()}, torch {torch.__version__}"
        segments = "" if self._segments is None else f", allocator {self.allocator.value}"
        return f"sim-executed, hardware {self.hardware.name}{segments}{noise}, torch {torch.__version__}"


def require_world(kind: DeviceKind, conf: HardwareConf, allocator: AllocatorKind = AllocatorKind.exact) -> None:
    """Refuse a device or a hardware file that is not there, without touching the device; raises `InvalidInput`.

    Refused as well are plans for a real device by the numbers of a simulated one, unless the file's path asks for them.
    """
    World(kind, load_hardware(conf)).require()
    if kind is DeviceKind.cuda and allocator is not AllocatorKind.exact:
        raise InvalidInput(
            f"allocator={allocator.value} is a mode of the simulated device, and CUDA has its own: leave it out, and "
            "for segments that grow set PYTORCH_ALLOC_CONF=expandable_segments:True in the environment"
        )
    if kind is DeviceKind.cuda and conf.file.startswith(SIMULATED):
        raise InvalidInput(
            f"hardware {conf.file!r} is what the simulated device models, and plans by it fit no GPU: measure this one "
            "(bayplan calibrate --device cuda --out FILE), then say hardware.file=FILE"
        )


def load_hardware(conf: HardwareConf) -> Hardware:
    """The hardware that the settings name, with their link rate; raises `InvalidInput` where there is no such file."""
    hardware = read_hardware(conf.file)
    if conf.link_gb_per_s is None:
        return hardware
    if not hardware.links:
        raise InvalidInput(f"hardware {hardware.name!r} has no link whose rate could be set: leave out link_gb_per_s")
    return with_link(hardware, conf.link_gb_per_s)


def with_link(hardware: Hardware, gb_per_s: float) -> Hardware:
    """The same hardware with all links at another rate, and a name that says so."""
    links = tuple(msgspec.structs.replace(link, bytes_per_s=round(gb_per_s * GB)) for link in hardware.links)
    return msgspec.structs.replace(hardware, name=f"{hardware.name}, link {gb_per_s:g} GB/s", links=links)
