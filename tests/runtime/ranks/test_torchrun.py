"""The very same program under torchrun: on simulated devices, on CPUs by gloo, on CUDA devices by NCCL."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from runtime.ranks import join, leave, rank_device, rank_report, run_ranks
from runtime.ranks.ending import gloo_threads
from runtime.ranks.real import join_real
from runtime.ranks.torchrun import NAMES, Started, started
from solvers.ir.errors import InvalidInput
from tests.runtime.ranks.cluster import CLUSTER, ended
from tests.soaking import in_soak

pytestmark = pytest.mark.usefixtures("plain_sim")
ROOT = Path(__file__).parents[3]
RANKS = 2


def losses(rank: int, device: torch.device) -> list[float]:
    """Four steps of data-parallel training, each rank with its own numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    numbers = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(rank)).to(device)
    found = []
    for part in numbers:
        optimizer.zero_grad()
        loss = wrapped(part).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return [loss.item() for loss in found]


def main(kind: str, out: str) -> None:
    """What each of torchrun's processes runs."""
    torch.set_num_threads(1)
    join(hardware=CLUSTER) if kind == "sim" else join(kind)  # type: ignore[arg-type]
    device = rank_device()
    found = losses(dist.get_rank(), device)
    facts = [dist.get_rank(), dist.get_world_size(), dist.get_backend(), str(device)]
    early, late = rank_report(), leave()
    assert not dist.is_initialized() and early.makespan_us <= late.makespan_us
    assert ended(gloo_threads)  # one that let go of its work while Python ends would end the process by SIGABRT
    told = [late.name, late.how, len(late.spans) > 0, late.peak_bytes > 0]
    Path(out, f"{facts[0]}.json").write_text(json.dumps({"losses": found, "facts": facts, "report": told}))


def under_torchrun(kind: str, out: Path) -> list[dict[str, list[object]]]:
    """Starts `main` as a user would; what each rank wrote."""
    code = f"from tests.runtime.ranks.test_torchrun import main; main({kind!r}, {str(out)!r})"
    program = out / "program.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(RANKS)]


def as_threads() -> list[list[float]]:
    """The losses of the same program on simulated devices in this process."""

    def program(rank: int) -> list[float]:
        dist.init_process_group("sim")
        return losses(rank, torch.device("sim", rank))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run_ranks(program, RANKS, hardware=CLUSTER).values
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "backend"), [("sim", "sim"), in_soak("cpu", "gloo")])
def test_the_same_program_under_torchrun_has_the_losses_of_threads(kind: str, backend: str, tmp_path: Path) -> None:
    """Bit for bit: of two ranks' numbers any order has the same sum."""
    found = under_torchrun(kind, tmp_path)
    assert [one["losses"] for one in found] == as_threads()
    device = [f"sim:{rank}" if kind == "sim" else kind for rank in range(RANKS)]
    assert [one["facts"] for one in found] == [[rank, RANKS, backend, device[rank]] for rank in range(RANKS)]
    # Of a real device there is nothing but the time; a CPU has no peak.
    assert [one["report"] for one in found] == [[f"rank {r}", "executed", *[kind == "sim"] * 2] for r in range(RANKS)]


@pytest.mark.gpu
def test_the_same_program_under_torchrun_on_cuda(tmp_path: Path) -> None:
    """NCCL and CUDA's kernels sum in another order than the CPU: near, not equal."""
    if torch.cuda.device_count() < RANKS:
        pytest.skip(f"{torch.cuda.device_count()} CUDA devices are here, and {RANKS} ranks want one each")
    found, cpu = under_torchrun("cuda", tmp_path), tmp_path / "cpu"
    cpu.mkdir()
    wanted = under_torchrun("cpu", cpu)  # a process with CUDA has no device sim
    assert [one["facts"] for one in found] == [[rank, RANKS, "nccl", f"cuda:{rank}"] for rank in range(RANKS)]
    for one, other in zip(found, wanted, strict=True):
        assert one["losses"] == pytest.approx(other["losses"], rel=1e-4)
    assert [one["report"] for one in found] == [[f"rank {rank}", "executed", False, True] for rank in range(RANKS)]


