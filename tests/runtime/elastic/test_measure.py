"""What a job's measured microbatch shows besides its costs."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from runtime.elastic import Options, train
from runtime.elastic.measure import measure
from solvers.ir.errors import InvalidInput
from tests.runtime.elastic.jobs import WIDTH, costs, normed, small

JOB = "tests.runtime.elastic.jobs:normed"


def test_buffers_that_forward_passes_write_are_named() -> None:
    cpu = torch.device("cpu")
    assert measure(small(cpu)).warning() is None
    measured = measure(normed(cpu))
    assert measured.written == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert "write buffers (1.running_mean and 2 more)" in str(measured.warning())


class Odd(nn.Linear):
    """Buffers that are not numbers, that come, and that go."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.register_buffer("missing", torch.full((3,), torch.nan))
        self.register_buffer("seen", None)
        self.register_buffer("first", torch.ones(1))

    def forward(self, hidden: Tensor) -> Tensor:
        self.seen, self.first = torch.ones(1), None
        return super().forward(hidden)


def test_buffers_that_come_and_go_are_named_and_nans_are_not() -> None:
    job = small(torch.device("cpu"))
    odd = measure(replace(job, layers=[job.layers[0], Odd, *job.layers[2:]]))
    assert sorted(odd.written) == ["1.first", "1.seen"]


def test_layers_that_share_what_is_trained_are_refused() -> None:
    job, shared = small(torch.device("cpu")), nn.Linear(WIDTH, WIDTH)
    tied = replace(job, layers=[job.layers[0], lambda: shared, lambda: shared, job.layers[-1]])
    with pytest.raises(InvalidInput, match="layers 1 and 2 share weight"):
        measure(tied)


def test_a_training_whose_bits_depend_on_them_says_so() -> None:
    outcome = train(JOB, nodes=2, steps=1, options=Options(canonical=True, timeout_s=60, hang_s=60, problem=costs(2)))
    assert len(outcome.warnings) == 1 and "not one process's" in outcome.warnings[0]
    outcome = train(JOB, nodes=2, steps=1, options=Options(timeout_s=60, hang_s=60, problem=costs(2)))
    assert outcome.warnings == ()  # floats promise no bits
