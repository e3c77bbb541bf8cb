"""A layer's nondominated policies, made once; each (layers, microbatches in flight, memory) is then a look-up."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solvers.ir.recompute import LayerGroup
from solvers.recompute.layer.enumerate import ABSENT, STORED, Policies, enumerate_policies
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.pareto import IntArray, TooManyStates

MAX_STATES = 400_000
"""Partial policies that an enumeration may make: beyond, the layer is left to the integer programme."""
REMEMBERED = 64
"""Fronts that are remembered."""
LARGEST = 2**59
"""Bytes in all microbatches of all layers beyond which sums might leave 64 bits."""

__all__ = ["Choice", "Front", "Policy", "TooManyStates"]


@dataclass(frozen=True)
class Policy:
    """What is done with one layer: ops stored, and [op, window] pairs (the number of windows is the critical path)."""

    stored: tuple[int, ...]
    recomputed: tuple[tuple[int, int], ...]

    def group(self, layers: int) -> LayerGroup:
        """The policy for `layers` layers."""
        return LayerGroup(layers=layers, stored=self.stored, recomputed=self.recomputed)


@dataclass(frozen=True)
class Choice:
    """One policy for all layers: its number in the front, time on the critical path of one layer, and memory."""

    number: int
    time_us: int
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class Front:
    """Policies by ascending time on the critical path; bytes are those of one layer.

    `inflight` None: the front serves every number of microbatches in flight; a number: only that one (smaller, faster).
    `share_bytes` = inflight·stored + forward bytes where `inflight` is given. `late_us`, of layers that are `late`:
    time in backward windows.
    """

    layer: Layer
    inflight: int | None
    policies: Policies
    order: IntArray
    time_us: IntArray
    stored_bytes: IntArray | None
    forward_bytes: IntArray | None
    share_bytes: IntArray | None
    working_bytes: IntArray
    late_us: IntArray | None = None

    @classmethod
    def of(
        cls,
        layer: Layer,
        inflight: int | None = None,
        max_states: int = MAX_STATES,
        stop: Callable[[], bool] = lambda: False,
    ) -> "Front":
        """Enumerate. Raises `TooManyStates` (also where `stop` says so) and OverflowError beyond 64 bits."""
        weights = [[1, 0, 0], [1, 1, 0], [1, 1, 1]] if inflight is None else [[inflight, 1, 0], [inflight, 1, 1]]
        policies = enumerate_policies(layer, weights, max_states, stop)
        order = np.lexsort(policies.coordinates[::-1])
        time_us, *memory = policies.coordinates[:, order]
        late = memory.pop() if layer.late else None
        working = memory[-1] - memory[-2]
        if inflight is None:
            return cls(layer, None, policies, order, time_us, memory[0], memory[1] - memory[0], None, working, late)
        return cls(layer, inflight, policies, order, time_us, None, None, memory[0], working, late)

    def __len__(self) -> int:
        return len(self.time_us)

    def share(self, inflight: int) -> IntArray:
        """Bytes that each layer of a policy adds: inflight·stored + forward."""
        if self.inflight is None:
            assert self.stored_bytes is not None
            assert self.forward_bytes is not None
            return inflight * self.stored_bytes + self.forward_bytes
        if inflight != self.inflight:
            raise ValueError(f"this front serves {self.inflight} microbatches in flight, not {inflight}")
        assert self.share_bytes is not None
        return self.share_bytes

    def best(self, layers: int, inflight: int, room_bytes: int) -> Choice | None:
        """The policy of least time for `layers` layers within `room_bytes`; None where no policy fits.

        Of layers that are `late` the last one has no backward windows, and its time counts those.

        `room_bytes` is what budget, static bytes and the kept layer inputs leave: budget − static −
        inflight·layers·layer_input. Of equally fast policies the first in the front's order.
        """
        memory = self.memory(layers, inflight)
        fits = memory <= room_bytes
        if self.late_us is None:
            number = int(fits.argmax())
        else:
            number = int(np.where(fits, layers * self.time_us + self.late_us, LARGEST).argmin())
        return Choice(number, int(self.time_us[number]), int(memory[number])) if fits[number] else None

    def memory(self, layers: int, inflight: int) -> IntArray:
        """Bytes of each policy for `layers` layers; raises OverflowError where they exceed 64 bits."""
        if layers * max(1, inflight) * sum(op.output_bytes for op in self.layer.ops) > LARGEST:
            raise OverflowError(f"{layers} layers with {inflight} microbatches in flight exceed 64 bits")
        return layers * self.share(inflight) + self.working_bytes

    def least_memory(self, layers: int, inflight: int) -> int:
        """The least bytes of any policy (and of any mix: README, L) for `layers` layers."""
        return int(self.memory(layers, inflight).min())

    def policy(self, number: int) -> Policy:
        """What the policy of that number does."""
        choices = self.policies.choices(int(self.order[number]))
        stored = tuple(i for i, choice in sorted(choices.items()) if choice == STORED)
        recomputed = tuple((i, choice) for i, choice in sorted(choices.items()) if choice not in (STORED, ABSENT))
        return Policy(stored, recomputed)


_REMEMBERED: OrderedDict[tuple[Layer, int | None], Front | None] = OrderedDict()  # None: of too many policies


def front_of(layer: Layer, inflight: int | None = None, stop: Callable[[], bool] = lambda: False) -> Front:
    """The front of a layer, from memory if it was among the last ones asked for; raises as `Front.of`.

    That a layer has too many policies is remembered, too, unless `stop` ended the list.
    """
    key = (layer, inflight)
    found = _REMEMBERED.pop(key) if key in _REMEMBERED else _listed(layer, inflight, stop)
    _REMEMBERED[key] = found
    if len(_REMEMBERED) > REMEMBERED:
        _REMEMBERED.popitem(last=False)
    if found is None:
        raise TooManyStates
    return found


def _listed(layer: Layer, inflight: int | None, stop: Callable[[], bool]) -> Front | None:
    """None where there are too many policies; raises `TooManyStates` where `stop` ended the list before that."""
    try:
        return Front.of(layer, inflight, MAX_STATES, stop)
    except TooManyStates:
        if stop():
            raise
        return None


def forget_fronts() -> None:
    """Empty the memory of fronts, so that the next answers are measured cold."""
    _REMEMBERED.clear()
