"""`train`: a job on processes of this machine, which goes on when some of them fail."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import msgspec
import torch

from runtime.elastic.children import Children, Ear, Inbox
from runtime.elastic.events import EventLog, Watcher
from runtime.elastic.job import fingerprint, load_job
from runtime.elastic.measure import Link, measure, problem_of
from runtime.elastic.messages import Config, Injection
from runtime.elastic.outcome import Outcome
from runtime.elastic.plans import Planning, Policy, require_start
from runtime.elastic.store import open_store
from runtime.elastic.supervisor import Posts, Supervisor
from solvers.ir.errors import InvalidInput, require_at_least
from solvers.ir.replan import ReplanProblem


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a training is carried out.

    `timeout_s`: a message between workers takes no longer; `hang_s`: a process whose heart is silent for so long has
    failed. `canonical`: sums in fixed point, the same bits for any nodes. `memory_bytes` of a node; None: what the
    fullest one needs at the start. `port` 0 is any free one. `problem`: costs instead of measured ones. `policy`: what
    solvers may decide. `run_dir` takes the event log; `watch` is shown each event as it happens, and must not wait.
    `injections` and `joins`: failures on purpose, and what comes back at which step.
    """

    timeout_s: float = 10.0
    hang_s: float = 5.0
    canonical: bool = False
    memory_bytes: int | None = None
    host: str = "127.0.0.1"
    port: int = 0
    link: Link = field(default_factory=Link)
    problem: ReplanProblem | None = None
    policy: Policy = "auto"
    run_dir: Path | None = None
    watch: Watcher | None = None
    injections: Sequence[Injection] = ()
    joins: Mapping[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse times and ports that mean nothing."""
        require_at_least(0.1, timeout_s=self.timeout_s, hang_s=self.hang_s)
        if not 0 <= self.port < 65536:
            raise InvalidInput(f"port is {self.port}: give 0 for a free one, or a number below 65536")


def train(
    job: str, *, nodes: int, steps: int, pipeline: int = 1, solver: str = "exact-replan", options: Options | None = None
) -> Outcome:
    """Trains `steps` steps of the job `MODULE:FACTORY` on `nodes` processes, in pipelines of `pipeline` at the start.

    Processes that end, or are silent, are done without: the rest goes on with the plan of `solver` for the next state,
    with weights and optimizer states from peers, and the same microbatches. Raises `InvalidInput` where the job cannot
    be trained, or where too few processes are left. No process is left behind, however this ends.
    """
    chosen = options or Options()
    require_at_least(1, nodes=nodes, steps=steps, pipeline=pipeline)
    if not sys.platform.startswith("linux"):
        raise InvalidInput(f"this system is {sys.platform}, but workers are watched in ways of Linux: train there")
    made = load_job(job, torch.device("cpu"))
    _require_nodes(chosen, nodes)
    require_start(len(made.layers), made.microbatches, nodes, pipeline)
    store = open_store(chosen.host, chosen.port)
    config = Config(
        job=job, host=chosen.host, port=store.port, steps=steps, canonical=chosen.canonical,
        timeout_s=chosen.timeout_s, hang_s=chosen.hang_s, fingerprint=fingerprint(job),
        injections=tuple(chosen.injections),
    )  # fmt: skip
    log = EventLog(chosen.run_dir, chosen.watch)
    inbox: Inbox = SimpleQueue()
    ear = Ear(store, chosen.host, inbox)
    children = Children(config, inbox)
    try:
        # Workers' process imports what they need while the job is measured here, and plans are made.
        measured = measure(made)
        problem = chosen.problem or problem_of(re.sub(r"\W+", " ", job), made, measured, nodes, chosen.link)
        problem = msgspec.structs.replace(problem, memory_bytes=chosen.memory_bytes or 0)
        log.add("costs", problem=msgspec.to_builtins(problem))
        planning = Planning(problem, solver, chosen.link, chosen.policy)
        supervisor = Supervisor(config, Posts(store, inbox, children), planning, log, chosen.joins)
        supervisor.begin(nodes, measured.shapes, lambda numbers: planning.start(list(numbers), pipeline))
        return supervisor.run()
    finally:
        children.close()
        ear.close()
        log.close()


def _require_nodes(options: Options, nodes: int) -> None:
    """Refuse failures of nodes that there will never be: each join, and each process left behind, takes a number."""
    joins = sum(map(len, options.joins.values()))
    most = nodes + joins + sum(one.how == "stop" for one in options.injections)
    for one in options.injections:
        if one.node >= most:
            raise InvalidInput(
                f"a failure of node {one.node} is asked for, but with {nodes} nodes and {joins} joins there are at "
                f"most {most}, numbered from 0: name one of them"
            )
