"""Real text without a download: Python's own language reference, which every CPython carries (`pydoc_data.topics`)."""

from functools import cache

import torch


@cache
def corpus() -> bytes:
    """The language reference as UTF-8 bytes, topic by topic in alphabetical order (about 0.5 MB, PSF licence).

    It differs from one Python version to the next, so losses are compared within a run, never with stored numbers.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode("utf-8")


class Batches:
    """Batch number i as a function of (seed, i) alone: `inputs` and the same text one byte further on as `targets`."""

    def __init__(self, batch: int, context: int, seed: int) -> None:
        self._text = torch.frombuffer(bytearray(corpus()), dtype=torch.uint8)
        self._batch = batch
        self._context = context
        self._seed = seed

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of one batch, each int64 of shape (batch, context), on the CPU."""
        # A seed of its own for each batch: a run that starts in the middle sees the same data.
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + number)
        starts = torch.randint(len(self._text) - self._context, (self._batch, 1), generator=generator)
        windows = self._text[starts + torch.arange(self._context + 1)].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
