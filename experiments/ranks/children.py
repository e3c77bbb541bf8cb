"""Processes that end with the one that started them: when it is done, is interrupted, or is killed."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PARENT = "BAYPLAN_PARENT"
"""The environment variable that tells a child who started it."""
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process is sent when the thread that started it ends."""


def run_children(command: Sequence[str], environments: Sequence[Mapping[str, str]], said: Sequence[Path]) -> list[int]:
    """Runs the command once for each environment, all at once; returns the exit codes.

    What each says on stderr goes to its file. However this ends, no child is left behind.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for variables, place in zip(environments, said, strict=True):
            with place.open("wb") as file:  # not a pipe, which somebody must empty
                mine = {**os.environ, **variables, PARENT: str(os.getpid())}
                running.append(subprocess.Popen(command, env=mine, stderr=file))
        return [process.wait() for process in running]
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def end_with_parent() -> None:
    """Lets the system kill this process when the one that started it ends, though that one be killed (Linux only)."""
    parent = os.environ.get(PARENT)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # It ended before it could be asked for.
        os._exit(1)
