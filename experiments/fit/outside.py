"""Memory of a device that no tensor owns: assumed unless measured, and always told as a figure of its own."""

from dataclasses import dataclass

from solvers.ir.hardware import Hardware

MIB = 1 << 20
ASSUMED, GIVEN, NONE = "assumed", "given", "none: the simulated device has no driver"
CONTEXT_BYTES = 512 * MIB
"""A CUDA context with PyTorch's kernels loaded."""
CUBLAS_BYTES = 8 * MIB + 128 * 1024
"""cuBLAS's workspace of one handle and stream, as PyTorch sets it (`:4096:2:16:8`)."""
CUBLAS_HOPPER_BYTES = 32 * MIB
HOPPER = ("h100", "h200", "gh200", "h800", "h20")
NO_CUDA = ("ascend", "910b")
"""Devices of which no more is assumed than a context of the same size."""
CUDNN_BYTES = 64 * MIB
"""Workspaces that cuDNN and cuBLASLt take where a kernel asks for them."""
NCCL_BYTES = 256 * MIB
"""Buffers of NCCL's channels, where a step has several devices."""


@dataclass(frozen=True)
class Outside:
    """Bytes by what takes them, and how they are known: `assumed`, `given`, or none at all."""

    parts: dict[str, int]
    how: str

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())

    @property
    def sentence(self) -> str:
        """How it is known, for people."""
        if self.how == ASSUMED:
            return "assumed, not measured; --outside sets it"
        return "as given by --outside" if self.how == GIVEN else "the simulated device has no driver"


def outside_of(hardware: Hardware, devices: int = 1, given_bytes: int | None = None) -> Outside:
    """What no tensor owns on the first device of this hardware, where a step runs on `devices` of them."""
    if given_bytes is not None:
        return Outside({"given": given_bytes}, GIVEN)
    names = f"{hardware.name} {hardware.device().name}".lower()
    if hardware.device().name == "sim" or hardware.name.startswith("sim-"):
        return Outside({}, NONE)
    if any(name in names for name in NO_CUDA):
        return Outside({"driver context": CONTEXT_BYTES}, ASSUMED)
    hopper = any(name in names for name in HOPPER)
    parts = {
        "CUDA context": CONTEXT_BYTES,
        "cuBLAS workspace": CUBLAS_HOPPER_BYTES if hopper else CUBLAS_BYTES,
        "cuDNN and cuBLASLt": CUDNN_BYTES,
    }
    return Outside(parts | ({"NCCL": NCCL_BYTES} if devices > 1 else {}), ASSUMED)
