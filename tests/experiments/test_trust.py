"""No configuration runs code of its own choice: not by `_target_`, not by Hydra's own settings."""

from pathlib import Path

import pytest

from tests.experiments.commands.console import call, refused

LOUD = "builtins.print"


@pytest.mark.parametrize(
    "words",
    [
        [f"model._target_={LOUD}"],
        [f"solver.milp-swap._target_={LOUD}"],
        ["++model._target_=experiments.models.OwnModel"],
        [f"hydra.launcher._target_={LOUD}"],
        [f"hydra.sweeper._target_={LOUD}"],
        [f"+hydra.callbacks.mine._target_={LOUD}"],
        ["hydra/job_logging=default", f"hydra.job_logging.handlers.file.class={LOUD}"],
        ["hydra/job_logging=default", "hydra.job_logging.handlers.console.stream=ext://antigravity.fly"],
    ],
)
def test_what_would_call_a_name_of_ones_own_is_refused(words: list[str], tmp_path: Path) -> None:
    for more in ([], ["-m"]):
        said = refused(call("compare", *words, f"run_dir={tmp_path / 'run'}", *more))
        assert "no configuration runs code of its own choice here: leave it out" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_ones_own_calls_nothing_by_logging(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nhydra: {job_logging: {handlers: {mine: {'()': builtins.print}}}}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    said = refused(call("compare", "--config-dir", tmp_path, "experiment=mine"))
    assert said.startswith("hydra.job_logging.handlers.mine.() is 'builtins.print'")


def test_optunas_own_hooks_are_refused() -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    for hook in ("custom_search_space", "sampler._target_"):
        said = refused(call("compare", "-m", "hydra/sweeper=optuna", f"hydra.sweeper.{hook}={LOUD}"))
        assert f"hydra.sweeper.{hook} is '{LOUD}'" in said


def test_what_hydra_ships_is_trusted() -> None:
    words = ["hydra/job_logging=default", "hydra/launcher=processes", "hydra/sweeper=basic", "--cfg", "hydra"]
    assert call("compare", *words).code == 0
