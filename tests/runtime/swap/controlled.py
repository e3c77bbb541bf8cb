"""A training loop under a session's control, with an engine and recorders that tests play."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from runtime.swap.control import Around, Control
from runtime.swap.generation import Generation
from runtime.swap.policy import Policy
from runtime.swap.profiled import Profiled
from runtime.swap.report import IterationSummary, SessionCounts
from runtime.swap.stages import Sampling, StageSettings
from solvers.ir.errors import BayplanError
from tests.runtime.swap.chain import (
    BACKWARD_ID,
    FORWARD_ID,
    LAYER_BYTES,
    STATIC_BYTES,
    UPDATE_ID,
    chain_operators,
    chain_profiled,
    hardware,
)
from tests.runtime.swap.test_generation import CHOICES
from tests.runtime.swap.test_sizes import of_size

LAYERS = 12
BUDGET_BYTES = STATIC_BYTES + (LAYERS - 4) * LAYER_BYTES
POLICIES = 3
STAGES = StageSettings(policies=POLICIES)
DEEPER = [BACKWARD_ID] * (LAYERS + 4) + [FORWARD_ID] * (LAYERS + 3) + [UPDATE_ID] * 2
"""Four layers more, and other operators the most frequent."""
WARM_UP = 3
"""Similar iterations before policies are made: m + 1."""


@dataclass
class FakeEngine:
    """Answers with the iterations that a test gives it; a policy makes them faster, each by another amount."""

    operators: list[int] = field(default_factory=list)
    only_small = False
    policy: Policy | None = None
    policies: list[Policy] = field(default_factory=list)
    ranks: list[list[int]] = field(default_factory=list)
    sighted: list[bool] = field(default_factory=list)
    forward_bytes: int = 1 << 20
    passive: int = 0
    spared: int = 0
    fallbacks: int = 0
    _sighting: bool = False
    _marking: bool = False

    def end_iteration(self) -> Any:
        ran, self.operators = self.operators, []
        if ran:
            self.sighted.append(self._sighting)
        self._sighting = False
        marked, self._marking = self._marking, False
        took_us = self._duration_us()
        counts = {name: 0 for name in vars(SessionCounts()) if not name.startswith("_")}
        counts["swapped_out"] = 0 if self.policy is None else len(self.policy.targets)
        counts["passive"] = self.passive if self.policy is None or self.spared else 0
        counts["spared"] = self.spared
        counts["fetched"] = self.fallbacks
        return SimpleNamespace(
            operators=ran,
            phases=b"\0" * len(ran),
            counts=SimpleNamespace(**counts),
            unmatched=0,
            peak_bytes=BUDGET_BYTES,
            host_peak_bytes=5,
            reserved_peak_bytes=7,
            duration_us=lambda: took_us,
            sightings=[],
            backward=True,
            forward_bytes=self.forward_bytes,
            clock=SimpleNamespace(
                done=True, measured=marked, duration_us=lambda: took_us, without_swapping_us=lambda: took_us - 500
            ),
        )

    def _duration_us(self) -> float:
        """The second policy is the fastest."""
        if self.policy is None:
            return 5000.0
        return 3000.0 + 100 * abs(self.policies.index(self.policy) % POLICIES - 1)

    def record_sightings(self, on: bool) -> None:
        self._sighting = on

    def set_policy(self, policy: Any) -> None:
        self.policy = policy
        if policy is not None and policy not in self.policies:
            self.policies.append(policy)

    def measure_swapping(self) -> None:
        self._marking = True

    def set_ranks(self, by_frequency: Sequence[int]) -> None:
        self.ranks.append(list(by_frequency))


@dataclass
class FakeRecorder:
    """Sees the chain's iteration, as many times as large as its forward pass has MiB, or fails."""

    fails: bool = False
    running: bool = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        assert self.running
        self.running = False

    def profiled(self, iteration: Any, duration_us: float) -> Profiled:
        assert not self.running
        if self.fails:
            raise BayplanError("profiler and engine saw different operators")
        layers = LAYERS + 4 if iteration.operators == DEEPER else LAYERS
        profiled = chain_profiled(layers)._replace(operators=iteration.operators)
        return of_size(iteration.forward_bytes >> 20, like=profiled)


class Loop:
    """A training loop under the control."""

    def __init__(
        self,
        *,
        budget_bytes: int = BUDGET_BYTES,
        sample_every: int = 1,
        broken_recorders: int = 0,
        stages: StageSettings = STAGES,
    ) -> None:
        self.engine = FakeEngine()
        self.summaries: list[IterationSummary] = []
        self.recorders: list[FakeRecorder] = []
        self.host_bytes: list[int] = []
        self._broken = broken_recorders
        self.control = Control(
            self.engine,
            lambda number: Generation(number, CHOICES, hardware(), budget_bytes),
            self._recorder,
            stages,
            Sampling(sample_every),
            self.summaries.append,
            Around(settle_host=self.host_bytes.append),
        )
        self.control.begin(whole=True)

    def _recorder(self) -> FakeRecorder:
        self.recorders.append(FakeRecorder(fails=len(self.recorders) < self._broken))
        return self.recorders[-1]

    def run(self, iterations: int, operators: list[int] | None = None) -> list[IterationSummary]:
        for _ in range(iterations):
            self.engine.operators = list(operators or chain_operators(LAYERS))
            self.control.end()
        return self.summaries[-iterations:]
