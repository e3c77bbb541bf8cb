"""`python -m experiments.elastic.soak --out DIR`: hundreds of failures at every moment, of processes in every role.

Each training of several takes a failure every few steps: moments in turn, victims at random, one in ten stopped and
not killed; what goes comes back, or a fresh process does. Counted are moments × roles as they happened; every training
must have the bits of one process, and no wait may be longer than the timeout. Rows are written as they come, so that a
soak that was ended goes on where it stopped.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch

from experiments.elastic.layouts import cores
from experiments.elastic.log import Event
from experiments.machine import machine
from experiments.progress import stages
from experiments.refusals import refusing
from experiments.rows import commit, read_rows, rows_to_text
from experiments.run_directory import open_run_directory
from experiments.tables import Table, to_markdown
from runtime.elastic import Options, Outcome, Recovery, load_job, parse_kills, train, train_alone
from runtime.elastic.messages import Moment
from solvers.ir import Row
from solvers.ir.errors import InvalidInput

JOB = "experiments.elastic.llama:micro"
NODES, EVERY, TENTH = 6, 5, 10
MOMENTS: tuple[str, ...] = get_args(Moment)
WITHIN = ("regroup", "transfer")
"""Moments of a recovery: another process fails first, so that there is one."""
ROLES = ("first stage", "middle stage", "last stage")
NO_STAGE = "no stage"


class Soak(NamedTuple):
    """How the trainings are made."""

    job: str = JOB
    nodes: int = NODES
    timeout_s: float = 20.0
    hang_s: float = 10.0
    stops: bool = True


def script(seed: int, count: int, soak: Soak) -> str:
    """`count` failures and more, one every few steps; each process that goes is followed by another two steps later.

    Victims are told by how many have come before: the processes that are there are always the last ones.
    """
    rng = random.Random(seed)
    there, words = list(range(soak.nodes)), list[str]()

    def leaves(node: int, step: int, moment: str, how: str = "kill") -> None:
        there.remove(node)
        there.append(max([*there, node, soak.nodes - 1]) + 1)
        words.extend([f"{node}@{step}.{moment}.{how}", f"{'return' if how == 'stop' else 'fresh'}@{step + 1}"])

    for number in range(count):
        step, moment = 2 + EVERY * number, MOMENTS[(number + seed) % len(MOMENTS)]
        victim = rng.choice(there)
        if moment in WITHIN:
            leaves(rng.choice([node for node in there if node != victim]), step, "forward")
        if moment == "unheard":
            words.append(f"{victim}@{step}.unheard")
        else:
            stopped = soak.stops and moment not in WITHIN and (number + seed) % TENTH == seed % TENTH
            nth = f":{rng.randint(1, 2)}" if moment in ("forward", "backward") else ""
            leaves(victim, step, moment + nth, "stop" if stopped else "kill")
    return ", ".join(words)


def soaked(seed: int, count: int, soak: Soak) -> Row:
    """One training: what happened to whom, and every fault in a sentence."""
    steps = 2 + EVERY * (count + 1)
    injections, joins = parse_kills(script(seed, count, soak))
    options = Options(canonical=True, injections=injections, joins=joins, hang_s=soak.hang_s, timeout_s=soak.timeout_s)
    began = time.monotonic()
    done = train(soak.job, nodes=soak.nodes, steps=steps, pipeline=2, options=options)
    took_s = time.monotonic() - began
    faults = faults_of(done, soak, steps)
    happened = injected(done.events)
    worst = max(done.recoveries, key=lambda one: one.total_us or 0)
    found: dict[str, Any] = {
        "steps": steps,
        "step_us": done.median_step_us(),
        "injections": [list(one) for one in happened],
        "recoveries": len(done.recoveries),
        "worst": {"step": worst.step, "why": worst.why, "recovery_us": worst.parts_us},
        "late": sum(event["event"] == "late" for event in done.events),
        "took_s": round(took_s, 1),
        "equal_losses": not any("bits" in fault for fault in faults),
        "faults": faults,
    }
    return Row(
        experiment="soak", asked={"seed": seed, "count": count, "policy": "auto", **soak._asdict()},
        outcome="error" if faults else "ok", figures=found,
        provenance=(
            f"executed on {soak.nodes} one-thread processes of a CPU ({machine()['processor']}, {cores()} cores) by "
            f"gloo, torch {torch.__version__}"
        ),
        commit=commit(), seed=seed, reason="; ".join(faults) or None,
    )  # fmt: skip


def faults_of(done: Outcome, soak: Soak, steps: int) -> list[str]:
    """Other bits than one process has, unequal replicas, silence of a process that was not stopped, long waits."""
    alone = train_alone(load_job(soak.job, torch.device("cpu")), steps)
    faults = []
    if alone.losses != done.losses:
        faults.append("losses have other bits than those of one process")
    if alone.digests != done.digests:
        faults.append("states have other bits than those of one process")
    if not done.replicas_equal:
        faults.append("replicas differ")
    stopped = {event["node"] for event in done.events if event["event"] == "injected" and event["how"] == "stop"}
    hung = [event["node"] for event in done.events if event["event"] == "hung" and event["node"] not in stopped]
    faults += [f"node {node} hung, though nobody had stopped it" for node in hung]
    limit_us = (soak.hang_s + soak.timeout_s) * 1e6
    faults += [f"a recovery took {_total_us(one) / 1e6:.1f} s" for one in done.recoveries if _total_us(one) > limit_us]
    return faults


def _total_us(one: Recovery) -> int:
    return sum(part or 0 for part in one.parts_us.values())


def injected(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Moment, role of the victim in the plan then, and how, of each failure that happened."""
    roles: Mapping[int, str] = {}
    found = []
    for event in events:
        if event["event"] == "generation":
            roles = _roles(event)
        elif event["event"] == "injected":
            found.append((event["moment"], roles.get(event["node"], NO_STAGE), event["how"]))
    return found


