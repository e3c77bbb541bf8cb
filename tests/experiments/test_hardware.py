"""Hardware by name or path."""

from pathlib import Path

import pytest

from experiments.hardware import SHIPPED, hardware_names, read_hardware
from solvers.ir import InvalidInput


def test_every_shipped_file_carries_its_own_name_and_has_a_host_link() -> None:
    assert hardware_names()
    for name in hardware_names():
        hardware = read_hardware(name)
        assert hardware.name == name
        assert hardware.link(hardware.device().name, "host").bytes_per_s > 0


def test_a_file_in_the_working_directory_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (SHIPPED / "sim-small.json").read_text()
    Path("sim-other").write_text(text.replace('"sim-small"', '"my own"'))
    assert read_hardware("sim-other").name == "my own"


def test_what_looks_like_a_path_is_never_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("sim-small.json", "./sim-small.json", "conf/sim-small"):
        with pytest.raises(InvalidInput, match="cannot read"):
            read_hardware(path)
    with pytest.raises(InvalidInput, match="did you mean 'sim-small'"):
        read_hardware("simsmall")
