"""Records one iteration of a session in detail."""

from typing import Protocol

import torch

from runtime.device.native import core
from runtime.swap.iteration import limited_graph, sightings_by_use
from runtime.swap.landmarks import landmarks
from runtime.swap.profiled import Profiled
from solvers.ir.errors import BayplanError


class Recorder(Protocol):
    """A detailed recording of one iteration."""

    def start(self) -> None:
        """Begin; raises `BayplanError` where it cannot."""
        ...

    def stop(self) -> None:
        """End."""
        ...

    def profiled(self, iteration: core.SwapIteration, duration_us: float) -> Profiled:
        """The iteration in detail; raises `BayplanError` where recorder and engine saw different operators."""
        ...


class IterationRecorder:
    """Records with the native profiler, without a clock for each operator."""

    def __init__(
        self, device: torch.device, model: torch.nn.Module | None, optimizer: torch.optim.Optimizer | None
    ) -> None:
        self._recorder = core.DetailedRecorder(device, timed=False)
        self._model = model
        self._optimizer = optimizer

    def start(self) -> None:
        """Begin; raises `BayplanError` while a torch.profiler has the allocator's reports."""
        try:
            self._recorder.start(())
        except RuntimeError as error:
            raise BayplanError(str(error).partition("\n")[0]) from error

    def stop(self) -> None:
        """End; may be called without a start."""
        self._recorder.stop()

    def profiled(self, iteration: core.SwapIteration, duration_us: float) -> Profiled:
        """Times by Eq. 1, memory as it would be without swapping, tensors as the engine saw them."""
        recorder = self._recorder
        if recorder.failure:
            raise BayplanError(f"the profiler lost track of the iteration: {recorder.failure.partition(chr(10))[0]}")
        if [record.id for record in recorder.operators()] != list(iteration.operators):
            raise BayplanError(
                f"profiler and engine saw different operators ({len(recorder.operators())} and "
                f"{len(iteration.operators)}): run the loop on the thread that started the session"
            )
        graph = limited_graph(
            recorder, duration_us, model=self._model, optimizer=self._optimizer, phases=iteration.phases
        )
        sightings = sightings_by_use(recorder, iteration.sightings)
        kinds = {tensor.id: tensor.kind for tensor in graph.tensors}
        staying = {found.storage for (number, _), found in sightings.items() if kinds[number] == "parameter"}
        seen = landmarks(iteration.phases, iteration.sightings, staying)
        return Profiled(
            graph,
            iteration.operators,
            iteration.phases,
            sightings,
            landmarks=seen,
            reads=tuple(iteration.reads),
            living=frozenset(recorder.living()),
        )