def _roles(called: Event) -> dict[int, str]:
    found = {}
    for one in called["pipelines"]:
        for stage, node in enumerate(one["nodes"]):
            found[node] = ROLES[0] if stage == 0 else ROLES[2] if stage == len(one["nodes"]) - 1 else ROLES[1]
    return found


def missing(rows: Sequence[Row], count: int) -> list[str]:
    """What a soak of `count` failures lacks: failures, a moment, a role."""
    happened = [one for row in rows for one in row.figures["injections"]]
    moments, roles = ({one[which] for one in happened} for which in (0, 1))
    lacks = [] if len(happened) >= count else [f"{len(happened)} failures happened, fewer than {count}"]
    lacks += [f"no failure at {moment}" for moment in MOMENTS if moment not in moments]
    return lacks + [f"no victim of the {role}" for role in ROLES if role not in roles]


def page(rows: Sequence[Row]) -> str:
    """Moments × roles as they happened, and what all of it came to."""
    happened = Counter((moment, role) for row in rows for moment, role, _ in row.figures["injections"])
    stops = sum(how == "stop" for row in rows for _, _, how in row.figures["injections"])
    shown = [*ROLES, NO_STAGE]
    body = [
        (moment, *(str(happened[moment, role]) for role in shown), str(sum(happened[moment, role] for role in shown)))
        for moment in MOMENTS
    ]
    sums = [sum(happened[moment, role] for moment in MOMENTS) for role in shown]
    body.append(("together", *map(str, sums), str(sum(sums))))
    worst = max(rows, key=lambda row: sum(part or 0 for part in row.figures["worst"]["recovery_us"].values()))
    parts = worst.figures["worst"]["recovery_us"]
    told = ", ".join(f"{name} {'–' if us is None else round(us / 1e3)}" for name, us in parts.items())
    facts = (
        ("trainings", str(len(rows))),
        ("failures, of these stopped", f"{sum(sums)}, {stops}"),
        ("recoveries and joins", str(sum(row.figures["recoveries"] for row in rows))),
        ("steps, each compared with one process", f"{sum(row.figures['steps'] for row in rows)}"),
        ("faults", "; ".join(fault for row in rows for fault in row.figures["faults"]) or "none"),
        ("waits that did not end at once (late)", str(sum(row.figures["late"] for row in rows))),
        ("worst recovery (ms)", f"seed {worst.seed}, step {worst.figures['worst']['step']}: {told}"),
        ("hours", f"{sum(row.figures['took_s'] for row in rows) / 3600:.2f}"),
    )
    head = ("moment", *shown, "together")
    note = f"Roles are those of the plan at that moment. {rows[0].provenance}."
    return to_markdown([Table("Failures that happened", head, tuple(body), note), Table("Soak", ("what", "is"), facts)])


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a fault, or moments or roles that did not occur."""
    parser = argparse.ArgumentParser(prog="python -m experiments.elastic.soak", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder for soak.jsonl and soak.md")
    parser.add_argument("--seeds", type=int, default=10, help="trainings")
    parser.add_argument("--count", type=int, default=20, help="failures of each training, at least")
    parser.add_argument("--job", default=JOB, help="MODULE:FACTORY")
    told = parser.parse_args(arguments)
    for name in ("seeds", "count"):
        if getattr(told, name) < 1:
            raise InvalidInput(f"--{name} is {getattr(told, name)}: give at least 1")
    directory = open_run_directory("soak", str(told.out))
    place = directory.path / "soak.jsonl"
    rows = read_rows(place) if place.exists() else []
    known = {row.seed for row in rows}
    with stages(told.seeds) as shown:
        for seed in range(told.seeds):
            with shown.stage(f"training {seed}: {told.count} failures"):
                if seed not in known:
                    rows.append(soaked(seed, told.count, Soak(job=told.job)))
            directory.text(place.name, rows_to_text(rows))
            directory.text("soak.md", page(rows))
    lacks = missing(rows, told.seeds * told.count)
    print(page(rows), end="")
    print("\n".join(lacks) or "all moments, all roles")
    return 1 if lacks or any(row.outcome != "ok" for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
