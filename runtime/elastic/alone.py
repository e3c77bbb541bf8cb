"""The same training in one process, without failures: what any number of processes must give, bit for bit."""

from dataclasses import dataclass

import torch

from runtime.elastic.job import ElasticJob
from runtime.elastic.layer import Layer, loss_of
from runtime.elastic.sums import from_fixed, to_fixed


@dataclass(frozen=True)
class Alone:
    """The mean loss of each step, and each layer's digest after the last one."""

    losses: tuple[float, ...]
    digests: tuple[str, ...]


def train_alone(job: ElasticJob, steps: int, *, canonical: bool = True) -> Alone:
    """Trains in this process, with one thread, and leaves torch's random numbers and threads as they were."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            layers = [Layer(job, number, canonical) for number in range(len(job.layers))]
            losses = tuple(_step(job, layers, step) for step in range(steps))
    finally:
        torch.set_num_threads(threads)
    return Alone(losses, tuple(layer.digest() for layer in layers))


def _step(job: ElasticJob, layers: list[Layer], step: int) -> float:
    total = torch.zeros((), dtype=torch.int64)
    for microbatch in range(job.microbatches):
        hidden, targets = job.batches(step, microbatch)
        for layer in layers:
            hidden = layer.forward(step, microbatch, hidden)
        loss, gradient = loss_of(job, hidden, targets)
        total += to_fixed(loss, job.microbatches, "the loss")
        back: torch.Tensor | None = gradient
        for layer in reversed(layers):
            assert back is not None, "only the first layer's input has no gradient"
            back = layer.backward(microbatch, back)
    for layer in layers:
        layer.update()
    return float(from_fixed(total, job.microbatches))
