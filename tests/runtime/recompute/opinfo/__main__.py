"""Prints how PyTorch's samples run on a tape: `python -m tests.runtime.recompute.opinfo --help`."""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from experiments.machine import machine
from experiments.rows import commit
from runtime.device import use_sim
from tests.runtime.recompute.opinfo.parts import sweep_in_parts
from tests.runtime.recompute.opinfo.report import document, page, write
from tests.runtime.recompute.opinfo.sweep import Plan


def main() -> int:
    """Runs the sweep that the command line asks for; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.recompute.opinfo", description=__doc__)
    parser.add_argument("--operators", default=".", help="regular expression of operators and modules")
    parser.add_argument("--samples", type=int, default=1, help="of each operator and type; 0: all")
    parser.add_argument("--dtypes", default="float32", help="names of torch's types, separated by commas")
    parser.add_argument("--devices", default="cpu,sim")
    parser.add_argument("--out", type=Path, help="folder for README.md and sweep.json")
    parser.add_argument("--parts", type=int, default=1, help="into how many the operators are divided")
    parser.add_argument("--kept", type=Path, help="folder of parts that have run: a sweep that was cut off goes on")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    use_sim(capacity_bytes=16 << 30)
    dtypes = tuple(getattr(torch, name) for name in asked.dtypes.split(","))
    plan = Plan(dtypes, asked.samples or None, asked.operators)
    devices = asked.devices.split(",")
    question = {"dtypes": asked.dtypes, "samples": asked.samples, "operators": asked.operators, "commit": commit()}
    with tempfile.TemporaryDirectory() as passing:
        folder = asked.kept or Path(passing)
        try:
            found = {device: sweep_in_parts(plan, device, asked.parts, folder, question) for device in devices}
        except ValueError as error:
            parser.error(str(error))
    computer = machine()
    provenance = {
        "command": "python -m tests.runtime.recompute.opinfo " + " ".join(sys.argv[1:]),
        "commit": commit(),
        "machine": f"{computer['cores']}-core {computer['processor']} CPU, torch {computer['torch']}",
        "processor seconds": round(sum(seconds for _, seconds in found.values())),
    }
    tallies = {device: tally for device, (tally, _) in found.items()}
    told = document(tallies, provenance)
    print(page(told))
    if asked.out is not None:
        write(told, asked.out)
    return int(any(tally.different or tally.refused for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
