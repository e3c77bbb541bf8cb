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


@pytest.mark.parametrize("name", ["PYTHONPATH", "PATH", "LD_PRELOAD", "OMP_TOOL_LIBRARIES"])
def test_a_configuration_sets_no_variable_that_chooses_code(name: str, tmp_path: Path) -> None:
    for more in ([], ["-m", "microbatch=8"], ["--cfg", "job"]):
        said = refused(
            call("compare", *LYNX, f"+hydra.job.env_set.{name}={tmp_path}", *more, f"run_dir={tmp_path}/run")
        )
        assert said.startswith(f"hydra.job.env_set.{name} is '{tmp_path}', but a configuration may only set")
        assert "OMP_NUM_THREADS" in said and "set it in the shell" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_sets_no_such_variable_either(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = f"# @package _global_\nhydra: {{job: {{env_set: {{PATH: {tmp_path}}}}}}}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    assert refused(call("compare", "--config-dir", tmp_path, "experiment=mine")).startswith("hydra.job.env_set.PATH is")


def test_threads_may_be_set_and_the_shells_variables_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "as it is")
    words = ["+hydra.job.env_set.OMP_NUM_THREADS=2", "hydra.job.env_copy=[MINE]", "--cfg", "hydra"]
    assert call("compare", *LYNX, *words).code == 0
    monkeypatch.setenv("MINE", "${name}")
    assert "hydra.job.env_set.MINE is" in refused(call("compare", *LYNX, *words))
    assert "resolved too late" in refused(call("compare", *LYNX, "hydra.job.env_set=${systems}"))


def test_slurm_is_given_no_line_and_no_flag_that_chooses_code(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    slurm = ["compare", *LYNX, "hydra/launcher=submitit_slurm", "--cfg", "job"]
    more = "hydra.launcher.additional_parameters"
    (tmp_path / "experiment").mkdir()
    text = '# @package _global_\nhydra: {launcher: {additional_parameters: {"a\\ntouch x\\n": {}}}}\n'
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    mine = ["-cd", tmp_path, "experiment=mine", *slurm[3:]]
    assert "has a key 'a\\ntouch x\\n'" in refused(call("compare", *mine))
    assert "has 'export', which is none of the flags" in refused(call(*slurm, f"+{more}.export='PYTHONPATH=/x'"))
    assert "has 'chdir', which is none of the flags" in refused(call(*slurm, f"+{more}={{chdir: /x}}"))
    for sign in ("\n", "\r"):
        assert "holds a line break" in refused(call(*slurm, f"+{more}.mail_user='x{sign}y'"))
    assert call(*slurm, f"+{more}.mail-user=x").code == 0


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (f"+_target_={LOUD}", "no configuration runs code"),
        ("+nosuch=1", "there is no setting 'nosuch'"),
        ("microbatch=0", "microbatch is 0, outside"),
    ],
)
def test_what_a_run_would_refuse_is_not_shown(word: str, sentence: str) -> None:
    for more in (["--cfg", "job"], ["--cfg", "all"], ["--info", "config"]):
        assert sentence in refused(call("compare", *LYNX, word, *more))
