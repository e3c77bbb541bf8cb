"""Settings of a stability experiment: what they are by default, and one sentence for each fault."""

import pytest

from experiments.stability.settings import Policy, StabilitySettings, policies_of, read_stability_settings
from solvers.ir import InvalidInput


def test_the_shipped_experiment_is_the_papers() -> None:
    settings = read_stability_settings(["experiment=stability"]).settings
    assert (settings.steps, settings.validate_every, settings.budget_fraction) == (5000, 200, 64 / 80)
    assert settings.policies == list(Policy)


def test_the_reference_comes_first_whatever_is_asked() -> None:
    settings = read_stability_settings(["experiment=stability", "policies=[features,unlimited]"]).settings
    assert policies_of(settings) == [Policy.unlimited, Policy.features]
    settings = read_stability_settings(["experiment=stability", "policies=[index]"]).settings
    assert policies_of(settings) == [Policy.unlimited, Policy.index]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("steps=0", "steps is 0, outside 1…1e"),
        ("validate_every=0", "validate_every is 0, outside"),
        ("validation_batches=0", "validation_batches is 0, outside"),
        ("budget_fraction=null", "give exactly one of them, and null for the other"),
        ("budget_bytes=100", "give exactly one of them, and null for the other"),
        ("budget_fraction=3", "budget_fraction is 3.0, outside 0.01…2"),
        ("scaling.initial=0", "scaling.initial is 0.0, outside"),
        ("scaling.growth_interval=0", "scaling.growth_interval is 0, outside"),
        ("policies=[features,features]", "policies names one twice: leave it out"),
        ("policies=[capuchin]", "capuchin"),
        ("name=a/b", "names no folder"),
        ("kind=training", "kind is 'training', but this experiment is of the kind 'stability'"),
        ("model=own", "model.factory has no value"),
        ("stepz=3", "stepz"),
    ],
)
def test_a_fault_is_a_sentence(word: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        read_stability_settings(["experiment=stability", word])
    assert "\n" not in str(caught.value)


def test_only_the_gpt_is_trained() -> None:
    with pytest.raises(InvalidInput, match="choose model=gpt-micro or model=gpt"):
        read_stability_settings(["experiment=stability", "model=own", "model.factory=a:b"])


@pytest.mark.parametrize("budget", [0, -5, 2**60, 1.5, "52MiB", True])
def test_a_budget_that_is_no_number_of_bytes_is_one_sentence(budget: object) -> None:
    sentence = r"^budget_bytes is .*: give a whole number of bytes from 1 to 9007199254740992, as in .* \(52 MiB\)$"
    with pytest.raises(InvalidInput, match=sentence):
        StabilitySettings(budget_fraction=None, budget_bytes=budget)  # type: ignore[arg-type]
