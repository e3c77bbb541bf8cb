"""Which command runs an experiment is told by its file, without importing what the other one needs."""

import subprocess
import sys

import pytest

from experiments.compare import main
from experiments.kinds import CLUSTER, EXPERIMENTS, PIPELINE, STABILITY, TRAINING, kind_of
from experiments.train import main as train
from solvers.ir import InvalidInput


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["experiment=lynx", "shape=gpt-7b"], PIPELINE),
        (["+experiment=lynx_sweep", "-m"], PIPELINE),
        (["experiment=stability", "steps=450"], STABILITY),
        (["experiment=ft_32", "seeds=3"], CLUSTER),
        (["experiment=ft_scale", "-m"], CLUSTER),
        (["experiment=demo"], TRAINING),
        (["experiment=demo", "experiment=lynx"], PIPELINE),
        (["experiment=nowhere"], TRAINING),
        (["experiment=../pipeline"], TRAINING),
        ([], TRAINING),
    ],
)
def test_the_file_says_the_kind(words: list[str], kind: str) -> None:
    assert kind_of(words) == kind


def test_every_experiment_has_a_command() -> None:
    kinds = {path.stem: kind_of([f"experiment={path.stem}"]) for path in EXPERIMENTS.glob("*.yaml")}
    assert kinds["train"] == kinds["demo"] == TRAINING
    assert {name for name, kind in kinds.items() if kind == PIPELINE} == {"lynx", "lynx_sweep"}
    assert [name for name, kind in kinds.items() if kind == STABILITY] == ["stability"]
    assert {name for name, kind in kinds.items() if kind == CLUSTER} == {"ft_32", "ft_scale", "ft_month"}


@pytest.mark.parametrize("room", ["pipeline", "cluster"])
def test_what_runs_on_paper_needs_no_torch(room: str) -> None:
    code = f"import sys; import experiments.compare, experiments.{room}.compare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pipeline_is_not_trained() -> None:
    with pytest.raises(
        InvalidInput, match="this experiment plans a pipeline, which nothing trains: use bayplan compare"
    ):
        train(["experiment=lynx"])


def test_a_cluster_is_not_trained() -> None:
    with pytest.raises(InvalidInput, match="simulates a cluster, which nothing trains: use bayplan compare"):
        train(["experiment=ft_32"])


def test_stability_is_not_compared() -> None:
    with pytest.raises(InvalidInput, match="this experiment trains under sessions, which are no plans: use bayplan tr"):
        main(["experiment=stability"])
