"""The native engine of a session, as its control speaks to it."""

from collections.abc import Sequence
from typing import Protocol

from runtime.device.native import core


class Engine(Protocol):
    """The part of the native engine that the control speaks to."""

    @property
    def only_small(self) -> bool:
        """Whether there were no requests of more than 1 MiB in the iteration before it was last looked for an arena."""
        ...

    def end_iteration(self) -> core.SwapIteration:
        """End the running iteration and begin the next."""
        ...

    def record_sightings(self, on: bool) -> None:
        """Say in the running iteration's record how each storage can be found again; off again at its end."""
        ...

    def set_policy(self, policy: core.SwapPolicy | None) -> None:
        """Execute this from now on."""
        ...

    def set_ranks(self, by_frequency: Sequence[int]) -> None:
        """Operator ids by falling frequency, from which features are made."""
        ...

    def measure_swapping(self) -> None:
        """Mark in the running iteration where its time goes; off again at its end."""
        ...
