"""The job as a script with torchft, which goes on with the replicas that are left: a replica is a whole pipeline.

torchrun … -m experiments.elastic.rivals.torchft_program FOLDER REPLICA, once for each replica
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo

from experiments.elastic.rivals.stage import Asked, Diary, Kills, Stage, read_asked

START = timedelta(minutes=5)


def train(asked: Asked, folder: Path, replica: int) -> None:
    """One process of one replica; a fresh replica takes weights and optimizer states from another one."""
    dist.init_process_group("gloo", timeout=START)
    number, depth, replicas = dist.get_rank(), asked.pipeline, asked.nodes // asked.pipeline
    diary = Diary(folder)
    kills = Kills(asked, folder, diary, replica * depth + number)
    stage = Stage(asked, replica, number, kills, list(range(depth)))
    patience = timedelta(seconds=asked.hang_s)
    # On step 0 all have the same first weights, which are the seed's; a quorum is met before each step, not beside it.
    manager: Any = Manager(
        pg=ProcessGroupGloo(timeout=patience), min_replica_size=1, load_state_dict=stage.load, state_dict=stage.state,
        replica_id=f"pipeline_{replica}", timeout=patience, quorum_timeout=START, connect_timeout=START,
        use_async_quorum=False, init_sync=False,
    )  # fmt: skip
    _meet(folder, replica, replicas)
    dist.barrier()
    if number == 0:
        diary.add("started", step=manager.current_step(), replica=replica)
    while manager.current_step() < asked.steps:
        manager.start_quorum()
        step = manager.current_step()
        if step >= asked.steps:
            break
        total = stage.gradients(step)
        for value in [total, *(layer.flat_gradients() for layer in stage.layers)]:
            manager.allreduce(value).wait()
            value *= replicas  # it gives the mean over replicas, and the job counts microbatches
        if manager.should_commit():
            stage.update()
            if stage.last:
                there = manager.num_participants()
                diary.add("step", step=step, loss=float(total) / stage.job.microbatches, replicas=there)
        else:
            for layer in stage.layers:
                layer.forget()
    manager.shutdown(wait=False)
    sys.stdout.flush()
    os._exit(0)  # its threads wait for other replicas


def _meet(folder: Path, replica: int, replicas: int) -> None:
    """All replicas begin together, as a quorum of the first ones would train without the others; later ones pass.

    Their managers' hearts beat by then, and a quorum waits for those.
    """
    (folder / f"ready-{replica}").touch()
    while not all((folder / f"ready-{one}").exists() for one in range(replicas)):
        time.sleep(0.05)


if __name__ == "__main__":
    train(read_asked(Path(sys.argv[1])), Path(sys.argv[1]), int(sys.argv[2]))
