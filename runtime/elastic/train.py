"""`train`: a job on processes of this machine, which goes on when some of them fail."""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import msgspec
import torch
from torch._C._distributed_c10d import TCPStore

from runtime.elastic.checkpoint import Checkpoint, left_aside, newest, require_empty
from runtime.elastic.children import Children, Ear, Inbox
from runtime.elastic.events import EventLog, Watcher
from runtime.elastic.identity import identity_of
from runtime.elastic.job import ElasticJob, load_job
from runtime.elastic.keeper import Keeper
from runtime.elastic.measure import Link, measure, problem_of
from runtime.elastic.messages import Config, Injection, Saving
from runtime.elastic.outcome import Outcome
from runtime.elastic.parts import origin_of
from runtime.elastic.pauses import without_long_pauses
from runtime.elastic.plans import Planning, Policy, require_start
from runtime.elastic.posts import Beginning, Posts
from runtime.elastic.room import require_room
from runtime.elastic.store import open_store
from runtime.elastic.supervisor import Supervisor
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

    `checkpoint_dir` takes checkpoints, which all nodes must see: after every `checkpoint_every` steps (0: none on the
    way) and after the last one; the `keep_checkpoints` last ones stay. `resume` goes on with the last one in there that
    can be used. `save_on_exit`: also where the supervisor is interrupted or killed, and its workers can end their step.
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
    checkpoint_dir: Path | None = None
    checkpoint_every: int = 0
    keep_checkpoints: int = 3
    resume: bool = False
    save_on_exit: bool = False

    def __post_init__(self) -> None:
        """Refuse times and ports that mean nothing."""
        require_at_least(0.1, timeout_s=self.timeout_s, hang_s=self.hang_s)
        if not 0 <= self.port < 65536:
            raise InvalidInput(f"port is {self.port}: give 0 for a free one, or a number below 65536")
        require_at_least(0, checkpoint_every=self.checkpoint_every)
        require_at_least(1, keep_checkpoints=self.keep_checkpoints)
        for name in ("checkpoint_every", "resume", "save_on_exit"):
            if getattr(self, name) and self.checkpoint_dir is None:
                raise InvalidInput(f"{name} is {getattr(self, name)}, but there is no checkpoint_dir: name a folder")


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
    saving = _saving(chosen, job, made)
    log = EventLog(chosen.run_dir, chosen.watch)
    try:
        resumed = _resumed(saving, steps, log) if saving is not None and chosen.resume else None
        store = open_store(chosen.host, chosen.port)
        config = Config(
            job=job, host=chosen.host, port=store.port, steps=steps, canonical=chosen.canonical,
            timeout_s=chosen.timeout_s, hang_s=chosen.hang_s, injections=tuple(chosen.injections), saving=saving,
        )  # fmt: skip
        with _at_work(config, store, log) as posts:
            # The workers' nursery imports what they need while the job is measured here, and plans are made.
            measured = measure(made)
            if chosen.canonical and (warning := measured.warning()) is not None:
                log.warn(warning)
            problem = chosen.problem or problem_of(re.sub(r"\W+", " ", job), made, measured, nodes, chosen.link)
            problem = msgspec.structs.replace(problem, memory_bytes=chosen.memory_bytes or 0)
            log.add("costs", problem=msgspec.to_builtins(problem))
            planning = Planning(problem, solver, chosen.link, chosen.policy)
            supervisor = Supervisor(config, posts, planning, log, chosen.joins)
            first = Beginning(
                nodes, identity_of(job, made, chosen.canonical), measured.shapes,
                lambda numbers: planning.start(list(numbers), pipeline), resumed,
            )  # fmt: skip
            return _outcome(supervisor, first)
    finally:
        log.close()


@contextmanager
def _at_work(config: Config, store: TCPStore, log: EventLog) -> Iterator[Posts]:
    """The processes and threads of a training, of which none is left afterwards."""
    inbox: Inbox = SimpleQueue()
    with ExitStack() as left:
        keeper = Keeper(config.saving, inbox, log)
        left.callback(keeper.close)
        ear = Ear(store, config.host, inbox)
        left.callback(ear.close)
        children = Children(config, inbox)
        left.callback(children.close)  # first: who is left may still write, and tell
        yield Posts(store, inbox, children, keeper)


def _outcome(supervisor: Supervisor, first: Beginning) -> Outcome:
    try:
        with without_long_pauses():
            supervisor.begin(first)
            return supervisor.run()
    except KeyboardInterrupt:
        if supervisor.config.saving is not None and supervisor.config.saving.on_exit:
            supervisor.let_save()
        raise
    finally:
        supervisor.ahead.close()


def _saving(options: Options, job: str, made: ElasticJob) -> Saving | None:
    """What workers are told of checkpoints, once it is sure that there is a folder for them that holds no others."""
    if options.checkpoint_dir is None:
        return None
    folder = options.checkpoint_dir.absolute()
    if not options.resume:
        require_empty(folder)
    for old in left_aside(folder):  # of a training that was killed: nobody will end it
        shutil.rmtree(old, ignore_errors=True)
    require_room(folder, "checkpoints", "checkpoint_dir")
    return Saving(
        folder=str(folder), every=options.checkpoint_every, keep=options.keep_checkpoints,
        on_exit=options.save_on_exit, origin=origin_of(job, made),
    )  # fmt: skip


def _resumed(saving: Saving, steps: int, log: EventLog) -> Checkpoint:
    """The last checkpoint that can be used; those that cannot are told."""
    found, refused = newest(Path(saving.folder), saving.origin, steps)
    if found is None:
        why = "; ".join(refused) or f"it holds no checkpoint before step {steps}"
        raise InvalidInput(f"nothing in {saving.folder} can be resumed from ({why}): leave resume out to begin anew")
    for sentence in refused:
        log.warn(f"{sentence}: the one before is used")
    if found.manifest.step >= steps:
        raise InvalidInput(f"{found.path} is the end of {steps} steps already: ask for more of them")
    if found.manifest.origin.version != saving.origin.version:
        log.warn(
            f"the checkpoint {found.path.name} was made by another version of torch or of the module of "
            f"{saving.origin.job}: it is used, but losses may differ from now on"
        )
    return found


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
