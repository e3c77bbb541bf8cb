"""Cells in a file, a line each: an interrupted run goes on behind the last one, and none is computed twice."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.graphs.cell import Asked
from solvers.ir.errors import BayplanError

LOOK_S = 0.05
"""Seconds between two looks at a cell's memory."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Store:
    """The cells of one file of JSON lines."""

    def __init__(self, place: Path) -> None:
        self.place = place
        lines = place.read_text().splitlines() if place.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def known(self, asked: Asked) -> dict[str, Any] | None:
        """The row of this question, None where it was not asked yet."""
        wanted = asdict(asked)
        return next((row for row in self.rows if all(row.get(key) == wanted[key] for key in wanted)), None)

    def get(self, asked: Asked) -> dict[str, Any]:
        """The row, computed in a process of its own and stored where it is not known."""
        row = self.known(asked)
        if row is None:
            row = ask(asked)
            self.rows.append(row)
            with self.place.open("a") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
        return row


def ask(asked: Asked) -> dict[str, Any]:
    """Run the cell.

    `rss_mib` is the most that its process and that one's children held together at any look, `cpu_s` what they took of
    the processors.
    """
    command = [sys.executable, "-m", "experiments.graphs.cell", json.dumps(asdict(asked))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most, before = 0, _spent_s()
    while process.poll() is None:
        most = max(most, sum(map(_resident, family(process.pid))))
        time.sleep(LOOK_S)
    out, errors = process.communicate()
    if process.returncode != 0:
        last = errors.strip().splitlines()[-1:] or ["nothing said"]
        raise BayplanError(f"{asked.solver} on {asked.graph} ended with exit code {process.returncode}: {last[0]}")
    row: dict[str, Any] = json.loads(out)
    return {**row, "rss_mib": round(most / 2**20), "cpu_s": round(_spent_s() - before, 2)}


def _spent_s() -> float:
    """Seconds of processors that the children waited for, and theirs, have taken so far."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def family(pid: int) -> Iterable[int]:
    """A process and all that descend from it, as Linux lists them."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from family(int(child))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0  # it has ended
