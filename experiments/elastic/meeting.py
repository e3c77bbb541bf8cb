"""How long `torch.distributed.init_process_group` takes for so many processes here: what a recovery is set beside."""

import multiprocessing
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

HOST, PATIENCE = "127.0.0.1", timedelta(minutes=5)


def meetings_us(processes: int, times: int) -> list[int]:
    """Of each meeting over gloo the time from the first process's call to the last one's return.

    Processes have imported torch and are connected to the store before; each meeting has a part of it for itself, and
    the groups of one are gone before the next.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch.distributed"])
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    members = [context.Process(target=_meet, args=(store.port, rank, processes, times)) for rank in range(processes)]
    for one in members:
        one.start()
    try:
        return [_met(store, meeting, processes) for meeting in range(times)]
    finally:
        for one in members:
            one.join(timeout=30)
            one.kill()
            one.join()


def _met(store: TCPStore, meeting: int, processes: int) -> int:
    for rank in range(processes):
        store.get(f"ready/{meeting}/{rank}")
    store.set(f"go/{meeting}", "")
    spans = [store.get(f"met/{meeting}/{rank}").split() for rank in range(processes)]
    began, ended = (pick(int(span[which]) for span in spans) for which, pick in ((0, min), (1, max)))
    return (ended - began) // 1000


def _meet(port: int, rank: int, processes: int, times: int) -> None:
    """One process: the same meeting again and again."""
    torch.set_num_threads(1)
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    store = TCPStore(HOST, port, is_master=False, wait_for_workers=False, timeout=PATIENCE)
    for meeting in range(times):
        place = PrefixStore(f"group/{meeting}", store)
        store.set(f"ready/{meeting}/{rank}", "")
        store.get(f"go/{meeting}")
        began = time.monotonic_ns()
        dist.init_process_group("gloo", store=place, rank=rank, world_size=processes, timeout=PATIENCE)
        ended = time.monotonic_ns()
        store.set(f"met/{meeting}/{rank}", f"{began} {ended}")
        dist.barrier()
        dist.destroy_process_group()
