"""`python -m experiments.recompute`: the race on the simulated device, by shapes; rows and a table into a folder."""

import argparse
import json
from pathlib import Path

import torch

from experiments.recompute.models import MODELS, TINY, Size
from experiments.recompute.page import page
from experiments.recompute.race import Ran, race
from experiments.recompute.ways import SHARES
from runtime.device import use_sim


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m experiments.recompute", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder for rows.jsonl and table.md")
    parser.add_argument("--hardware", default="conf/hardware/a100-sxm-80.json", help="the device's file")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL")
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES), help="budgets, of plain's peak")
    parser.add_argument("--rivals", type=Path, help="rows.jsonl of an earlier run, whose rivals are not run again")
    parser.add_argument("--tiny", action="store_true", help="tiny models, every byte computed")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    device = use_sim(hardware=given.hardware, shapes_only=not given.tiny, races="off").device
    given.out.mkdir(parents=True, exist_ok=True)
    known = [] if given.rivals is None else [Ran(**json.loads(line)) for line in given.rivals.read_text().splitlines()]
    rows = race(
        given.models, TINY if given.tiny else Size(), device, given.out / "rows.jsonl",
        lambda row: print(row.model, row.way, row.share, row.step_us, row.peak_bytes, row.error or "", flush=True),
        given.shares, known,
    )  # fmt: skip
    (given.out / "table.md").write_text(page(rows))


if __name__ == "__main__":
    main()
