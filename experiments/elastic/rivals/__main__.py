"""`python -m experiments.elastic.rivals`: the same job and kills under Bayplan, torchrun and torchft.

Each way runs twice, without failures and with them: what each failure cost, how many steps were made again, whether
losses are those without failures. torchft takes part where it is installed (pip install torchft), else the page says
so.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import torch

from experiments.elastic.rivals.page import page, row_of
from experiments.elastic.rivals.runs import Loss, Ran, has_torchft, ran, torchft, torchrun
from experiments.elastic.rivals.stage import Asked
from experiments.progress import stages
from experiments.refusals import refusing
from experiments.run_directory import open_run_directory
from runtime.elastic import Options, Outcome, load_job, parse_kills, train
from solvers.ir import Row
from solvers.ir.errors import InvalidInput

KILLS = "2@8.forward, 5@17.backward.stop"
WAYS = ("bayplan", "torchrun", "torchft")


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen ways; rows and page into `--out`."""
    told = _parser().parse_args(arguments)
    injections, joins = parse_kills(told.kills)
    asked = Asked(
        job=told.job, nodes=told.nodes, pipeline=told.pipeline, steps=told.steps, every=told.every, hang_s=told.hang_s,
        kills=injections,
    )  # fmt: skip
    _require(asked, bool(joins))
    directory = open_run_directory("rivals", str(told.out))
    rows: list[Row] = []
    with stages(2 * len(told.ways)) as shown:
        for way in told.ways:
            if way == "torchft" and not has_torchft():
                rows.append(row_of(way, asked, None, None, "not installed here: pip install torchft"))
                continue
            with shown.stage(f"{way}, no failures"):
                plain = _run(way, msgspec.structs.replace(asked, kills=()), directory.path / way / "plain")
            with shown.stage(f"{way}, failures"):
                failed = _run(way, asked, directory.path / way / "failures")
            rows.append(row_of(way, asked, plain, failed))
            directory.rows(rows)
    directory.rows(rows)
    text = page(rows)
    directory.text("table.md", text)
    print(text, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.elastic.rivals", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder for rows.jsonl, table.md and all logs")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--job", default="experiments.elastic.llama:job", help="MODULE:FACTORY")
    parser.add_argument("--nodes", type=int, default=8, help="processes")
    parser.add_argument("--pipeline", type=int, default=2, help="stages of a pipeline")
    parser.add_argument("--steps", type=int, default=26, help="training steps")
    parser.add_argument("--every", type=int, default=5, help="torchrun's checkpoints: one each so many steps")
    parser.add_argument("--hang-s", type=float, default=5.0, help="a process silent for so long has failed")
    parser.add_argument("--kills", default=KILLS, help=f"NODE@STEP.forward or .backward, with .stop; default: {KILLS}")
    return parser


def _require(asked: Asked, joins: bool) -> None:
    """What the rivals' script can do: alike pipelines, failures in a pass."""
    for name in ("nodes", "pipeline", "steps", "every"):
        if getattr(asked, name) < 1:
            raise InvalidInput(f"--{name} is {getattr(asked, name)}: give at least 1")
    if asked.hang_s < 0.5:
        raise InvalidInput(f"--hang-s is {asked.hang_s}: give at least 0.5")
    load_job(asked.job, torch.device("cpu"))
    if asked.nodes % asked.pipeline:
        raise InvalidInput(f"--nodes is {asked.nodes}, which pipelines of {asked.pipeline} do not divide")
    if joins:
        raise InvalidInput("--kills names joins, but a rival's launcher starts processes itself: name failures only")
    for one in asked.kills:
        if one.moment not in ("forward", "backward") or one.nth != 1:
            raise InvalidInput(f"--kills names {one.moment}:{one.nth}, but scripts fail in forward or backward only")
        if one.node >= asked.nodes or one.step >= asked.steps:
            raise InvalidInput(
                f"--kills names node {one.node} in step {one.step}, but there are {asked.nodes} nodes and "
                f"{asked.steps} steps, both from 0"
            )


def _run(way: str, asked: Asked, folder: Path) -> Ran:
    """One training, with or without failures."""
    if way == "bayplan":
        return _bayplan(asked, folder)
    return ran(partial(torchrun if way == "torchrun" else torchft, asked), asked, folder)


def _bayplan(asked: Asked, folder: Path) -> Ran:
    """Sums in fixed point, as the comparison of losses is of bits; a process that ended is replaced after two steps."""
    joins = {one.step + 1: ["return" if one.how == "stop" else "fresh"] for one in asked.kills}
    options = Options(
        canonical=True, hang_s=asked.hang_s, timeout_s=4 * asked.hang_s, run_dir=folder, injections=asked.kills,
        joins=joins,
    )  # fmt: skip
    done = train(asked.job, nodes=asked.nodes, steps=asked.steps, pipeline=asked.pipeline, options=options)
    return Ran(dict(enumerate(done.losses)), done.median_step_us(), _costs(done, asked), len(done.nodes), {})


def _costs(done: Outcome, asked: Asked) -> list[Loss]:
    """Of each failure until its step had counted; no step that had counted is made again."""
    found = []
    for one in asked.kills:
        mine = [each for each in done.recoveries if each.step == one.step and each.lost]
        total = mine[-1].total_us if mine else None
        found.append(Loss(one.how, one.step, None if total is None else total - done.median_step_us(), 0))
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
