"""What a machine has, and what a step of `make gpu` lacks there, in sentences; standard library only."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.gpu.wheels import carried

LEAST_TORCH = (2, 11)
ASKING_S = 60.0
MODULES: tuple[str, ...] = (
    *("torch", "msgspec", "numpy", "scipy", "click", "rich", "pytest", "pytest_timeout", "hypothesis", "hydra"),
    *("omegaconf", "networkx", "matplotlib", "jinja2", "simpy", "ortools", "highspy", "transformers", "trl"),
)
BASIC = ("torch", "msgspec")
"""What every step of ours imports."""
OURS = ("native", "sim", "cuda")
"""Needs that are no modules."""
ASK = """
import importlib.util, json, sys
modules = json.loads(sys.argv[1])
found = {"modules": [name for name in modules if importlib.util.find_spec(name) is not None]}
if "torch" in found["modules"]:
    try:
        import torch
        found["torch"] = torch.__version__
        found["cuda_build"] = torch.version.cuda
        found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    except Exception as error:
        found["torch_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
if {"torch", "msgspec"} <= set(found["modules"]) and "torch" in found:
    from runtime.device.native import why_missing
    found["native"], found["sim"] = why_missing("runtime._C"), why_missing("runtime._sim")
else:
    found["native"] = found["sim"] = "its sentence needs torch and msgspec"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Facts:
    """What Python finds on this machine. `native` and `sim` say why an extension is missing, None where it is there."""

    python: str
    modules: frozenset[str] = frozenset()
    torch: str | None = None
    cuda_build: str | None = None
    device: str | None = None
    native: str | None = None
    sim: str | None = None
    error: str | None = None

    def lacking(self, needs: Sequence[str]) -> list[str]:
        """A sentence for each of the needs that is not met: modules by name, `cuda`, `native`, `sim`."""
        said = [] if self.error is None else [self.error]
        if self.error is None and "torch" in needs and self.torch is None:
            said.append("torch (too large to be carried: install 2.11 or newer, for CUDA)")
        absent = [need for need in needs if need not in (*OURS, "torch") and need not in self.modules]
        gathered, other = ([need for need in absent if (need in carried()) is there] for there in (True, False))
        if gathered:
            said.append(f"{', '.join(gathered)} (not installed; what `make gpu-wheels` gathers can be carried here)")
        if other:
            said.append(f"{', '.join(other)} (not installed, and `make gpu-wheels` does not gather it: install it)")
        if said and set(needs) & set(OURS) and self.torch is None:
            return said
        return [*said, *(why for need in needs if need in OURS and (why := self._lack(need)) is not None)]

    def _lack(self, need: str) -> str | None:
        if need == "cuda":
            return self._no_cuda()
        extension, why = ("runtime._C", self.native) if need == "native" else ("runtime._sim", self.sim)
        return None if why is None else f"{extension} ({why})"

    def _no_cuda(self) -> str | None:
        if self.device is not None:
            return None if _release(self.torch) >= LEAST_TORCH else f"torch 2.11 or newer (this is {self.torch})"
        if self.torch is None:
            return "a CUDA device (there is no torch to look for one)"
        if self.cuda_build is None:
            return f"a CUDA device (torch {self.torch} is a build without CUDA)"
        return f"a CUDA device (torch {self.torch} finds none)"


def _release(version: str | None) -> tuple[int, ...]:
    """Major and minor number of a version such as 2.11.0+cu130."""
    return () if version is None else tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def facts(environment: Mapping[str, str], limit_s: float = ASKING_S) -> Facts:
    """What a fresh Python finds; a Python that fails or hangs is a fact, too."""
    version = sys.version.split()[0]
    words = [sys.executable, "-c", ASK, json.dumps(MODULES)]
    try:
        done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Facts(version, error=f"an answer from torch within {limit_s:.0f} s")
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return Facts(version, error=f"a torch that imports (Python ended with {done.returncode}: {said})")
    found = json.loads(done.stdout.splitlines()[-1])
    return Facts(
        version,
        frozenset(found["modules"]),
        found.get("torch"),
        found.get("cuda_build"),
        found.get("device"),
        found["native"],
        found["sim"],
        found.get("torch_error"),
    )
