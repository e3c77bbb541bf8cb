"""The settings of an experiment with ranks: a sentence for each value that no run has."""

import pytest

from experiments.ranks.settings import Carrier, read_ranks_settings
from solvers.ir.errors import InvalidInput

WRONG = {
    "style=pipedream": "choose one of ddp, fsdp2, tp, 1f1b",
    "ranks=0": "ranks is 0",
    "ranks=65": "ranks is 65",
    "steps=0": "steps is 0",
    "microbatches=0": "microbatches is 0",
    "noise=0.6": "noise is 0.6",
    "name=a/b": "names no folder",
    "carrier=pigeons": "carrier",
    "device=tpu": "expected one of .sim, cuda, cpu.",
    "device=cuda": "carrier is threads, of which only simulated devices have one each: set carrier=processes",
    "device=cpu carrier=processes noise=0.1": "noise is 0.1, but device cpu has its own: set noise=0",
    "device=cuda carrier=torchrun model.dropout=0.1": "model.dropout is 0.1, and a CUDA device drops others",
    "style=tp ranks=3": "not a multiple of the 3 ranks",
    "style=1f1b ranks=5": "fewer than the 5 stages",
    "style=1f1b ranks=4 microbatches=3": "microbatches is 3, fewer than the 4 stages",
    "model=gpt-tiny model.nothing=1": "nothing",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_value_that_no_run_has_is_refused_in_a_sentence(words: str) -> None:
    with pytest.raises(InvalidInput, match=WRONG[words]):
        read_ranks_settings(["experiment=ranks", *words.split()])


def test_what_is_said_is_what_is_read() -> None:
    found = read_ranks_settings(["experiment=ranks", "style=1f1b", "ranks=2", "carrier=processes", "model.layers=3"])
    assert (found.settings.style, found.settings.ranks, found.shape.layers) == ("1f1b", 2, 3)
    assert found.settings.carrier is Carrier.processes
    assert "style: 1f1b" in found.yaml
