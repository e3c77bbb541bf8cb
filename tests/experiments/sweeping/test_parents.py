"""Nothing of a sweep that was killed is left running."""

import os
import subprocess
import sys

import pytest

from tests.experiments.commands.console import ROOT

FORKSERVER = """
import multiprocessing, sys, time
from experiments.sweeping import parents
def child(pipe):
    parents.end_with_parent(); pipe.send(1); time.sleep(600)
if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=child, args=(theirs,)).start()
    ours.recv(); print("ready", flush=True); time.sleep(600)
"""
LOKY = """
import multiprocessing, os, sys, time
from experiments.sweeping import parents
if os.fork():
    time.sleep(600)
multiprocessing.current_process().name = "LokyProcess-1"
parents.end_loky_with_parent(); print("ready", flush=True); time.sleep(600)
"""


@pytest.mark.parametrize("script", [FORKSERVER, LOKY], ids=["multiprocessing", "loky"])
def test_a_worker_ends_when_its_parent_is_killed(script: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=-1, text=True) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        parent.kill()
        assert parent.stdout.read() == ""  # the worker held the pipe: it is closed when both are gone
