"""No configuration runs code of its own choice: not by `_target_`, not by Hydra's own settings."""

from pathlib import Path

import pytest

from tests.experiments.commands.console import call, refused

LOUD = "builtins.print"
LYNX = ["experiment=lynx", "plots=false"]


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
        ["hydra/job_logging=default", "hydra.job_logging.handlers.file.class=logging.os.system"],
        ["hydra/job_logging=default", "+hydra.job_logging.handlers.file.queue=antigravity.fly"],
        [r"hydra.searchpath=[pkg://antigravity]"],
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


@pytest.mark.parametrize(
    "words",
    [
        [f"+hydra.launcher.foo='${{oc.create:{{_target_:{LOUD}}}}}'"],
        ["hydra/job_logging=default", "hydra.job_logging.handlers.console.stream='${oc.decode:x}'"],
        ["hydra.launcher=${name}"],
    ],
)
def test_nothing_of_it_is_resolved_later(words: list[str]) -> None:
    for more in ([], ["-m"]):
        assert "which is resolved too late to judge" in refused(call("compare", *words, *more))


def test_names_times_and_the_environment_may_stand_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    monkeypatch.setenv("JOBS", "${oc.decode:x}")  # is text, and nothing more
    launcher = [
        "hydra/launcher=submitit_local",
        "hydra.launcher.name='${name}-${now:%H}-${oc.env:JOBS}-${hydra:job.num}'",
    ]
    logs = [
        "hydra/job_logging=default",
        "hydra.job_logging.handlers.file.filename='${hydra:runtime.output_dir}/my.log'",
    ]
    assert call("compare", *LYNX, *launcher, *logs, "--cfg", "hydra").code == 0
    folder = tmp_path / "run"
    assert call("compare", *LYNX, *logs, f"run_dir={folder}").code == 0
    assert (folder / "my.log").is_file()


def test_what_they_stand_for_is_judged_as_if_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR", "ext://antigravity.fly")
    stream = ["hydra/job_logging=default", "hydra.job_logging.handlers.console.stream='${oc.env:FAR}'"]
    assert "is 'ext://antigravity.fly', but no configuration runs code" in refused(call("compare", *stream))
    joblib = ["hydra/launcher=joblib", "hydra.launcher.temp_folder=${hydra.run}"]
    assert "which is no single value" in refused(call("compare", *joblib, "--cfg", "hydra"))
    missing = ["hydra/launcher=joblib", "hydra.launcher.temp_folder='${oc.env:NOPE_AT_ALL}'"]
    assert "NOPE_AT_ALL" in refused(call("compare", *missing, "--cfg", "hydra"))


def test_submitit_is_given_no_shell(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    local = ["compare", *LYNX, "-m", "microbatch=8", "hydra/launcher=submitit_local", f"run_dir={tmp_path / 'run'}"]
    assert "a command for a shell" in refused(call(*local, f"+hydra.launcher.setup=['touch {tmp_path}/x']"))
    assert "there is no setting of hydra.launcher 'srun_args'" in refused(
        call(*local, "+hydra.launcher.srun_args=[-v]")
    )
    assert "holds a line break" in refused(call(*local, "hydra.launcher.name='a\nb'"))
    assert list(tmp_path.iterdir()) == []


def test_a_cell_chooses_no_file_that_would_call_something(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = (
        "# @package _global_\nhydra: {job_logging: {root: {level: INFO}, formatters: {mine: {'()': builtins.print}}}}\n"
    )
    for name in ("one", "two"):
        (tmp_path / "model" / f"{name}.yaml").write_text(text)
    said = refused(call("compare", "-cd", tmp_path, *LYNX, "-m", "+model=one,two", f"run_dir={tmp_path / 'run'}"))
    assert said.startswith("hydra.job_logging.formatters.mine.() is 'builtins.print'")
    assert not (tmp_path / "run").exists()


def test_a_search_path_holds_folders_that_are_there(tmp_path: Path) -> None:
    for words in (["--cfg", "job"], ["--hydra-help"], ["-sc", "query=bash"], []):
        said = refused(call("compare", *words, "hydra.searchpath=[pkg://antigravity]"))
        assert said.startswith("hydra.searchpath has 'pkg://antigravity'"), words
    assert "which is no folder" in refused(call("compare", f"hydra.searchpath=[file://{tmp_path}/none]"))
    assert call("compare", f"hydra.searchpath=[{tmp_path}, file://{tmp_path}]", "--cfg", "job").code == 0
