"""What is refused, in which sentence; what an experiment says by itself."""

import pytest

from experiments.layout.settings import read_layout_settings
from solvers.ir import InvalidInput

EXPERIMENT = "experiment=protrain"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("times_larger=0", "times_larger"),
        ("steps=3", "steps"),
        ("noise=1", "noise"),
        ("host_budget=some", "host_budget"),
        (
            "+policies.other=greedy-swap",
            "'greedy-swap', which decides no layouts: choose of search, ",
        ),
        ("+policies.other=serch", "no solver 'serch': did you mean 'search'"),
        ("policies=null", "policies"),
        ("larger.layers=1", "of which nothing repeats"),
        ("larger.heads=7", "no multiple of the 7 heads"),
        ("larger.solver=dp", "which decides no layouts"),
        ("larger.hardware=none", "none"),
        ("model.tied=true", "ties no weights"),
    ],
)
def test_faults_are_sentences(word: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        read_layout_settings([EXPERIMENT, word])
    assert "\n" not in str(refused.value)


def test_the_experiment_is_of_a_model_three_times_as_large_as_the_device() -> None:
    composed = read_layout_settings([EXPERIMENT])
    assert composed.settings.times_larger >= 3 and composed.settings.fsdp2
    assert composed.settings.policies["search"] == "search"
    assert (composed.shape.layers, composed.shape.width) == (8, 256)
