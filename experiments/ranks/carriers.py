"""Ranks as threads of this process or as processes of their own: the same program either way."""

import os
import pickle
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from experiments.ranks.programs import Job, Trained, program, train
from experiments.ranks.settings import Carrier
from runtime.ranks import join, leave, run_ranks
from solvers.ir import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.report import Report


@dataclass(frozen=True)
class Carried:
    """What every rank trained and did; the number of races, None where each process saw only its own."""

    trained: list[Trained]
    reports: list[Report]
    races: int | None


def carried(carrier: Carrier, job: Job, hardware: Hardware, noise: float) -> Carried:
    """Runs the job. Raises what a rank raised, and `InvalidInput` where a process ended badly."""
    if carrier is Carrier.processes:
        return _processes(job, hardware, noise)
    run = run_ranks(program(job), job.ranks, hardware=hardware, noise=noise, races="record")
    return Carried(run.values, run.reports, len(run.races))


def _processes(job: Job, hardware: Hardware, noise: float) -> Carried:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").write_bytes(pickle.dumps((job, hardware, noise)))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = {"WORLD_SIZE": str(job.ranks), "LOCAL_WORLD_SIZE": str(job.ranks), "MASTER_ADDR": "127.0.0.1"}
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "experiments.ranks.carriers", name],
                env={**os.environ, **world, "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(job.ranks)
        ]
        said = [process.communicate()[1] for process in running]
        for rank, process in enumerate(running):
            if process.returncode:
                last = said[rank].strip().splitlines()[-1:] or ["it said nothing"]
                raise InvalidInput(f"rank {rank} ended with exit code {process.returncode}: {last[0]}")
        ended = [pickle.loads((folder / f"rank-{rank}").read_bytes()) for rank in range(job.ranks)]
    return Carried([trained for trained, _ in ended], [report for _, report in ended], None)


def main(folder: Path) -> None:
    """One rank's process."""
    torch.set_num_threads(1)
    job, hardware, noise = pickle.loads((folder / "job").read_bytes())
    group = join(hardware=hardware, noise=noise)
    trained = train(job, group.rank(), torch.device("sim", group.rank()))
    (folder / f"rank-{group.rank()}").write_bytes(pickle.dumps((trained, leave())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
