"""The settings of an experiment whose processes fail: a sentence for each value that no run has."""

import pytest

from experiments.elastic.settings import Policy, read_elastic_settings
from experiments.kinds import ELASTIC, kind_of, study_of
from solvers.ir.errors import InvalidInput

WRONG = {
    "nodes=0": "nodes is 0",
    "nodes=65": "nodes is 65",
    "pipeline=0": "pipeline is 0",
    "steps=0": "steps is 0",
    "hang_s=0": "hang_s is 0",
    "port=70000": "port is 70000",
    "solver=dp": "dp solves partition problems, but failures make replan ones: choose of algorithm1, exact-replan",
    "solver=foo": "there is no solver 'foo': choose of algorithm1, exact-replan, oobleck, recycle, reroute, symmetric$",
    "solver=exact-replann": "did you mean 'exact-replan'",
    "policy=never": "expected one of .auto, dynamic, reroute.",
    "name=a/b": "names no folder",
    "node=3": "did you mean 'nodes'",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_value_that_no_run_has_is_refused_in_a_sentence(words: str) -> None:
    with pytest.raises(InvalidInput, match=WRONG[words]):
        read_elastic_settings(["experiment=elastic", *words.split()])


def test_what_is_said_is_what_is_read() -> None:
    words = ["experiment=elastic", "nodes=8", "policy=reroute", "kills=2@3.forward+5@8.backward:2.stop+return@14"]
    settings = read_elastic_settings(words).settings
    assert (settings.nodes, settings.pipeline, settings.policy) == (8, 2, Policy.reroute)
    assert settings.kills == "2@3.forward+5@8.backward:2.stop+return@14"


def test_its_kind_trains_and_is_not_compared() -> None:
    assert kind_of(["experiment=elastic"]) == ELASTIC
    with pytest.raises(InvalidInput, match="trains on processes that fail"):
        study_of(ELASTIC)
