"""Ranks as threads of this process, as processes of their own, or as torchrun's: the same program each way."""

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, Literal, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from experiments.ranks.children import end_with_parent, run_children
from experiments.ranks.programs import program
from experiments.ranks.settings import Carrier
from runtime.ranks import join, leave, rank_device, rank_report, run_ranks
from runtime.ranks.torchrun import started
from solvers.ir import BayplanError, InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.report import Report
from solvers.timeline.collectives import accelerators

DeviceName = Literal["sim", "cuda", "cpu"]


MISSED = ("that it needs has ended", "did not come", "could not meet", "Connection closed", "Connection reset")
"""What a rank says that found another one missing, which is the one to name."""


class Spread(Protocol):
    """What ranks are told, as far as it matters here."""

    @property
    def ranks(self) -> int:
        """How many there are."""


J = TypeVar("J", bound=Spread)
T = TypeVar("T")


@dataclass(frozen=True)
class Carried(Generic[T]):
    """What every rank trained and did; the number of races, None where each process saw only its own, or none."""

    trained: list[T]
    reports: list[Report]
    races: int | None


@dataclass(frozen=True)
class Where:
    """What ranks run on: a real kind of device, or simulated ones with their hardware and noise."""

    device: DeviceName
    hardware: Hardware
    noise: float = 0.0

    def join(self) -> dist.ProcessGroup:
        """Makes this process a rank there."""
        if self.device != "sim":
            return join(self.device)
        return join(hardware=self.hardware, noise=self.noise)


def carried(carrier: Carrier, train: Callable[[J, int, torch.device], T], job: J, where: Where) -> Carried[T]:
    """Runs `train(job, rank, device)` on every rank; for processes it is a module's function.

    Raises `InvalidInput` where the hardware has too few devices, a rank has too little memory, or a process ended
    badly; else what a rank raised.
    """
    devices = len(accelerators(where.hardware))
    if where.device == "sim" and devices < job.ranks:
        raise InvalidInput(
            f"hardware {where.hardware.name!r} has {devices} device{'s' * (devices != 1)}, but there are {job.ranks} "
            "ranks: choose a cluster, or fewer ranks"
        )
    try:
        if carrier is Carrier.processes:
            return _processes(train, job, where)
        if carrier is Carrier.torchrun:
            found = part_of_torchrun(train, job, where)
            assert found is not None, "rank 0 is given what all ranks did"
            return found
        run = run_ranks(program(train, job), job.ranks, hardware=where.hardware, noise=where.noise, races="record")
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


def part_of_torchrun(train: Callable[[J, int, torch.device], T], job: J, where: Where) -> Carried[T] | None:
    """This process's rank of the job, in a process that torchrun started. Rank 0 is given what all did, others None."""
    who = started()
    if who.ranks != job.ranks:
        raise InvalidInput(
            f"ranks is {job.ranks}, but torchrun started {who.ranks} processes: set ranks={who.ranks}, or start "
            f"{job.ranks}"
        )
    where.join()
    mine = train(job, who.rank, rank_device()), rank_report()
    everyone = [mine] * who.ranks if who.rank == 0 else None
    dist.gather_object(mine, everyone)
    leave()
    if everyone is None:
        return None
    return Carried([trained for trained, _ in everyone], [report for _, report in everyone], None)


def _processes(train: Callable[[J, int, torch.device], T], job: J, where: Where) -> Carried[T]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").write_bytes(pickle.dumps((train, job, where)))
        # Where ranks meet is this process's, as torchrun's is its own: no port is chosen that another might take.
        store = c10d.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        world = {
            "WORLD_SIZE": str(job.ranks),
            "LOCAL_WORLD_SIZE": str(job.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        codes = run_children(
            [sys.executable, "-m", "experiments.ranks.carriers", name],
            [{**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(job.ranks)],
            [folder / f"said-{rank}" for rank in range(job.ranks)],
        )
        _require_good_ends(codes, [(folder / f"said-{rank}").read_text(errors="replace") for rank in range(job.ranks)])
        ended = [pickle.loads((folder / f"rank-{rank}").read_bytes()) for rank in range(job.ranks)]
    return Carried([trained for trained, _ in ended], [report for _, report in ended], None)


def _require_good_ends(codes: list[int], said: list[str]) -> None:
    """Raise `InvalidInput` for the rank that failed by itself, else for one that missed another."""
    ends = [(text.strip().splitlines() or ["it said nothing"])[-1] for text in said]
    failed = [rank for rank, code in enumerate(codes) if code]
    for rank in sorted(failed, key=lambda one: (_missed_another(ends[one]), one)):
        raise InvalidInput(f"rank {rank} ended with exit code {codes[rank]}: {ends[rank]}")


def _missed_another(end: str) -> bool:
    """Whether a rank says that another one did not come."""
    return any(told in end for told in MISSED)


def main(folder: Path) -> int:
    """One rank's process; the exit code."""
    end_with_parent()
    torch.set_num_threads(1)
    train, job, where = pickle.loads((folder / "job").read_bytes())
    try:
        rank = where.join().rank()
        trained = train(job, rank, rank_device())
        (folder / f"rank-{rank}").write_bytes(pickle.dumps((trained, leave())))
    except BayplanError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
