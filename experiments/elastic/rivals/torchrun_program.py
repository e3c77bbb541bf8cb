"""The job as an ordinary script for torchrun, which restarts everyone: alike pipelines, a checkpoint each few steps.

python -m torch.distributed.run … -m experiments.elastic.rivals.torchrun_program FOLDER
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from experiments.elastic.rivals.stage import Asked, Diary, Kills, Stage, read_asked

START = timedelta(minutes=5)
"""For processes to meet: they start as fast as they can import."""
LATEST = "latest"


class Checkpoints:
    """One file a stage, written by the first pipeline, and one that names the last step all of them have."""

    def __init__(self, folder: Path, stage: int, *, writes: bool) -> None:
        self._folder, self._stage, self._writes = folder, stage, writes

    def save(self, step: int, stage: Stage) -> None:
        """All processes call it before step `step`: it is whole once all have written."""
        if self._writes:
            torch.save(stage.state(), self._place(step))
        dist.barrier()
        if dist.get_rank() == 0:
            whole = self._folder / f".{LATEST}"
            whole.write_text(str(step))
            whole.replace(self._folder / LATEST)

    def load(self, stage: Stage) -> int:
        """The step to go on with."""
        latest = self._folder / LATEST
        if not latest.exists():
            return 0
        step = int(latest.read_text())
        stage.load(torch.load(self._place(step), weights_only=True))
        return step

    def _place(self, step: int) -> Path:
        return self._folder / f"step-{step}-stage-{self._stage}.pt"


def train(asked: Asked, folder: Path) -> None:
    """One process of the training, from the last checkpoint on."""
    dist.init_process_group("gloo", timeout=START)
    rank, depth, replicas = dist.get_rank(), asked.pipeline, asked.nodes // asked.pipeline
    replica, number = divmod(rank, depth)
    alike = [dist.new_group([one * depth + stage for one in range(replicas)]) for stage in range(depth)][number]
    diary = Diary(folder)
    kills = Kills(asked, folder, diary, rank)
    stage = Stage(asked, replica, number, kills, [replica * depth + one for one in range(depth)])
    checkpoints = Checkpoints(folder, number, writes=replica == 0)
    begin = checkpoints.load(stage)
    dist.barrier()
    if rank == 0:
        diary.add("started", step=begin, restart=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    for step in range(begin, asked.steps):
        total = stage.gradients(step)
        for value in [total, *(layer.flat_gradients() for layer in stage.layers)]:
            work = dist.all_reduce(value, group=alike, async_op=True)
            assert work is not None, "this process is a member"
            work.wait(timedelta(seconds=asked.hang_s))
        stage.update()
        if rank == depth - 1:
            diary.add("step", step=step, loss=float(total) / stage.job.microbatches)
        if (step + 1) % asked.every == 0:
            checkpoints.save(step + 1, stage)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(read_asked(Path(sys.argv[1])), Path(sys.argv[1]))
