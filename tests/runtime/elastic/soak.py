"""Many failures at random moments, and what came of them, counted by moment and victim.

    python -m tests.runtime.elastic.soak --seeds 0:10 --failures 20 --out FILE

prints a table (rows: moments; columns: what the victim's process did) and writes it as JSON. It ends with 1 where a bit
differs from the training in one process, where a recovery takes longer than the timeout, or where a process was silent
that had not been stopped.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import get_args

import torch

from experiments.rows import commit
from runtime.elastic import Alone, Options, Outcome, Recovery, load_job, parse_kills, train, train_alone
from runtime.elastic.messages import Moment
from runtime.elastic.plans import Role
from tests.runtime.elastic.jobs import costs

JOB = "tests.runtime.elastic.jobs:small"
NODES, EVERY, TIMEOUT_S = 6, 12, 20.0
"""Failures are so many steps apart: a fresh process may take seconds to join where this machine is busy."""
SILENT_SEED, HANG_S = 9, 5.0
"""Of ten seeds this one stops processes (SIGSTOP) in place of killing them in a forward pass."""
WORST = 5
"""So many of the longest recoveries are told with their parts."""
MOMENTS: tuple[Moment, ...] = get_args(Moment)
ROLES: tuple[Role, ...] = get_args(Role)
Counts = Counter[tuple[str, str]]
"""How often a failure happened, by moment and role."""


def script(seed: int, count: int) -> str:
    """`count` failures, one every few steps; for each process that ends, a fresh one comes two steps later.

    Victims are told by how many have come before: the processes that are there are always the last ones.
    """
    rng, stops = random.Random(seed), stops_some(seed)
    there, words, following = list(range(NODES)), [], NODES
    for number in range(count):
        step = 2 + EVERY * number
        moment = MOMENTS[number % len(MOMENTS)]
        victim = there[rng.randrange(len(there))]
        if moment in ("regroup", "transfer"):  # within the recovery from another one's failure
            other = rng.choice([node for node in there if node != victim])
            words.append(f"{other}@{step}.forward")
            there.remove(other)
            there.append(following)
            following += 1
            words.append(f"fresh@{step + 1}")
        how = ".stop" if stops and moment == "forward" else ""
        words.append(f"{victim}@{step}.{moment}:{rng.randint(1, 2) if moment in ('forward', 'backward') else 1}{how}")
        following += bool(how)  # a stopped process is given a number, should it return
        if moment != "unheard":
            there.remove(victim)
            there.append(following)
            following += 1
            words.append(f"fresh@{step + 1}")
    return ", ".join(words)


def stops_some(seed: int) -> bool:
    """Whether processes are stopped, too."""
    return seed % 10 == SILENT_SEED


def stages(seed: int) -> int:
    """At the start; inner ones are there from three on."""
    return 2 + seed % 2


def run(seed: int, count: int, folder: Path) -> tuple[Outcome, Alone]:
    """One training with failures and checkpoints, and the same without either in one process."""
    steps = 2 + EVERY * (count + 1)
    injections, joins = parse_kills(script(seed, count))
    options = Options(
        canonical=True, injections=injections, joins=joins, hang_s=HANG_S if stops_some(seed) else TIMEOUT_S,
        timeout_s=TIMEOUT_S, problem=costs(NODES), checkpoint_dir=folder, checkpoint_every=3,
    )  # fmt: skip
    outcome = train(JOB, nodes=NODES, steps=steps, pipeline=stages(seed), options=options)
    return outcome, train_alone(load_job(JOB, torch.device("cpu")), steps)


def faults(outcome: Outcome, alone: Alone) -> list[str]:
    """What is not as it must be; nothing for a training that went well."""
    found = []
    if outcome.losses != alone.losses:
        found.append("losses differ from those of one process")
    if outcome.digests != alone.digests or not outcome.replicas_equal:
        found.append("states differ from those of one process")
    stopped = {one["node"] for one in outcome.events if one["event"] == "injected" and one["how"] == "stop"}
    hung = [one for one in outcome.events if one["event"] == "hung"]
    found += [f"silent: {event}" for event in hung if event["node"] not in stopped]
    found += [f"stopped, and not noticed: {node}" for node in stopped - {event["node"] for event in hung}]
    found += [str(one) for one in outcome.recoveries if (one.total_us or 0) >= TIMEOUT_S * 1e6]
    return found


def counts_of(outcome: Outcome) -> Counts:
    """The failures that happened."""
    return Counter((str(one["moment"]), str(one["role"])) for one in outcome.events if one["event"] == "injected")


def table(counts: Counts) -> str:
    """Rows of moments, columns of victims, with sums."""
    lines = ["| moment | " + " | ".join(ROLES) + " | all |", "|---|" + "---:|" * (len(ROLES) + 1)]
    for moment in MOMENTS:
        own = [counts[moment, role] for role in ROLES]
        lines.append(f"| {moment} | " + " | ".join(map(str, own)) + f" | {sum(own)} |")
    whole = [sum(counts[moment, role] for moment in MOMENTS) for role in ROLES]
    return "\n".join([*lines, "| all | " + " | ".join(map(str, whole)) + f" | {counts.total()} |"])


@dataclass
class Found:
    """What came of the seeds from `first` on, so far."""

    first: int
    seeds: int = 0
    counts: Counts = field(default_factory=Counter)
    wrong: dict[int, list[str]] = field(default_factory=dict)
    timed: list[tuple[int, int, Recovery]] = field(default_factory=list)
    late: list[dict[str, object]] = field(default_factory=list)
    checkpoints: int = 0

    def take(self, seed: int, outcome: Outcome, alone: Alone) -> list[str]:
        """One more training; what went wrong in it."""
        self.seeds += 1
        self.counts += counts_of(outcome)
        self.timed += [(one.total_us, seed, one) for one in outcome.recoveries if one.total_us is not None]
        self.late += [{"seed": seed, **one} for one in outcome.events if one["event"] in ("late", "heard-late")]
        self.checkpoints += sum(one["event"] == "checkpoint" for one in outcome.events)
        if wrong := faults(outcome, alone):
            self.wrong[seed] = wrong
        return wrong

    def totals_us(self) -> list[int]:
        """Of all recoveries that were timed."""
        return [us for us, _, _ in self.timed]

    def worst(self) -> list[dict[str, object]]:
        """The longest recoveries, by their parts."""
        return [
            {"seed": seed, "step": one.step, "lost": one.lost, "why": one.why, "parts_us": one.parts_us}
            for _, seed, one in sorted(self.timed, key=lambda one: one[0])[-WORST:]
        ]

    def kept(self) -> dict[str, object]:
        """As it is written."""
        end = self.first + self.seeds
        return {
            "seeds": [self.first, end],
            "counts": [{"moment": one, "role": role, "count": n} for (one, role), n in sorted(self.counts.items())],
            "totals_us": self.totals_us(),
            "worst": self.worst(),
            "late": self.late,
            "checkpoints": self.checkpoints,
            "wrong": self.wrong,
            "commit": commit(),
            "nodes": NODES,
            "pipeline": {seed: stages(seed) for seed in range(self.first, end)},
        }


def main(argv: list[str]) -> int:
    """Runs the seeds one after the other, and says what came of each."""
    parser = argparse.ArgumentParser(description="failures at random moments, counted by moment and victim")
    parser.add_argument("--seeds", default="0:10", help="FIRST:END, END not included")
    parser.add_argument("--failures", type=int, default=20, help="in each training")
    parser.add_argument("--out", type=Path, help="a JSON file")
    asked = parser.parse_args(argv)
    first, end = map(int, asked.seeds.split(":"))
    found = Found(first)
    for seed in range(first, end):
        began = time.monotonic()
        with TemporaryDirectory() as folder:
            outcome, alone = run(seed, asked.failures, Path(folder))
        wrong = found.take(seed, outcome, alone)
        took_s = time.monotonic() - began
        print(f"seed {seed}: {len(outcome.losses)} steps in {took_s:.0f} s, {wrong or 'as in one process'}", flush=True)
        for one in found.late:
            if one["seed"] == seed:
                print(f"late: {one}", flush=True)
        if asked.out:  # what is known so far, should this be ended
            asked.out.write_text(json.dumps(found.kept(), indent=1) + "\n")
    print(table(found.counts))
    totals_us = found.totals_us()
    print(*(f"among the worst: {one}" for one in found.worst()), sep="\n")
    print(
        f"recoveries timed: {len(totals_us)}, median {median(totals_us) / 1e6:.2f} s, most {max(totals_us) / 1e6:.2f} s"
    )
    print(f"checkpoints made: {found.checkpoints}; seeds that went wrong: {found.wrong or 'none'}")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
