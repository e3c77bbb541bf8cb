"""What a program does on other streams, or on another thread, beside its training: all of it ordered as PyTorch asks.

Nothing here waits on the host, and nothing depends on when streams run, so a CPU computes the same.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from tests.runtime.swap.fuzz.program import Program

RATE = 0.25
OTHER_THREAD = ThreadPoolExecutor(1)


class Beside:
    """The work beside one loop; `streams` are None on a CPU."""

    def __init__(self, program: Program, device: torch.device, parameters: list[torch.nn.Parameter]) -> None:
        self._kind = program.beside
        self._device = device
        self._many = 3 if program.seed % 2 else 1
        self._streams = [torch.Stream(device) for _ in range(self._many)] if device.type != "cpu" else None
        self._ticks = 0
        self._borrowed: list[torch.Tensor] = []
        self._parameters = parameters
        self._averages = [one.detach().clone() for one in parameters] if program.beside == "average" else []
        self.sums: list[torch.Tensor] = []
        self.terms: list[torch.Tensor] = []

    def begin(self) -> None:
        """An iteration begins, perhaps after one that an exception has ended."""
        if self._borrowed:
            self._join()
        self.sums, self.terms, self._borrowed, self._ticks = [], [], [], 0

    def tick(self, hidden: torch.Tensor) -> None:
        """After a part of the forward pass."""
        self._ticks += 1
        table: dict[str, Callable[[torch.Tensor], None]] = {
            "borrows": self._borrow,
            "records": self._record,
            "makes": self._make,
            "new streams": self._make,
            "thread": self._lend_to_thread,
        }
        if self._kind in table:
            table[self._kind](hidden)

    def end(self) -> None:
        """An iteration has ended: the training stream is behind all of it."""
        if self._kind == "average":
            with self._on_stream() as side, torch.no_grad():
                for average, parameter in zip(self._averages, self._parameters, strict=True):
                    average.lerp_(parameter.detach(), RATE)
                del side
            self._join()
        if self._kind in ("borrows", "thread"):
            self._join()
        self._borrowed = []

    def seen(self) -> dict[str, torch.Tensor | None]:
        """What it made in this iteration, or keeps."""
        sums = {f"sum {place}": one for place, one in enumerate(self.sums)}
        return {**sums, **{f"average {place}": one for place, one in enumerate(self._averages)}}

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """With the terms that were made beside."""
        if self.terms:
            self._join()
        terms, self.terms = self.terms, []
        for term in terms:
            if self._streams is not None:
                term.record_stream(torch.accelerator.current_stream(self._device))
            loss = loss + term
        return loss

    def _borrow(self, hidden: torch.Tensor) -> None:
        """Read an activation that the program keeps until the training stream has waited."""
        self._borrowed.append(hidden)
        with self._on_stream(), torch.no_grad():
            self.sums.append(hidden.detach().square().sum())

    def _record(self, hidden: torch.Tensor) -> None:
        """Read a copy that dies at once: the allocator is told of the stream."""
        copy = hidden.detach() * 2
        with self._on_stream() as side, torch.no_grad():
            if side is not None:
                copy.record_stream(side)
            scaled = copy.cumsum(-1)
            self.sums.append(scaled.abs().sum())
        self._join()  # for the sum alone

    def _make(self, hidden: torch.Tensor) -> None:
        """A part of the loss, with its graph."""
        if self._ticks % 2 == 0:
            return
        with self._on_stream() as side:
            if side is not None:
                hidden.record_stream(side)
            self.terms.append((hidden * 0.01).tanh().square().mean())

    def _lend_to_thread(self, hidden: torch.Tensor) -> None:
        """Another thread reads it, on a stream of its own."""
        self._borrowed.append(hidden)
        behind = None if self._streams is None else torch.accelerator.current_stream(self._device).record_event()

        def read() -> torch.Tensor:
            with self._on_stream(behind), torch.no_grad():
                return hidden.detach().exp().sum()

        self.sums.append(OTHER_THREAD.submit(read).result())

    @contextmanager
    def _on_stream(self, behind: torch.Event | None = None) -> Iterator[torch.Stream | None]:
        """One of the streams, behind what the current one holds or behind the event."""
        if self._streams is None:
            yield None
            return
        if self._kind == "new streams":
            self._streams.append(torch.Stream(self._device))
        side = self._streams[-1 - self._ticks % self._many]
        if behind is not None:
            side.wait_event(behind)
        else:
            side.wait_stream(torch.accelerator.current_stream(self._device))
        with side:
            yield side

    def _join(self) -> None:
        for side in self._streams or []:
            torch.accelerator.current_stream(self._device).wait_stream(side)
        if self._kind == "new streams" and self._streams is not None:
            self._streams = self._streams[-self._many :]
