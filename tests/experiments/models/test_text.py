"""The demo's data: real text, the same batches each time."""

import torch

from experiments.models import Batches, corpus


def test_the_text_is_pythons_language_reference() -> None:
    assert len(corpus()) > 300_000
    assert b"The assert statement" in corpus() or b"assert" in corpus()


def test_a_batch_depends_on_its_number_and_seed_only() -> None:
    one, two = Batches(3, 8, seed=5), Batches(3, 8, seed=5)
    for number in (4, 0, 4):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(one[number], two[number], strict=True))
    assert not torch.equal(one[0][0], one[1][0])
    assert not torch.equal(one[0][0], Batches(3, 8, seed=6)[0][0])


def test_targets_are_the_inputs_one_byte_further_on() -> None:
    inputs, targets = Batches(5, 16, seed=0)[0]
    assert inputs.shape == targets.shape == (5, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert all(bytes(line.tolist()) in corpus() for line in inputs)
