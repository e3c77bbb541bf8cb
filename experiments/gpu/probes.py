"""First facts of a device that swapping depends on: one JSON file, written again after each probe.

    python3 -m experiments.gpu.probes OUT.json [--device sim]

Each probe is caught on its own, so that none hides another; what a device does not tell is said in a sentence.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.commands.outputs import writable
from experiments.gpu import memory_probes, speed_probes
from experiments.refusals import refusing
from runtime.device import accelerator
from runtime.device.native import core
from solvers.ir.errors import BayplanError

Probe = Callable[[torch.device], Mapping[str, Any]]


def versions(device: torch.device) -> Mapping[str, Any]:
    """Python, torch, and the device."""
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
    }


def native(device: torch.device) -> Mapping[str, Any]:
    """The extension, and whether CUDA's allocator will ask it when memory is short."""
    heard = core.listen_to_cuda() if device.type == "cuda" else "sim asks by itself"
    return {"built_for": core.torch_version, "allocator_asks": heard}


PROBES: Mapping[str, Probe] = {
    "versions": versions,
    "native": native,
    "memory_totals": memory_probes.memory_totals,
    "workspaces": memory_probes.workspaces,
    "block_sizes": memory_probes.block_sizes,
    "pinned_rounding": memory_probes.pinned_rounding,
    "refused_allocation": memory_probes.refused_allocation,
    "swap_round_trip": memory_probes.swap_round_trip,
    "event_costs": speed_probes.event_costs,
    "copies": speed_probes.copies,
    "products_of_ones_or_random": speed_probes.products,
    "side_stream": speed_probes.side_stream,
}
"""All of them in order: what must see an untouched allocator comes first."""


def run_probes(device: torch.device, out: Path, probes: Mapping[str, Probe] = PROBES) -> dict[str, Any]:
    """Every probe's answer, or what it raised, and its seconds."""
    found: dict[str, Any] = {}
    for name, probe in probes.items():
        began = time.perf_counter()
        try:
            answer: Mapping[str, Any] = probe(device)
        except BayplanError as error:
            answer = {"lacks": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:1500]}"}
        found[name] = {**answer, "seconds": round(time.perf_counter() - began, 3)}
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(found[name]), flush=True)
    return found


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Run all; 1 where one raised an error."""
    parser = argparse.ArgumentParser(prog="experiments.gpu.probes")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda")
    given = parser.parse_args(arguments)
    writable(given.out, "OUT")
    found = run_probes(accelerator(given.device), given.out)
    wrong = [name for name, answer in found.items() if "error" in answer]
    silent = [name for name, answer in found.items() if "lacks" in answer]
    print(f"{len(found) - len(wrong) - len(silent)} answers; {len(silent)} not told: {', '.join(silent) or 'none'}")
    if wrong:
        print(f"{len(wrong)} raised errors: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
