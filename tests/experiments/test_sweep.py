"""Sweeps through Hydra: whatever ends them, no row is lost, none is there twice, and what is lost is said."""

import signal
from pathlib import Path

import pytest

from tests.experiments.commands.console import Outcome, call, refused
from tests.experiments.sweeping.words import CELLS, PATIENCE_S, WORDS, marks, microbatches, started, until
from tests.soaking import in_soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WORKERS = ("hydra/launcher=processes", "hydra.launcher.workers=2")
ALL = list(range(1, CELLS + 1))


def sweep(folder: Path, *words: str) -> Outcome:
    return call("compare", *WORDS, *words, "-m", f"run_dir={folder}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that was interrupted by Ctrl-C, by SIGTERM and by kill -9, and then went on to its end, twice at once."""
    folder = tmp_path_factory.mktemp("sweep") / "run"
    done = dict[str, int]()
    for number, name in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGKILL, None)):
        process = started(folder, *WORKERS)
        until(lambda: len(marks(folder)) > len(done), f"a cell before {number.name}")  # noqa: B023
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
        before, done = done, marks(folder)
        assert len(before) < len(done) < CELLS, "the sweep ended before it was interrupted"
        assert all(done[cell] == at for cell, at in before.items())  # nothing is computed twice
        if name is not None:
            assert process.returncode == 130
            assert f"interrupted by {name}: what was done so far is in {folder}, {len(done)} of {CELLS} cells" in said
            assert sorted(microbatches(folder)) == sorted(set(microbatches(folder)))
    for process in (started(folder, *WORKERS), started(folder)):  # as two hosts would: they divide what is left
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert f" of {CELLS} cells are done already, and kept" in said
    assert all(marks(folder)[cell] == at for cell, at in done.items())
    return folder


def test_an_interrupted_sweep_ends_without_a_lost_or_repeated_row(whole: Path) -> None:
    assert microbatches(whole) == ALL


def test_emptied_and_truncated_cells_are_computed_again_and_said(whole: Path) -> None:
    cells = sorted(whole.glob("cells/*"))
    (cells[0] / "rows.jsonl").write_text("")
    text = (cells[1] / "rows.jsonl").read_text()
    (cells[1] / "rows.jsonl").write_text(text[: len(text) // 2])
    (cells[2] / "rows.jsonl").write_text(text.replace("gpt", "gtp"))
    (cells[3] / "done").write_text("")
    (cells[4] / "rows.jsonl").unlink()
    outcome = sweep(whole)
    assert outcome.code == 0
    assert f"{CELLS - 5} of {CELLS} cells are done already" in outcome.err
    for number, flaw in enumerate(
        (
            "its rows.jsonl is empty",
            "its rows.jsonl holds 0 whole rows of 1",
            "its rows.jsonl was changed",
            "its mark done cannot be read",
            "its rows.jsonl is gone",
        )
    ):
        assert f"damaged and computed again: {cells[number].name}: {flaw}" in outcome.err
    assert microbatches(whole) == ALL


def test_another_configuration_takes_the_folder_only_by_force(whole: Path) -> None:
    before = (whole / "rows.jsonl").read_text()
    fewer = [word for word in WORDS if not word.startswith("microbatch")]
    said = refused(call("compare", *fewer, "microbatch=1,2", "-m", f"run_dir={whole}"))
    assert "holds a sweep of which this one has not all cells (10 missing" in said and "force=true" in said
    assert "holds a sweep" in refused(call("compare", *fewer, f"run_dir={whole}"))
    assert (whole / "rows.jsonl").read_text() == before


@pytest.mark.parametrize(
    "launcher",
    [
        ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
        in_soak(["hydra/launcher=submitit_local", "hydra.sweeper.max_batch_size=2"]),
    ],
    ids=["joblib", "submitit_local"],
)
def test_hydras_launchers_run_the_cells_that_are_not_done(launcher: list[str], whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    lost = [cell for cell in sorted(whole.glob("cells/*")) if "microbatch=1" in cell.name][:3]
    for cell in lost:
        (cell / "done").unlink()
    outcome = sweep(whole, *launcher)
    assert outcome.code == 0, outcome.err
    assert f"begun by an earlier run, and lost with it: {len(lost)} cells, computed again" in outcome.err
    assert microbatches(whole) == ALL


def test_the_optuna_sweeper_finds_the_best_cell(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    words = [word for word in WORDS if not word.startswith("microbatch")]
    storage = f"hydra.sweeper.storage=sqlite:///{tmp_path}/trials.db"
    optuna = ["hydra/sweeper=optuna", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_trials=2", storage]
    outcome = call("compare", *words, *optuna, "microbatch=choice(2,8)", "-m", f"hydra.sweep.dir={tmp_path / 'best'}")
    assert outcome.code == 0, outcome.err
    assert sorted(microbatches(tmp_path / "best")) == [2, 8] and (tmp_path / "trials.db").is_file()
    assert "microbatch: 8" in (tmp_path / "best" / "optimization_results.yaml").read_text()


def test_a_launcher_that_is_not_there_is_named_with_its_package(tmp_path: Path) -> None:
    said = refused(sweep(tmp_path / "run", "hydra/launcher=ray"))
    assert said.startswith("hydra/launcher=ray needs the package hydra-ray-launcher, which is not installed")
    assert "srun" in refused(sweep(tmp_path / "run", "hydra/launcher=submitit_slurm"))
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    storage = f"hydra.sweeper.storage=sqlite:///{tmp_path}/none/trials.db"
    said = refused(sweep(tmp_path / "run", "hydra/sweeper=optuna", storage))
    assert said.startswith("hydra.sweeper.storage cannot be used (")
    assert list(tmp_path.iterdir()) == []
