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
WITHOUT_END_BYTES = 1 << 50
"""The simulated device's memory where its need is asked, and not whether it fits."""


def require_device(device: str | None, hardware: str | None, *, shapes_only: bool = False) -> None:
    """Refuse an unknown device, hardware for a device that has its own, and shapes only where kernels are real."""
    if device is not None and device.lower() == "gpu":
        raise InvalidInput(f"there is no device {device!r}: did you mean 'cuda'?")  # cpu is nearer by its letters only
    if device is not None and device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if hardware is not None and device not in (None, "sim"):
        raise InvalidInput(f"--hardware is what device sim models, but --device is {device}: leave one of them out")
    if shapes_only and device not in (None, "sim"):
        raise InvalidInput(f"--shapes-only is a mode of device sim, but --device is {device}: leave one of them out")


def chosen(device: str | None, hardware: str | None, *, shapes_only: bool = False) -> str:
    """The device that was asked for, or the one that these options mean."""
    import torch

    if device is not None:
        return device
    return "cuda" if hardware is None and not shapes_only and torch.cuda.is_available() else "sim"


def one_thread() -> None:
    """Let simulated kernels compute in one thread, whatever the machine, as `compare` does.

    Some take more memory with more threads (convolutions): a graph, and what fits, would depend on who asks. To be
    called before the first backward pass, whose thread keeps what it finds.
    """
    import torch

    torch.set_num_threads(1)


def ready(device: str | None, hardware: str | None, *, shapes_only: bool = False) -> "torch.device":
    """The device, ready to use; raises `InvalidInput` where it is not there."""
    from runtime.device import accelerator, use_sim

    device = chosen(device, hardware, shapes_only=shapes_only)
    if device == "sim":
        one_thread()
        capacity = WITHOUT_END_BYTES if shapes_only else None
        return use_sim(read_hardware(hardware or SIM_HARDWARE), capacity_bytes=capacity, shapes_only=shapes_only).device
    return accelerator("cuda" if device == "cuda" else "cpu")
