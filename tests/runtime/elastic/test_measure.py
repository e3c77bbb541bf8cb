"""What a job's measured microbatch shows besides its costs."""

import torch

from runtime.elastic import Options, train
from runtime.elastic.measure import measure
from tests.runtime.elastic.jobs import costs, normed, small

JOB = "tests.runtime.elastic.jobs:normed"


def test_buffers_that_forward_passes_write_are_named() -> None:
    cpu = torch.device("cpu")
    assert measure(small(cpu)).warning() is None
    measured = measure(normed(cpu))
    assert measured.written == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert "write buffers (1.running_mean and 2 more)" in str(measured.warning())


def test_a_training_whose_bits_depend_on_them_says_so() -> None:
    outcome = train(JOB, nodes=2, steps=1, options=Options(canonical=True, timeout_s=60, hang_s=60, problem=costs(2)))
    assert len(outcome.warnings) == 1 and "not one process's" in outcome.warnings[0]
    outcome = train(JOB, nodes=2, steps=1, options=Options(timeout_s=60, hang_s=60, problem=costs(2)))
    assert outcome.warnings == ()  # floats promise no bits
