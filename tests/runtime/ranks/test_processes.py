"""Ranks as processes are ranks as threads: the same bytes, the same nanoseconds, and the same sentences."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from runtime.ranks import join, leave, run_ranks
from solvers.ir.errors import InvalidInput
from tests.runtime.ranks.cluster import CLUSTER
from tests.runtime.ranks.operations import CASES

pytestmark = pytest.mark.usefixtures("plain_sim")
ROOT = Path(__file__).parents[3]
Told = tuple[list[torch.Tensor], list[tuple[str, int, int]]]


def every_operation(rank: int) -> list[torch.Tensor]:
    """All of them, one after the other, on the rank's device."""
    device, found = torch.device("sim", rank), list[torch.Tensor]()
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator().manual_seed(1)
        drawn = [torch.randn(12, 6, generator=generator, dtype=torch.float64) for _ in range(dist.get_world_size())]
        for case in CASES.values():
            found += [one.cpu() for one in case.do(rank, device, [part.to(dtype) for part in drawn])]
    return found


def main(what: str, out: str) -> None:
    """What each process runs."""
    try:
        join(hardware=CLUSTER, timeout_s=2.0 if what == "late" else 60.0)
        rank = dist.get_rank()
        if what == "mismatch":
            dist.all_reduce(torch.ones(2 + rank, device=f"sim:{rank}"))
        elif what in {"missing", "late"} and rank == 0:
            dist.recv(torch.ones(2, device="sim:0"), 1)
        elif what == "late":
            time.sleep(4)
        elif what == "every operation":
            values = every_operation(rank)
            spans = [(one.label, round(one.start_us * 1e3), round(one.end_us * 1e3)) for one in leave().spans]
            torch.save((values, spans), f"{out}/{rank}.pt")
    except Exception as error:
        Path(f"{out}/{os.environ['RANK']}.txt").write_text(f"{type(error).__name__}: {error}")
    os._exit(0)  # Nobody waits for the other's shutdown.


def start(what: str, out: Path, ranks: int = 2) -> None:
    """Runs `main` in so many processes with the variables of torchrun, to their ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    code = f"from tests.runtime.ranks.test_processes import main; main({what!r}, {str(out)!r})"
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_threads_and_processes_agree_bit_for_bit_and_nanosecond_for_nanosecond(tmp_path: Path) -> None:
    start("every operation", tmp_path)

    def program(rank: int) -> list[torch.Tensor]:
        dist.init_process_group("sim")
        return every_operation(rank)

    found = run_ranks(program, 2, hardware=CLUSTER)
    for rank in range(2):
        failed = tmp_path / f"{rank}.txt"
        assert not failed.exists(), failed.read_text()
        values, spans = torch.load(tmp_path / f"{rank}.pt")
        assert len(values) == len(found.values[rank]) > 50
        assert all(one.dtype == other.dtype for one, other in zip(values, found.values[rank], strict=True))
        assert all(map(torch.equal, values, found.values[rank]))
        mine = found.reports[rank].spans
        assert spans == [(one.label, round(one.start_us * 1e3), round(one.end_us * 1e3)) for one in mine]


@pytest.mark.parametrize(
    ("what", "sentences"),
    [
        (
            "mismatch",
            {
                0: "Mismatch: in all_reduce 1 of ranks 0, 1 rank 0 calls all_reduce of 8 bytes, float32, SUM, but rank "
                "1 calls all_reduce of 12 bytes, float32, SUM",
                1: "Mismatch: in all_reduce 1 of ranks 0, 1 rank 1 calls all_reduce of 12 bytes, float32, SUM, but "
                "rank 0 calls all_reduce of 8 bytes, float32, SUM",
            },
        ),
        ("late", {0: "Deadlock: rank 0 waited in message 1 from rank 1 to rank 0 for 2 s, and the other ranks did"}),
        (
            "missing",
            {0: "Deadlock: rank 0 waited in message 1 from rank 1 to rank 0, but the process of a rank that it"},
        ),
    ],
)
def test_what_goes_wrong_is_told(what: str, sentences: dict[int, str], tmp_path: Path) -> None:
    start(what, tmp_path)
    for rank, sentence in sentences.items():
        assert (tmp_path / f"{rank}.txt").read_text().startswith(sentence)


def test_join_wants_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInput, match=r"join found no RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the env.*run"):
        join()
    with pytest.raises(InvalidInput, match="leave was called without join: call join first"):
        leave()
