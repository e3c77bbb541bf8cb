"""The race's file: written after each way, and joined by a second run under other settings."""

import json
import time
from pathlib import Path

import pytest
import torch

from experiments.bench.offload.model import RaceShape
from experiments.bench.offload.run import Ran
from experiments.gpu import race as command
from experiments.gpu.race import FORMAT, run_shape
from runtime.device import CachingAllocator
from tests.accelerators import prepare_sim

SHAPE = RaceShape(layers=1, width=16, heads=2, context=16, batch=2)
prepare_sim()


def test_two_runs_share_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second under the allocator's other setting; rows are made up."""
    out = tmp_path / "race.json"
    sizes: list[int] = []

    expandable: list[bool] = []

    def racing(
        device: str,
        shape: RaceShape,
        ways: object,
        plans: object,
        tell: object,
        until: float,
        segments: CachingAllocator,
    ) -> None:
        expandable.append(segments.expandable_segments)
        for row in (Ran("plain", 50.0, losses=(2.0,)), Ran("session, 60%", 55.0, losses=(2.0,))):
            tell(row)  # type: ignore[operator]
            sizes.append(len(json.loads(out.read_text())["races"][-1]["rows"]))

    monkeypatch.setattr(command, "race", racing)
    assert run_shape(out, torch.device("sim"), SHAPE, time.monotonic(), [])
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert run_shape(out, torch.device("sim"), SHAPE, time.monotonic(), [])
    assert sizes == [1, 2, 1, 2] and expandable == [False, True]
    told = json.loads(out.read_text())
    assert told["format"] == FORMAT
    assert [race["allocator"] for race in told["races"]] == ["", "expandable_segments:True"]
    assert told["races"][0]["shape"] == {"layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 2}
    assert told["races"][1]["rows"][1]["step_us"] == 55.0
    assert "1 x 16, session, 60%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ([Ran("plain", 50.0, losses=(2.0,)), Ran("trl", error="not installed")], True),
        ([Ran("plain", 50.0, losses=(2.0,)), Ran("session", 55.0, losses=(2.5,))], False),
        ([Ran("plain", error="out of memory")], False),
    ],
)
def test_other_losses_are_a_failure_and_absent_rivals_are_not(
    rows: list[Ran], good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "race", lambda *given: [given[4](row) for row in rows])
    assert run_shape(tmp_path / "race.json", torch.device("sim"), SHAPE, 0.0, []) is good


def test_every_shape_gets_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first leaves is the second's: of 60 s the first may take 30, and the second then all that is left."""
    given: list[float] = []
    now = [100.0]

    def run(out: Path, device: torch.device, shape: RaceShape, until: float, racing: object) -> bool:
        given.append(until)
        now[0] += 10.0
        return True

    monkeypatch.setattr(command, "SIM_SHAPES", (SHAPE, SHAPE))
    monkeypatch.setattr(command, "run_shape", run)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert command.main([str(tmp_path / "race.json"), "--device", "sim", "--seconds", "60"]) == 0
    assert given == [130.0, 160.0]


def test_without_time_every_way_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SIM_SHAPES", (SHAPE,))
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        assert command.main([str(tmp_path / "race.json"), "--device", "sim", "--few", "--seconds", "1e-9"]) == 1
    finally:
        torch.use_deterministic_algorithms(deterministic)
    rows = json.loads((tmp_path / "race.json").read_text())["races"][0]["rows"]
    assert [row["error"] for row in rows] == ["not run: the time was over"] * 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--way", "bogus"], "--way 'bogus' is no way to race with 8 x 128: choose of plain; joint, 75%"),
        (["--way", "plain", "--few"], "--few and --way both say who races: give one of them"),
        (["--seconds", "nan"], "--seconds is nan: give more than 0, as in --seconds 70"),
        (["--shape", "1 x 1"], "--shape '1 x 1' is not raced on sim: choose of 8 x 128"),
    ],
)
def test_names_of_nothing_are_refused(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(tmp_path / "race.json"), "--device", "sim", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_only_what_is_asked_for_races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order that is asked for, behind the plain run; and settings are as before."""
    monkeypatch.setattr(command, "SIM_SHAPES", (SHAPE,))
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    words = ["--way", "joint, 60%", "--way", "full recomputation", "--way", "plain", "--seconds", "1e-9"]
    assert command.main([str(tmp_path / "race.json"), "--device", "sim", *words]) == 1
    rows = json.loads((tmp_path / "race.json").read_text())["races"][0]["rows"]
    assert [row["way"] for row in rows] == ["plain", "joint, 60%", "full recomputation"]
    assert before == (torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]
