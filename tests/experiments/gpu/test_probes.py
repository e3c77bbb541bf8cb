"""The probes answer on sim, where most answers are known; on CUDA they are asked the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.gpu import memory_probes, probes, speed_probes
from experiments.gpu.probes import PROBES, main, run_probes
from runtime.device import memory_limit_bytes, sim_hardware
from solvers.ir.errors import InvalidInput
from tests.accelerators import ON_EACH, prepared

MIB = 1 << 20
QUICK = {name: probe for name, probe in PROBES.items() if name not in ("side_stream", "products_of_ones_or_random")}


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    return prepared(getattr(request, "param", "sim"))


@ON_EACH
def test_every_probe_has_an_answer(device: torch.device, tmp_path: Path) -> None:
    found = run_probes(device, tmp_path / "probes.json", QUICK)
    assert list(found) == list(QUICK)
    assert not [answer for answer in found.values() if "error" in answer or "lacks" in answer]
    assert json.loads((tmp_path / "probes.json").read_text()) == found
    assert found["swap_round_trip"]["left"] and found["swap_round_trip"]["same"]
    assert found["refused_allocation"]["ooms"] == 3
    for row in (*found["block_sizes"]["rows"],):
        assert row["asked"] <= row["counted"]
        assert row["counted"] <= row["segments"] or row["asked"] <= MIB  # a small one finds room that others left
    for row in found["pinned_rounding"]["rows"]:
        assert row["held"] >= row["asked"]


def test_sim_is_as_it_is_modelled(device: torch.device) -> None:
    """In mode exact: multiples of 512 bytes, pinned memory to the byte, nothing that belongs to no tensor."""
    assert memory_probes.memory_totals(device)["total"] == memory_limit_bytes(device)
    assert memory_probes.workspaces(device) == {"left_bytes": 0}
    rows = memory_probes.block_sizes(device)["rows"]
    assert [row["counted"] for row in rows] == [-(-row["asked"] // 512) * 512 for row in rows]
    copies = speed_probes.copies(device)
    assert copies["duplex"] == "full"
    assert copies["gb_per_s"]["device to host"] == pytest.approx(sim_hardware().links[0].bytes_per_s / 1e9, rel=0.02)


def test_a_probe_that_fails_hides_no_other(device: torch.device, tmp_path: Path) -> None:
    def broken(_: torch.device) -> Mapping[str, Any]:
        raise RuntimeError("no\nluck")

    def silent(_: torch.device) -> Mapping[str, Any]:
        raise InvalidInput("the device does not say: ask another")

    found = run_probes(
        device, tmp_path / "p.json", {"broken": broken, "silent": silent, "versions": PROBES["versions"]}
    )
    assert found["broken"]["error"] == "RuntimeError: no luck"
    assert found["silent"]["lacks"] == "the device does not say: ask another"
    assert found["versions"]["torch"] == torch.__version__


def test_the_exit_code_counts_errors_only(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probes, "run_probes", lambda *_: {"a": {"lacks": "x"}, "b": {"seconds": 1}})
    assert main([str(tmp_path / "p.json"), "--device", "sim"]) == 0
    assert "1 answers; 1 not told: a" in capsys.readouterr().out
    monkeypatch.setattr(probes, "run_probes", lambda *_: {"a": {"error": "x"}})
    assert main([str(tmp_path / "p.json"), "--device", "sim"]) == 1
    assert "1 raised errors: a" in capsys.readouterr().out


@pytest.mark.soak
def test_one_operator_on_a_side_stream_does_not_slow_a_session(device: torch.device) -> None:
    assert speed_probes.side_stream(device)["ratio"] == pytest.approx(1, abs=0.02)
