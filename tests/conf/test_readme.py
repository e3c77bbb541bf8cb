"""A Hydra user's first ten commands, as conf/README.md writes them down, do what Hydra's documentation says."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.experiments.commands.console import Outcome, call
from tests.readmes import blocks, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
(BLOCK,) = blocks("conf", "bash")
COMMANDS = [shlex.split(line, comments=True) for line in BLOCK.replace("\\\n", " ").splitlines()]
"""The words of each command."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Outcome]]:
    """All but the first, one after the other, in a folder of their own."""
    folder = tmp_path_factory.mktemp("hydra")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, [call(*words[1:]) for words in COMMANDS[1:]]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def microbatches(folder: Path) -> set[int]:
    return {row["asked"]["microbatch"] for row in rows_of(folder)}


def test_there_are_ten() -> None:
    assert len(COMMANDS) == 10


def test_the_module_is_the_command_and_its_help_lists_groups_experiments_and_flags(tmp_path: Path) -> None:
    said = run(COMMANDS[0], Path(__file__).parents[2])
    assert "hardware: a100-pcie-40," in said and "lynx_sweep: Figure 9's grid" in said
    assert "--multirun,-m" in said and "\nsteps: 4\n" in said
    assert "install=SHELL: as bayplan completion SHELL" in said
    assert said == call("compare", "--help").out


def test_what_is_shown_is_hydras(outcomes: tuple[Path, list[Outcome]]) -> None:
    job, hydra, info = outcomes[1][:3]
    assert (job.code, hydra.code, info.code) == (0, 0, 0)
    assert yaml.safe_load(job.out)["shape"] == "gpt-13b"
    assert hydra.out.startswith("# @package hydra.sweep\ndir: runs/${name}/")
    assert "experiment: lynx" in info.out and "hydra/launcher: basic" in info.out


def test_a_run_keeps_what_hydra_was_asked(outcomes: tuple[Path, list[Outcome]]) -> None:
    folder, (_, _, _, one, *_) = outcomes
    assert one.code == 0, one.err
    kept = folder / "out" / "one" / ".hydra"
    assert yaml.safe_load((kept / "config.yaml").read_text())["microbatch"] == 32
    assert yaml.safe_load((kept / "overrides.yaml").read_text()) == ["experiment=lynx", "plots=false"]
    assert yaml.safe_load((kept / "hydra.yaml").read_text())["hydra"]["job"]["override_dirname"] == ""


def test_sweeps_by_choices_ranges_and_globs_and_by_launchers(outcomes: tuple[Path, list[Outcome]]) -> None:
    folder, (_, _, _, _, choices, ranged, globbed, joblib, _) = outcomes
    assert (choices.code, ranged.code, globbed.code, joblib.code) == (0, 0, 0, 0)
    assert microbatches(folder / "out/choices") == {8, 16}
    assert microbatches(folder / "out/range") == {8, 16, 24}
    assert {row["asked"]["model"]["layers"] for row in rows_of(folder / "out/glob")} == {2}
    assert "2 of 2 cells are done already" in joblib.err
    assert yaml.safe_load((folder / "out/choices/multirun.yaml").read_text())["hydra"]["mode"] is None
    assert len(list((folder / "out/choices/cells").glob("*/.hydra/overrides.yaml"))) == 2


def test_optuna_writes_its_best(outcomes: tuple[Path, list[Outcome]]) -> None:
    assert outcomes[1][-1].code == 0, outcomes[1][-1].err
    best = yaml.safe_load((outcomes[0] / "out/best/optimization_results.yaml").read_text())
    assert best["name"] == "optuna" and best["best_params"]["microbatch"] in (8, 16)
