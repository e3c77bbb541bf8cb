"""Prints how PyTorch's samples run on device sim against the CPU: `python -m tests.csrc.sim.opinfo --help`."""

import argparse
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from experiments.machine import machine
from experiments.rows import commit
from runtime.device import use_sim
from tests.csrc.sim.opinfo.programs import Program
from tests.csrc.sim.opinfo.report import document, page, write
from tests.csrc.sim.opinfo.sweep import MODULES, WAYS, WRONG, Plan, programs, sweep


def main() -> int:
    """Runs the sweep that the command line asks for; 1 where something differs."""
    asked = _arguments()
    dtypes = tuple(getattr(torch, name) for name in asked.dtypes.split(","))
    samples = None if asked.samples == 0 else asked.samples
    plan = Plan(dtypes, samples, frozenset(asked.ways.split(",")), asked.operators)
    warnings.simplefilter("ignore")
    use_sim(capacity_bytes=16 << 30)
    start = time.monotonic()
    tally = sweep(_told(programs(plan)) if asked.verbose else programs(plan))
    computer = machine()
    provenance = {
        "command": "python -m tests.csrc.sim.opinfo " + " ".join(sys.argv[1:]),
        "commit": commit(),
        "machine": f"{computer['cores']}-core {computer['processor']} CPU, torch {computer['torch']}",
        "seconds": round(time.monotonic() - start),
    }
    found = document(tally, provenance)
    print(page(found))
    if asked.out is not None:
        write(found, asked.out)
    return 1 if tally.different else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.csrc.sim.opinfo", description=__doc__)
    parser.add_argument("--operators", default=".", help="regular expression of operators and modules")
    parser.add_argument("--samples", type=int, default=1, help="of each operator and type; 0: all")
    parser.add_argument("--dtypes", default="float32", help="names of torch's types, separated by commas")
    parser.add_argument("--ways", default=",".join((*WAYS, MODULES, WRONG)))
    parser.add_argument("--out", type=Path, help="folder for README.md and sweep.json")
    parser.add_argument("--verbose", action="store_true", help="names every program before it runs")
    return parser.parse_args()


def _told(chosen: Iterable[Program]) -> Iterator[Program]:
    for program in chosen:
        print(program, file=sys.stderr, flush=True)
        yield program


if __name__ == "__main__":
    sys.exit(main())
