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
from solvers.timeline.collectives import accelerators


@dataclass(frozen=True)
class Carried:
    """What every rank trained and did; the number of races, None where each process saw only its own."""

    trained: list[Trained]
    reports: list[Report]
    races: int | None


def carried(carrier: Carrier, job: Job, hardware: Hardware, noise: float) -> Carried:
    """Runs the job.

    Raises `InvalidInput` where the hardware has too few devices, a rank has too little memory, or a process ended
    badly; else what a rank raised.
    """
    devices = len(accelerators(hardware))
    if devices < job.ranks:
        raise InvalidInput(
            f"hardware {hardware.name!r} has {devices} device{'s' * (devices != 1)}, but there are {job.ranks} ranks: "
            "choose a cluster, or fewer ranks"
        )
    if carrier is Carrier.processes:
        return _processes(job, hardware, noise)
    try:
        run = run_ranks(program(job), job.ranks, hardware=hardware, noise=noise, races="record")
    except Exception as error:
        told = _out_of_memory(error)
        if told is None:
            raise
        raise InvalidInput(f"{told}: choose hardware with more memory, a smaller model, or more ranks") from error
    return Carried(run.values, run.reports, len(run.races))


def _out_of_memory(error: BaseException | None) -> str | None:
    """What a device said that had no memory left; libraries wrap its error."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__cause__ or error.__context__
    return None if error is None else str(error).splitlines()[0].rstrip(".")


def _processes(job: Job, hardware: Hardware, noise: float) -> Carried:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").write_bytes(pickle.dumps((job, hardware, noise)))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = {"WORLD_SIZE": str(job.ranks), "LOCAL_WORLD_SIZE": str(job.ranks), "MASTER_ADDR": "127.0.0.1"}
        running: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(job.ranks):
                mine = {"MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)}
                with (folder / f"said-{rank}").open("wb") as said:  # not a pipe, which somebody must empty
                    command = [sys.executable, "-m", "experiments.ranks.carriers", name]
                    running.append(subprocess.Popen(command, env={**os.environ, **world, **mine}, stderr=said))
            codes = [process.wait() for process in running]
        finally:
            for process in running:
                process.kill()
        _require_good_ends(codes, [(folder / f"said-{rank}").read_text(errors="replace") for rank in range(job.ranks)])
        ended = [pickle.loads((folder / f"rank-{rank}").read_bytes()) for rank in range(job.ranks)]
    return Carried([trained for trained, _ in ended], [report for _, report in ended], None)


def _require_good_ends(codes: list[int], said: list[str]) -> None:
    """Raise `InvalidInput` for the rank that failed by itself, else for one that missed another."""
    ends = [(text.strip().splitlines() or ["it said nothing"])[-1] for text in said]
    failed = [rank for rank, code in enumerate(codes) if code]
    for rank in sorted(failed, key=lambda one: ("Deadlock" in ends[one], one)):
        raise InvalidInput(f"rank {rank} ended with exit code {codes[rank]}: {ends[rank]}")


def main(folder: Path) -> None:
    """One rank's process."""
    torch.set_num_threads(1)
    job, hardware, noise = pickle.loads((folder / "job").read_bytes())
    group = join(hardware=hardware, noise=noise)
    trained = train(job, group.rank(), torch.device("sim", group.rank()))
    (folder / f"rank-{group.rank()}").write_bytes(pickle.dumps((trained, leave())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