def surroundings(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """The environment of the only process that torchrun has started, but for these."""
    said = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in (said | values).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"RANK": "one"}, "RANK is 'one': let it be a whole number, 0 or more, as torchrun sets it"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0': let it be a whole number, 1 or more"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, but WORLD_SIZE is 2: ranks go from 0 to 1"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is '70000': let it be a whole number, 1 to 65535"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK is '-1': let it be a whole number, 0 or more"),
    ],
)
def test_what_torchrun_would_not_say(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], sentence: str) -> None:
    surroundings(monkeypatch, **values)
    with pytest.raises(InvalidInput, match=sentence):
        started()


def test_who_was_started_alone_may_leave_out_its_place_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch, RANK="3", WORLD_SIZE="4")
    monkeypatch.delenv("LOCAL_RANK")
    assert started() == Started(3, 4, 3)
    monkeypatch.delenv("MASTER_PORT")
    with pytest.raises(InvalidInput, match="join found no MASTER_PORT in the environment: start the program by tor"):
        started()
    assert "MASTER_PORT" in NAMES


@pytest.mark.parametrize(
    ("joins", "sentence"),
    [
        (lambda: join("tpu"), "device is 'tpu': choose of 'sim', 'cuda', 'cpu'"),  # type: ignore[arg-type]
        (lambda: join("cpu", hardware=CLUSTER), "hardware is a simulated device's, but device is 'cpu': leave it out"),
        (lambda: join("cpu", algorithm="tree"), "algorithm is a simulated device's, but device is 'cpu'"),
        (lambda: join("cpu", noise=0.1), "noise is a simulated device's, but device is 'cpu': leave it out"),
        (rank_device, "this process is no rank: call join first"),
    ],
)
def test_what_join_refuses(monkeypatch: pytest.MonkeyPatch, joins: Callable[[], object], sentence: str) -> None:
    surroundings(monkeypatch)
    with pytest.raises(InvalidInput, match=sentence):
        joins()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    with pytest.raises(
        InvalidInput, match=r"device is 'cuda', but torch .* finds no CUDA device here: start where the"
    ):
        join("cuda")
    assert not dist.is_initialized()


def test_a_rank_has_a_cuda_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    with pytest.raises(InvalidInput, match=r"LOCAL_RANK is 2, but there are 2 CUDA devices here: start at most 2"):
        join_real("cuda", Started(2, 4, 2), torch.distributed.constants.default_pg_timeout)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(InvalidInput, match="was built without NCCL: install one with it, or choose device='sim'"):
        join_real("cuda", Started(0, 4, 0), torch.distributed.constants.default_pg_timeout)


def test_nccl_is_asked_for_with_the_rank_s_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called where there are CUDA devices, over gloo in their place: all but NCCL itself."""
    asked, make = list[object](), dist.init_process_group

    def made(backend: str, timeout: timedelta, device_id: torch.device) -> None:
        asked.append((backend, timeout, device_id))
        make("gloo", timeout=timeout)

    for name, value in {"is_available": True, "device_count": 2}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "init_process_group", made)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        surroundings(monkeypatch, LOCAL_RANK="1", MASTER_PORT=str(free.getsockname()[1]))
    rank, group = join_real("cuda", Started(0, 1, 1), timedelta(seconds=7))
    dist.destroy_process_group()
    assert asked == [1, ("nccl", timedelta(seconds=7), torch.device("cuda", 1))]
    assert (rank.device, group.size()) == (torch.device("cuda", 1), 1)


@pytest.mark.parametrize("kind", ["sim", "cpu"])
def test_a_port_in_use_is_told_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Somebody else listens there; afterwards the process may join elsewhere."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        surroundings(monkeypatch, MASTER_PORT=str(taken.getsockname()[1]))
        with pytest.raises(
            InvalidInput, match=r"rank 0 of 1 could not meet the others at 127.0.0.1:\d+ \(.*address al"
        ):
            join(kind, timeout_s=5)  # type: ignore[arg-type]
    assert not dist.is_initialized()
    with pytest.raises(InvalidInput, match="leave was called without join: call join first"):
        leave()


def test_one_rank_joins_once_leaves_and_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            surroundings(monkeypatch, MASTER_PORT=str(free.getsockname()[1]))
        group = join("cpu")
        assert (group.size(), rank_device()) == (1, torch.device("cpu"))
        with pytest.raises(InvalidInput, match="join was called before: call leave first"):
            join("cpu")
        assert leave().source == "device cpu, a CPU"
