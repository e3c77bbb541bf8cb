"""Settings: what is accepted, and the one sentence that every mistake gets."""

import pytest

from experiments.compose import read_settings
from experiments.config import Baseline, DeviceKind, GptConf
from solvers.ir import InvalidInput


def refusal(*overrides: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_settings(overrides)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_the_demo_is_what_the_readme_says() -> None:
    settings = read_settings(["experiment=demo"]).settings
    assert settings.name == "demo"
    assert settings.device is DeviceKind.sim
    assert settings.baselines == [Baseline.unlimited, Baseline.none, Baseline.recompute]
    assert list(settings.solver) == ["greedy-swap", "milp-swap", "joint"]
    assert settings.problem.budget_fraction == 0.55


def test_an_override_beats_the_experiment_and_the_experiment_beats_the_defaults() -> None:
    assert read_settings(["experiment=demo"]).settings.steps == 5
    assert read_settings(["experiment=demo", "steps=2"]).settings.steps == 2
    assert read_settings(["steps=2", "experiment=demo"]).settings.steps == 2


def test_a_group_can_be_chosen_under_an_experiment() -> None:
    model = read_settings(["experiment=demo", "model=gpt-tiny"]).settings.model
    assert isinstance(model, GptConf)
    assert model.layers == 2


def test_the_yaml_composes_to_the_same_settings_again() -> None:
    first = read_settings(["experiment=demo"])
    assert first.yaml == read_settings(["experiment=demo"]).yaml
    assert "budget_fraction: 0.55" in first.yaml
    assert "hydra" not in first.yaml


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("experiment=dmo", "'demo'"),
        ("solver=[greedy-swp]", "'greedy-swap'"),
        ("hardware=sim-smal", "'sim-small'"),
        ("modle=gpt", "'model'"),
        ("model.layer=3", "'layers'"),
        ("+model.layer=3", "'layers'"),
        ("++model.layer=3", "'layers'"),
        ("+stepss=3", "'steps'"),
        ("solver.milp-swap.engin=highs", "'engine'"),
        ("+solver.milp-swap.engin=highs", "'engine'"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_valid_one(override: str, nearest: str) -> None:
    assert f"did you mean {nearest}?" in refusal(override)


@pytest.mark.parametrize(
    "override",
    [
        "model.layers=three",
        "model.layers=1.5",
        "model.layers=null",
        "steps=true",
        "steps=0",
        "limits.time_s=[1]",
        "problem.budget_fraction=nan",
        "problem.budget_fraction=-0.1",
        "problem.kind=recompute-graph",
        "problem.budget_bytes=9999TiB",
        "model.heads=3",
        "model.dropout=1",
        "robustness.noise=0.95",
        "robustness.noise_seeds=[-1]",
        "hardware.link_gb_per_s=0",
        "baselines=[unlimitd]",
        "device=tpu",
        "name=a/b",
        "name=..",
        "name=${missing}",
        "model=own",
        "model=null",
        "model=gpt,own",
        "~steps",
        "~model",
        "~model.layers",
        "+solver.mine=1",
        "solver={a: 1}",
        "hydra.launcher._target_=os.system",
        "model._target_=os.system",
        "solver.milp-swap._target_=os.system",
        "+hydra.callbacks.mine._target_=os.system",
        "hydra/launcher=ray_",
        "+schema/model=gpt",
        "model",
        "=3",
        "",
    ],
)
def test_every_other_mistake_is_one_sentence_too(override: str) -> None:
    assert len(refusal(override)) > 10


def test_a_value_of_the_wrong_type_is_told_with_its_place() -> None:
    assert refusal("model.layers=three").startswith("model.layers: ")
    assert "outside 1…" in refusal("steps=0")


def test_one_faulty_composition_does_not_spoil_the_next() -> None:
    refusal("experiment=dmo")
    assert read_settings(["experiment=demo"]).settings.name == "demo"


@pytest.mark.parametrize(
    ("words", "fraction", "amount"),
    [
        ((), 0.55, None),
        (("problem.budget_bytes=55MiB",), None, 55 << 20),
        (("problem.budget_bytes=1.5GB",), None, 1_500_000_000),
        (("problem.budget_bytes=3221225472",), None, 3221225472),
        (("problem.budget_bytes=60%",), 0.6, None),
        (("problem.budget_bytes=null",), 0.55, None),
    ],
)
def test_a_budget_in_bytes_takes_the_place_of_the_share(
    words: tuple[str, ...], fraction: float | None, amount: int | None
) -> None:
    problem = read_settings(words).settings.problem
    assert (problem.budget_fraction, problem.budget_bytes) == (fraction, amount)


def test_a_budget_without_a_unit_is_refused_and_so_are_two_budgets() -> None:
    assert "problem.budget_bytes is '55', a number without a unit: write 55% for" in refusal("problem.budget_bytes=55")
    assert "give exactly one of them" in refusal("problem.budget_bytes=1GiB", "problem.budget_fraction=0.5")
