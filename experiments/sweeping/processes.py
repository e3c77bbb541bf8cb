"""Hydra's launcher `processes`: the cells of a sweep spread over worker processes of this machine."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig

from experiments.compose import composed_by, hydra_of
from experiments.kinds import study_of
from experiments.sweeping.parents import end_with_parent
from solvers.ir import InvalidInput

Job = tuple[int, list[str]]
"""A job's number and its overrides."""


@dataclass
class _Worker:
    """A process, the end of the pipe to it, and what it does now."""

    process: ForkServerProcess
    pipe: Connection
    job: Job | None = None
    ready: bool = False


@dataclass
class Processes(Launcher):
    """Runs each job in one of `workers` processes; a job whose process dies has failed, and another takes its place."""

    workers: int
    kind: str
    config: DictConfig | None = None
    task_function: TaskFunction | None = None
    hydra_context: HydraContext | None = None
    died: dict[int, str] = field(default_factory=dict)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """As Hydra's launchers."""
        if not 1 <= self.workers <= 1024:
            raise InvalidInput(f"hydra.launcher.workers is {self.workers}, outside 1…1024: choose a value inside")
        self.config, self.task_function, self.hydra_context = config, task_function, hydra_context

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """As Hydra's launchers; a job that has failed is one whose return value is an exception."""
        waiting = deque((initial_job_idx + number, list(words)) for number, words in enumerate(job_overrides))
        found: dict[int, JobReturn] = {}
        workers = [self._started() for _ in range(min(self.workers, len(waiting)))]
        try:
            while waiting or any(worker.job is not None for worker in workers):
                for worker in self._told(workers):
                    if not worker.ready:
                        _greet(worker)
                    else:
                        self._hear(worker, found)
                    if worker.process.is_alive():
                        _give(worker, waiting)
                    elif waiting:
                        workers[workers.index(worker)] = self._started()
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()
        return [found[initial_job_idx + number] for number in range(len(job_overrides))]

    def _told(self, workers: Sequence[_Worker]) -> list[_Worker]:
        """The workers that have answered, or died."""
        busy = {worker.pipe: worker for worker in workers if worker.job is not None or not worker.ready}
        return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]

    def _hear(self, worker: _Worker, found: dict[int, JobReturn]) -> None:
        assert worker.job is not None
        number, words = worker.job
        try:
            ended, value = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            ended, value = False, RuntimeError(f"its process ended with {worker.process.exitcode}")
        status = JobStatus.COMPLETED if ended else JobStatus.FAILED
        found[number] = JobReturn(overrides=words, status=status, _return_value=value)
        worker.job = None

    def _started(self) -> _Worker:
        assert self.config is not None and self.task_function is not None
        ours, theirs = multiprocessing.Pipe()
        words = [*self.config.hydra.overrides.hydra, *self.config.hydra.overrides.task]
        process = _context().Process(target=_work, args=(theirs, self.kind, words, self.task_function))
        process.start()
        theirs.close()
        return _Worker(process, ours)


def _greet(worker: _Worker) -> None:
    """Hear that a worker can take jobs; raises `InvalidInput` where it never will: no other one could."""
    try:
        fault = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        fault = (
            f"a worker process ended with {worker.process.exitcode} before it took a cell: choose fewer by "
            "hydra.launcher.workers, or another launcher"
        )
    if fault is not None:
        raise InvalidInput(fault)
    worker.ready = True


def _give(worker: _Worker, waiting: deque[Job]) -> None:
    if waiting:
        worker.job = waiting.popleft()
        worker.pipe.send(worker.job)


def _context() -> ForkServerContext:
    """Processes that begin with everything imported and nothing run."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _work(pipe: Connection, kind: str, words: list[str], task_function: Callable[[Any], Any]) -> None:
    """A worker: Hydra's basic launcher, one job after the other, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent answers for all
    end_with_parent()
    root = study_of(kind).root
    with hydra_of(root) as hydra:
        try:
            config = composed_by(hydra, root, words, RunMode.MULTIRUN)
        except InvalidInput as error:
            pipe.send(str(error))
            return
        pipe.send(None)  # ready
        launcher = BasicLauncher()
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks())
        launcher.setup(hydra_context=context, task_function=task_function, config=config)
        while True:
            try:
                number, overrides = pipe.recv()
            except EOFError:
                return
            try:
                (done,) = launcher.launch([overrides], initial_job_idx=number)
                pipe.send((done.status is JobStatus.COMPLETED, done._return_value))
            except Exception as error:
                pipe.send((False, RuntimeError(f"{type(error).__name__}: {error}")))
