"""PyTorch's samples run again on a tape with the same bits; nothing is refused."""

import warnings
from pathlib import Path

import pytest
import torch

from runtime.device import use_sim
from tests.runtime.recompute.opinfo.parts import sweep_in_parts
from tests.runtime.recompute.opinfo.report import document, page
from tests.runtime.recompute.opinfo.sweep import Plan, Tally, programs, sweep

pytestmark = pytest.mark.usefixtures("plain_sim")
SHARDS = 10


def accept(tally: Tally, share: float = 0.8, refused: frozenset[str] = frozenset()) -> None:
    """Fails where something differs, where others than these are refused, or where less than a share ran again."""
    assert tally.different == {}
    found = {sentence: set(who) - refused for sentence, who in tally.refused.items()}
    assert {sentence: who for sentence, who in found.items() if who} == {}
    assert tally.replayed.total() >= share * tally.equal.total()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_tenth_of_all_operators_and_modules(device: str) -> None:
    use_sim(capacity_bytes=8 << 30)
    tally = sweep(programs(Plan(shard=(3, SHARDS))), device)
    accept(tally)
    assert tally.equal.total() >= 50


@pytest.mark.soak
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_more_samples_of_every_type(device: str, shard: int) -> None:
    use_sim(capacity_bytes=8 << 30)
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally = sweep(programs(Plan(dtypes, 3, shard=(shard, SHARDS))), device)
    # A reduced sparse product makes results of other sizes when it runs again: refused in the backward pass, by name.
    accept(tally, share=0.75, refused=frozenset({"sparse.mm.reduce"}))


def test_the_page_says_what_was_found() -> None:
    found = document(
        {"cpu": sweep(programs(Plan(operators="^(exp|nn.BatchNorm2d)$")), "cpu")}, {"command": "this test"}
    )
    assert found["devices"]["cpu"]["different"] == {}
    told = page(found)
    assert "| command | this test |" in told
    assert "| operators and modules | 3 |" in told
    assert "| equal, and something ran again | 3 |" in told


def test_parts_find_what_the_whole_finds_and_run_once(tmp_path: Path) -> None:
    plan = Plan(operators="^(exp|sin|batch_norm|nn.BatchNorm2d)$")
    whole = sweep(programs(plan), "cpu")
    for _ in range(2):
        total, seconds = sweep_in_parts(plan, "cpu", 3, tmp_path, {"commit": "1"})
        assert total == whole
    assert len(list(tmp_path.iterdir())) == 3
    kept = sum(path.stat().st_mtime_ns for path in tmp_path.iterdir())
    assert sweep_in_parts(plan, "cpu", 3, tmp_path, {"commit": "1"})[1] == seconds
    assert sum(path.stat().st_mtime_ns for path in tmp_path.iterdir()) == kept
    with pytest.raises(ValueError, match="was made for"):
        sweep_in_parts(plan, "cpu", 3, tmp_path, {"commit": "2"})
