"""Real text without a download: Python's own language reference, which every CPython carries (`pydoc_data.topics`)."""

from functools import cache

import numpy as np
import torch


@cache
def corpus() -> bytes:
    """The language reference as UTF-8 bytes, topic by topic in alphabetical order (about 0.5 MB, PSF licence).

    It differs from one Python version to the next, so losses are compared within a run, never with stored numbers.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode("utf-8")


class Batches:
    """Batch number i as a function of (seed, i) alone: `inputs` and the same text one byte further on as `targets`.

    Drawn with numpy: what PyTorch's dispatcher sees of a training step is the model's work only.
    """

    def __init__(self, batch: int, context: int, seed: int) -> None:
        self._text = np.frombuffer(corpus(), dtype=np.uint8)
        self._batch = batch
        self._context = context
        self._seed = seed

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of one batch, each int64 of shape (batch, context), on the CPU."""
        # A seed of its own for each batch: a run that starts in the middle sees the same data.
        starts = np.random.default_rng((self._seed, number)).integers(len(self._text) - self._context, size=self._batch)
        windows = self._text[starts[:, None] + np.arange(self._context + 1)].astype(np.int64)
        return (
            torch.from_numpy(np.ascontiguousarray(windows[:, :-1])),
            torch.from_numpy(np.ascontiguousarray(windows[:, 1:])),
        )
