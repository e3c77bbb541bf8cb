"""What is refused, in which sentence."""

import pytest

from experiments.recompute.settings import parse_policy, read_recompute_settings
from solvers.ir import InvalidInput

EXPERIMENT = "experiment=lynx_tp2"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("inflight=2", "inflight"),
        ("precision=float16", "choose one of float32, bfloat16"),
        ("ranks=3", "no multiple of the 3 ranks"),
        ("+policies.other=opt", "not of kind 'recompute-layer'"),
        ("+policies.other='heu groups=many'", "write NAME=WHOLE-NUMBER"),
        ("budget_share=3", "budget_share"),
        ("wrong_draws=0", "wrong_draws"),
    ],
)
def test_faults_are_sentences(word: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_recompute_settings([EXPERIMENT, word])


def test_a_policy_is_a_solver_and_its_parameters() -> None:
    assert parse_policy("heu groups=2") == ("heu", {"groups": 2})
    assert parse_policy("full") == ("full", {})
