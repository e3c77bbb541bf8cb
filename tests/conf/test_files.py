"""Every file under conf/ composes, decodes, and means what its types say."""

import dataclasses
from pathlib import Path

import pytest
from hydra.types import RunMode

from experiments.cluster.compare import require_answerable
from experiments.cluster.settings import read_cluster_settings
from experiments.compose import TRAINING, composed_by, hydra_of, read_settings
from experiments.config import GptConf
from experiments.elastic.settings import read_elastic_settings
from experiments.hardware import hardware_names, read_hardware
from experiments.kinds import CLUSTER, ELASTIC, LAYOUT, PIPELINE, RANKS, RECOMPUTE, STABILITY, kind_of
from experiments.layout.settings import read_layout_settings
from experiments.models import GptShape
from experiments.pipeline.settings import read_pipeline_settings
from experiments.planning import make_solvers
from experiments.ranks.settings import read_ranks_settings
from experiments.recompute.settings import read_recompute_settings
from experiments.stability.settings import read_stability_settings
from experiments.worlds import load_hardware
from solvers.ir.hardware import HOST
from solvers.planner import build_solver, solver_names, solver_parameters

CONF = Path(__file__).parent.parent.parent / "conf"
# conf/table holds the papers' values (tests/experiments/reproduction), no settings of an experiment.
GROUPS = sorted(
    path.name for path in CONF.iterdir() if path.is_dir() and path.name != "table" and not path.name.startswith("__")
)
CHOICES = [f"{group}={path.stem}" for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
EXTRA = {"model=own": ["model.factory=a:b"]}


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes(choice: str) -> None:
    if kind_of([choice]) == PIPELINE:
        assert read_pipeline_settings([choice]).settings.systems
        return
    if kind_of([choice]) == STABILITY:
        assert read_stability_settings([choice]).settings.policies
        return
    if kind_of([choice]) == RANKS:
        assert read_ranks_settings([choice]).settings.ranks > 1
        return
    if kind_of([choice]) == ELASTIC:
        assert read_elastic_settings([choice]).settings.nodes > 1
        return
    if kind_of([choice]) == RECOMPUTE:
        assert "heu" in read_recompute_settings([choice]).settings.policies
        return
    if kind_of([choice]) == LAYOUT:
        assert "search" in read_layout_settings([choice]).settings.policies
        return
    if kind_of([choice]) == CLUSTER:
        require_answerable(read_cluster_settings([choice]).settings)
        return
    settings = read_settings([choice, *EXTRA.get(choice, [])]).settings
    assert load_hardware(settings.hardware).link(HOST, load_hardware(settings.hardware).device().name).bytes_per_s > 0


def test_no_group_is_an_empty_shell() -> None:
    assert all(any((CONF / group).iterdir()) for group in GROUPS)


def test_every_hardware_file_is_a_choice_by_its_name() -> None:
    for name in hardware_names():
        assert read_hardware(name).name == name
        assert read_settings([f"hardware={name}"]).settings.hardware.file == name


@pytest.mark.parametrize("name", [*solver_names("swap"), *solver_names("joint")])
def test_solver_settings_are_the_solvers_parameters_with_their_defaults(name: str) -> None:
    settings = read_settings([f"solver={name}"]).settings
    ours = {key: value for key, value in dataclasses.asdict(settings.solver[name]).items() if key != "_target_"}
    theirs = {key: value.default for key, value in solver_parameters(name).items()}
    theirs.pop("start", None)  # a plan, which no setting can hold
    assert ours == theirs
    assert make_solvers(settings) == {name: build_solver(name, {})}


def test_model_settings_are_the_shapes_fields_with_their_defaults() -> None:
    ours = {key: value for key, value in dataclasses.asdict(GptConf()).items() if key != "_target_"}
    assert ours == dataclasses.asdict(GptShape())


def test_the_sweep_of_the_demo_covers_the_asked_grid() -> None:
    with hydra_of(TRAINING) as hydra:
        params = composed_by(hydra, TRAINING, ["experiment=demo_sweep"], RunMode.MULTIRUN).hydra.sweeper.params
    assert params == {"problem.budget_fraction": "0.3,0.4,0.5,0.6,0.7,0.8,0.9", "hardware.link_gb_per_s": "4,8,16,32"}
