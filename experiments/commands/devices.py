"""The device that `profile` and `calibrate` work on."""

from typing import TYPE_CHECKING

from experiments.hardware import read_hardware
from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "sim", "cuda")
DEVICE_HELP = "cpu, sim or cuda; cuda where there is one, else sim, unless given."
SIM_HARDWARE = "sim-small"
"""What the simulated device models unless told."""


def require_device(device: str | None, hardware: str | None) -> None:
    """Refuse an unknown device, and hardware for a device that has its own."""
    if device is not None and device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if hardware is not None and device not in (None, "sim"):
        raise InvalidInput(f"--hardware is what device sim models, but --device is {device}: leave one of them out")


def ready(device: str | None, hardware: str | None) -> "torch.device":
    """The device, ready to use; raises `InvalidInput` where it is not there."""
    import torch

    from runtime.device import accelerator, use_sim

    if device is None:
        device = "cuda" if hardware is None and torch.cuda.is_available() else "sim"
    if device == "sim":
        return use_sim(read_hardware(hardware or SIM_HARDWARE)).device
    return accelerator("cuda" if device == "cuda" else "cpu")
