"""Worker processes that cannot begin: said once, by the one that began them, and nothing is left running."""

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
from omegaconf import OmegaConf

from experiments.sweeping import processes
from solvers.ir import InvalidInput


def ends(pipe: Connection, kind: str, words: list[str], task: Callable[[Any], Any]) -> None:
    os._exit(3)


def launcher(*words: str) -> processes.Processes:
    made = processes.Processes(2, "pipeline")
    config = OmegaConf.create({"hydra": {"overrides": {"hydra": list(words), "task": []}}})
    made.config, made.task_function = config, print
    return made


def test_what_a_worker_cannot_compose_is_refused_in_its_sentence() -> None:
    with pytest.raises(InvalidInput, match="cannot read the override"):
        launcher("hydra.sweep.dir='it's'").launch([["microbatch=8"], ["microbatch=16"]], 0)


def test_a_worker_that_ends_before_its_first_job_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_work", ends)
    with pytest.raises(InvalidInput, match="a worker process ended with 3 before it took a cell"):
        launcher().launch([["microbatch=8"]], 0)
