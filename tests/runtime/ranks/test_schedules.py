"""Schedules of torch.distributed.pipelining with two stages a rank, against the layers one after the other."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules

from tests.runtime.ranks.cluster import run

pytestmark = pytest.mark.usefixtures("plain_sim")
WIDTH = 6
V_SHAPED = "ScheduleZBVZeroBubble"


def layers(ranks: int) -> list[nn.Linear]:
    """One for each stage, the same everywhere."""
    torch.manual_seed(0)
    return [nn.Linear(WIDTH, WIDTH) for _ in range(2 * ranks)]


def numbers(ranks: int) -> tuple[Tensor, Tensor]:
    """What goes in, and what should come out: two rows for each of twice as many microbatches as ranks."""
    generator = torch.Generator().manual_seed(1)
    given, wanted = (torch.randn(4 * ranks, WIDTH, generator=generator) for _ in range(2))
    return given, wanted


def loss(found: Tensor, wanted: Tensor) -> Tensor:
    """Of one microbatch."""
    return (found - wanted).square().mean()


def pipelined(name: str, ranks: int, rank: int, device: torch.device) -> dict[int, Tensor]:
    """The gradients of a rank's own stages."""
    every, last = layers(ranks), 2 * ranks - 1
    mine = [rank, last - rank if name == V_SHAPED else rank + ranks]
    stages: list[Any] = [PipelineStage(every[stage].to(device), stage, 2 * ranks, device) for stage in mine]
    schedule = getattr(schedules, name)(stages, 2 * ranks, loss_fn=loss, scale_grads=False)
    given, wanted = (tensor.to(device) for tensor in numbers(ranks))
    target = {"target": wanted} if last in mine else {}
    schedule.step(*([given] if 0 in mine else []), **target)
    return {stage: every[stage].weight.grad.cpu() for stage in mine}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("ScheduleInterleaved1F1B", 2),
        ("ScheduleInterleaved1F1B", 3),
        ("ScheduleInterleavedZeroBubble", 2),
        (V_SHAPED, 2),
        ("ScheduleLoopedBFS", 2),
    ],
)
def test_two_stages_a_rank_have_the_gradients_of_one_process(name: str, ranks: int) -> None:
    done = run(lambda rank, device: pipelined(name, ranks, rank, device), ranks, noise=0.1)
    every = layers(ranks)
    microbatches = list(zip(*(tensor.chunk(2 * ranks) for tensor in numbers(ranks)), strict=True))
    # The latest microbatch's backward comes first there: sums are in that order.
    for given, wanted in reversed(microbatches) if name == "ScheduleLoopedBFS" else microbatches:
        for layer in every:
            given = layer(given)
        loss(given, wanted).backward()  # type: ignore[no-untyped-call]
    found = {stage: gradient for value in done.values for stage, gradient in value.items()}
    assert sorted(found) == list(range(2 * ranks))
    for stage, layer in enumerate(every):
        assert torch.equal(found[stage], layer.weight.grad)  # type: ignore[arg-type]
    assert done.races == []
