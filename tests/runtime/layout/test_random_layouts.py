"""Training under any layout gives the bits of plain training."""

import functools

import pytest

from runtime.device import SimDevice
from tests.runtime.layout.models import Language, lora
from tests.runtime.layout.training import Layouts, Trained, train_plainly


@functools.cache
def plain(name: str) -> Trained:
    return train_plainly(MODELS[name])


MODELS = {"untied": Language, "tied": lambda: Language(tied=True), "lora": lora}


@pytest.mark.parametrize("name", MODELS)
def test_random_layouts_train_alike(sim: SimDevice, name: str) -> None:
    layouts = Layouts(MODELS[name])
    for seed in range(7):
        plan = layouts.random_plan(seed)
        assert layouts.train(plan).same_as(plain(name)), plan
    assert sim.races() == []


@pytest.mark.soak
@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_random_layouts_train_alike(sim: SimDevice, name: str) -> None:
    layouts = Layouts(MODELS[name], chunk_bytes=17_000)
    for seed in range(100, 140):
        plan = layouts.random_plan(seed)
        assert layouts.train(plan, overlap=seed % 3 > 0).same_as(plain(name)), plan
