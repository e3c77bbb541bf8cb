"""The streams of operations between ranks are no program's, however many runs and streams there are."""

import torch
import torch.distributed as dist

from runtime.ranks import run_ranks
from runtime.ranks.lanes import Lane

CLUSTER = "conf/hardware/sim-cluster.json"


def program(rank: int) -> tuple[set[int], float]:
    """Takes more streams than the pool has, and sums over all ranks on one of them."""
    dist.init_process_group("sim")
    pool = [torch.Stream(device=f"sim:{rank}") for _ in range(40)]
    total = torch.ones(4, device=f"sim:{rank}")
    pool[7].wait_stream(torch.accelerator.current_stream())
    with pool[7]:
        dist.all_reduce(total)
    torch.accelerator.current_stream().wait_stream(pool[7])
    dist.destroy_process_group()
    return {stream.stream_id for stream in pool}, total.sum().item()


def test_lanes_are_not_of_the_pool(plain_sim: None) -> None:
    for _ in range(3):  # streams stay from run to run, and a lane is the same one each time
        run = run_ranks(program, 2, hardware=CLUSTER)
        assert [total for _, total in run.values] == [8.0, 8.0]
        lanes = {record.stream for record in run.trace if record.kind == "comm"}
        assert lanes == {Lane(torch.device("sim", rank), 0).stream.stream_id for rank in (0, 1)}
        assert not any(lanes & pool for pool, _ in run.values)
