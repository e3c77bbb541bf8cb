"""FSDP2 as a layout plan says: the bits of one plain process, on one rank and on two; less of the device is taken."""

import random

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule

from experiments.models import Batches, GptShape
from experiments.ranks.models import build, own_seed
from experiments.ranks.programs import Job
from experiments.ranks.reference import reference
from runtime.layout.fsdp2 import shard_by
from runtime.ranks import RankRun
from solvers.ir import InvalidInput
from solvers.layout.fsdp2 import Fsdp2Settings, Fsdp2Unit
from tests.runtime.ranks.cluster import run

SHAPE = GptShape(layers=4, width=32, heads=4, context=16, batch=2, dropout=0.1)


def settings_of(seed: int, layers: int = SHAPE.layers) -> Fsdp2Settings:
    """Any settings; those of a plan are a case of them."""
    source = random.Random(seed)
    names = ["first", *(f"blocks.{number}" for number in range(layers)), "last"]
    units = [Fsdp2Unit(name, *(source.random() < 0.5 for _ in range(3))) for name in names]
    return Fsdp2Settings(tuple(units), ())


def trained(settings: Fsdp2Settings, ranks: int) -> RankRun[list[float]]:
    job = Job("fsdp2", SHAPE, ranks, steps=3, microbatches=1)

    def program(rank: int, device: torch.device) -> list[float]:
        model = build("fsdp2", SHAPE)
        torch.manual_seed(own_seed("fsdp2", SHAPE.seed, rank))
        shard_by(model, settings, init_device_mesh("sim", (ranks,)), device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=SHAPE.learning_rate, foreach=False)
        batches, losses = Batches(SHAPE.batch, SHAPE.context, SHAPE.seed), []
        for step in range(job.steps):
            inputs, targets = (part.to(device) for part in batches[step * ranks + rank])
            optimizer.zero_grad()
            loss = model(inputs, targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    done = run(program, ranks)
    assert done.values == [one.losses for one in reference(job)], settings
    assert done.races == []
    return done


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_random_settings_train_the_same_bits(seed: int, ranks: int) -> None:
    trained(settings_of(seed), ranks)


def test_what_is_offloaded_is_not_on_the_device() -> None:
    names = ["first", *(f"blocks.{number}" for number in range(SHAPE.layers)), "last"]
    stays, leaves = (
        Fsdp2Settings(tuple(Fsdp2Unit(name, away, away, away) for name in names), ()) for away in (False, True)
    )
    all_here, all_away = (trained(settings, 1).reports[0] for settings in (stays, leaves))
    assert all_away.peak_bytes < all_here.peak_bytes * 2 / 3
    assert all_away.makespan_us > all_here.makespan_us


def test_blocks_are_units_and_other_models_are_refused() -> None:
    def program(rank: int, device: torch.device) -> int:
        model = build("fsdp2", SHAPE)
        mesh = init_device_mesh("sim", (1,))
        with pytest.raises(InvalidInput, match="make them of a plan for this model"):
            shard_by(model, settings_of(0, layers=3), mesh, device)
        assert not isinstance(model, FSDPModule)
        shard_by(model, settings_of(0), mesh, device)
        assert dist.get_world_size() == 1
        return sum(isinstance(module, FSDPModule) for module in model.modules())

    assert run(program, 1).values == [SHAPE.layers + 1]
