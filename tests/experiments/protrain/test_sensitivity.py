"""Slower links: what is compared with what, and that the rates really change."""

from pathlib import Path

from experiments.hardware import read_hardware
from experiments.protrain.setting import with_rates
from solvers.ir.hardware import HOST
from tests.experiments.protrain.test_tables import computed

RATES = {"as assumed": {"host": 1, "network": 1}, "both at half": {"host": 0.5, "network": 0.5}}
ROW = {
    "label": "B", "shape": "gpt2-1b", "batch": 64, "checkpoint": 24, "swap": 2, "chunks": 12, "persist": 2, "buffers": 3
}  # fmt: skip
MODEL = {"label": "10B", "shape": "gpt2-10b"}


def test_each_kind_of_link_has_its_own_rate() -> None:
    hardware = read_hardware("protrain-3090")
    slower = with_rates(hardware, host=lambda rate: rate // 2, network=lambda rate: rate // 4)
    for before, after in zip(hardware.links, slower.links, strict=True):
        assert before.bytes_per_s // after.bytes_per_s == (2 if HOST in (before.a, before.b) else 4)


def test_slower_links_never_help_and_the_best_choice_is_no_slower_than_others(tmp_path: Path) -> None:
    study = {"shape": "gpt2-1b", "scaled": [4], "ablated": [64]}
    result = computed(tmp_path, "sensitivity", rates=RATES, batches=[16, 64], models=[MODEL], rows=[ROW], study=study)
    for system in ("protrain", "deepspeed", "colossal", "fsdp"):
        speeds = result.named(system).numbers()
        assert speeds["10B, as assumed"] > speeds["10B, both at half"]
    ours, papers = (result.named(name).numbers() for name in ("step", "paper's configuration"))
    assert ours["B, as assumed"] < ours["B, both at half"] < papers["B, both at half"]
    swapped = result.named("swapped").numbers()
    assert swapped["B, both at half"] < swapped["B, as assumed"]
    before = result.named("as chosen without sharing").points
    assert before["B, as assumed"] == ours["B, as assumed"]
    assert before["B, both at half"] == "out of memory"  # an interval twice as long keeps more blocks on the device


def test_one_device_shares_its_link_with_nothing_and_ablations_follow_the_rates(tmp_path: Path) -> None:
    study = {"shape": "gpt2-1b", "scaled": [2, 8], "ablated": [64]}
    result = computed(tmp_path, "sensitivity", rates=RATES, batches=[16], models=[], rows=[], study=study)
    scaled = result.named("protrain over one device").numbers()
    assert 4.2 > scaled["as assumed"] > scaled["both at half"] > 1
    again = result.named("checkpoint all blocks").numbers()
    assert again["batch 64, as assumed"] > again["batch 64, both at half"] >= 1
