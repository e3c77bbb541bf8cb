"""What Hydra shows of `compare` and `train`, and what it says of what is not there."""

from pathlib import Path

import pytest

from tests.experiments.commands.console import call, refused


@pytest.mark.parametrize("command", ["compare", "train"])
def test_both_commands_show_settings_and_help(command: str) -> None:
    assert "name: demo" in call(command, "experiment=demo", "--cfg", "job").out
    assert "== Hydra's flags ==" in call(command, "--help").out


def test_a_trainer_of_its_own_has_its_own_usage_and_settings() -> None:
    outcome = call("train", "experiment=stability", "--help")
    assert outcome.out.startswith("bayplan train experiment=stability") and "\nvalidate_every: 200\n" in outcome.out


def test_a_part_that_is_not_there_is_refused() -> None:
    assert "--package is 'nothing'" in refused(call("compare", "--cfg", "job", "--package", "nothing"))
    assert "--package is 'hydra.launcher'" in refused(
        call("compare", "experiment=lynx", "-c", "job", "-p", "hydra.launcher")
    )
    assert call("compare", "experiment=lynx", "-c", "hydra", "-p", "hydra.launcher").code == 0
    assert "invalid choice: 'nothing'" in refused(call("compare", "--info", "nothing"))
    assert refused(call("compare", "--cfg", "job", "steps=x")).startswith("steps: Value 'x'")


def test_experiments_of_ones_own_folder_are_listed_and_composed(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nkind: pipeline\nname: mine\nshape: gpt-7b\ncluster: lynx-pcie\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    outcome = call("compare", "--config-dir", tmp_path, "experiment=mine", "--cfg", "job")
    assert outcome.code == 0 and "name: mine\nshape: gpt-7b" in outcome.out
    assert "\nmine: of a folder on the search path\n" in call("compare", "--config-dir", tmp_path, "--help").out
