"""`python -m experiments.elastic.recovery`: what a killed process costs, part by part, beside one init_process_group.

A training on `--nodes` one-thread processes loses one process after the other by SIGKILL; a fresh one takes each one's
place before the next is killed. From each kill to the first step that counts afterwards, less one step. On an idle
machine the goal is a median of at most a second for eight processes; on a busy one the ratio says more.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from experiments.elastic.layouts import cores, layout_steps
from experiments.elastic.meeting import meetings_us
from experiments.elastic.outcomes import less_a_step, medians
from experiments.machine import machine
from experiments.progress import stages
from experiments.refusals import refusing
from experiments.rows import commit, rows_to_text
from experiments.run_directory import open_run_directory
from experiments.tables import NOTHING, Table, to_markdown
from runtime.elastic import PARTS, Options, Outcome, parse_kills, train
from solvers.ir import Row
from solvers.ir.errors import InvalidInput

JOB = "experiments.elastic.llama:job"
EVERY, MEETINGS = 8, 5
"""Steps from one kill to the next; meetings before the training, and after it again."""
MOMENTS = ("forward", "backward", "all-reduce", "vote")
HEAD = ("what", "ms")


def kills_of(nodes: int, failures: int) -> str:
    """One kill every few steps, at one moment after the other; the oldest process goes, a fresh one comes behind."""
    words = []
    for number in range(failures):
        step = 3 + EVERY * number
        words += [f"{number}@{step}.{MOMENTS[number % len(MOMENTS)]}", f"fresh@{step + 2}"]
    return ", ".join(words)


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures; row and table into `--out`, and on stdout."""
    parser = argparse.ArgumentParser(prog="python -m experiments.elastic.recovery", description=__doc__)
    parser.add_argument("--out", type=Path, help="the folder for recovery.jsonl and recovery.md")
    parser.add_argument("--nodes", type=int, default=8, help="processes")
    parser.add_argument("--failures", type=int, default=9, help="how many are killed")
    parser.add_argument("--job", default=JOB, help="MODULE:FACTORY")
    told = parser.parse_args(arguments)
    if told.nodes < 4 or told.nodes % 2:
        raise InvalidInput(f"--nodes is {told.nodes}: give an even number from 4 on, as pipelines have two stages")
    if told.failures < 1:
        raise InvalidInput(f"--failures is {told.failures}: give at least 1")
    directory = None if told.out is None else open_run_directory("recovery", str(told.out))
    row = measured(told.job, told.nodes, told.failures)
    text = to_markdown([table_of(row)])
    print(text, end="")
    if directory is not None:
        directory.text("recovery.md", text)
        directory.text("recovery.jsonl", rows_to_text([row]))
    return 0


def measured(job: str, nodes: int, failures: int) -> Row:
    """The training, with meetings before it and after it."""
    load = [os.getloadavg()[0]]
    injections, joins = parse_kills(kills_of(nodes, failures))
    options = Options(canonical=True, hang_s=60, timeout_s=60, injections=injections, joins=joins)
    with stages(3) as shown:
        with shown.stage(f"{nodes} processes meet"):
            met = meetings_us(nodes, MEETINGS)
        with shown.stage(f"{failures} of {nodes} processes are killed, one after the other"):
            done = train(job, nodes=nodes, steps=3 + EVERY * failures, pipeline=2, options=options)
        with shown.stage(f"{nodes} processes meet again"):
            met += meetings_us(nodes, MEETINGS)
    load.append(os.getloadavg()[0])
    return row_of(job, nodes, done, met, load)


def row_of(job: str, nodes: int, done: Outcome, met: Sequence[int], load: Sequence[float]) -> Row:
    """Medians by part, and of the whole; `load` of the machine before and after."""
    kills = [one for one in done.recoveries if one.lost]
    layouts = layout_steps(done.events, cores())
    costs = [cost for one in kills if (cost := less_a_step(one, done, layouts)) is not None]
    if not costs:
        raise InvalidInput("no recovery came to a step before the training ended: name more failures")
    found: dict[str, Any] = {
        "recovery_us": medians(kills),
        "lost_us": median(costs),
        "worst_lost_us": max(costs),
        "failures": len(costs),
        "step_us": done.median_step_us(),
        "init_process_group_us": median(met),
        "over_init_process_group": median(costs) / median(met),
        "before_redo_over_init": sum(medians(kills)[name] for name in PARTS[:-1]) / median(met),
        "load": [round(one, 1) for one in load],
        "equal_replicas": done.replicas_equal,
    }
    return Row(
        experiment="recovery",
        asked={"job": job, "nodes": nodes, "policy": "auto"},
        outcome="ok",
        figures=found,
        provenance=(
            f"executed on {nodes} one-thread processes of a CPU ({machine()['processor']}, {cores()} cores) by gloo, "
            f"torch {torch.__version__}"
        ),
        commit=commit(),
        seed=0,
    )


def table_of(row: Row) -> Table:
    """Parts, sum less a step, and both ratios."""
    found = row.figures
    parts = tuple((f"{name}, median", _ms(found["recovery_us"].get(name))) for name in PARTS)
    first, last = found["load"]
    note = (
        f"{found['failures']} kills; load {first} before and {last} after. The ratio is that of medians. Before the "
        f"step: detect, decide, regroup and transfer. {row.provenance}."
    )
    body = (
        *parts,
        ("kill → first step that counts, less a step, median", _ms(found["lost_us"])),
        ("the same, most", _ms(found["worst_lost_us"])),
        ("median step", _ms(found["step_us"])),
        ("one init_process_group of as many processes, median", _ms(found["init_process_group_us"])),
        ("ratio", f"{found['over_init_process_group']:.2f} ×"),
        ("ratio of what is before the step", f"{found['before_redo_over_init']:.2f} ×"),
    )
    return Table(f"A killed process of {row.asked['nodes']}", HEAD, body, note)


def _ms(value_us: float | None) -> str:
    return NOTHING if value_us is None else f"{value_us / 1e3:.1f}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
