"""How ranks of a process end: without threads that would want Python when it is gone."""

import ctypes
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch import nn

from runtime.ranks import join, leave, run_ranks
from runtime.ranks.ending import GLOO, gloo_threads, let_go_of_groups
from tests.runtime.ranks.cluster import CLUSTER, ended

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the states of threads are Linux's")
PR_SET_NAME = 15


@contextmanager
def thread_of_gloo(busy: bool) -> Iterator[None]:
    """Within the block there is a thread of that name, which computes or waits."""
    named, end = threading.Event(), threading.Event()

    def run() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, GLOO.encode())
        named.set()
        while busy and not end.is_set():
            pass
        end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    named.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_who_ends_waits_for_threads_that_have_work_to_let_go_of() -> None:
    with thread_of_gloo(busy=True):
        assert not let_go_of_groups(limit_s=0.05)
    with thread_of_gloo(busy=False):
        assert gloo_threads()
        assert let_go_of_groups(limit_s=60)


@pytest.mark.usefixtures("plain_sim")
@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_leaving_ends_gloo_s_threads(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also where garbage holds the group: a module under DDP that has lost its owner."""
    before = len(gloo_threads())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        said = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        for name, value in said.items():
            monkeypatch.setenv(name, value)
    group = join(hardware=CLUSTER) if kind == "sim" else join("cpu")
    module = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).to(torch.device("sim:0" if kind == "sim" else "cpu")))
    module.itself = module
    assert len(gloo_threads()) > before
    del module
    if kind == "cpu":
        del group  # what the program holds lives on; on device sim gloo's groups are not the program's
    leave()
    assert ended(lambda: gloo_threads()[before:])


@pytest.mark.usefixtures("plain_sim")
def test_no_function_of_torch_keeps_a_rank_s_world() -> None:
    """Defaults are taken when a module is loaded, which must not be while there is a world."""

    def program(rank: int) -> list[object]:
        dist.init_process_group("sim")
        functions = vars(sys.modules["torch.distributed.nn.functional"]).values()
        defaults = [value for one in functions for value in getattr(one, "__defaults__", None) or ()]
        return [value for value in defaults if isinstance(value, dist.ProcessGroup)]

    assert run_ranks(program, 2, hardware=CLUSTER).values == [[], []]
