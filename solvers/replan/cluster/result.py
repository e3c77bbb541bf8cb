"""The result of one simulated run."""

from dataclasses import dataclass, field

from solvers.replan.cluster.setting import MICROSECONDS


@dataclass(frozen=True)
class Span:
    """A stretch of time in which the run does one thing: "training", "transition" or "stopped".

    `step_us` is the time of a step while training. Stretches as they happened: work that a later return to a
    checkpoint undoes still shows.
    """

    start_us: int
    end_us: int
    doing: str
    step_us: int | None = None


@dataclass(frozen=True)
class Alive:
    """From `at_us` on, the nodes that are alive, and those of them that have a stage."""

    at_us: int
    alive: int
    staged: int


@dataclass(frozen=True)
class RunResult:
    """One policy on one set of failures. `microbatches` are those of the steps that count (lost work does not).

    The six times add up to `duration_us`: training (steps that count), lost (steps cut short or undone), transition,
    stopped (too few nodes), saving (checkpoints), unfinished (the step cut by the end of the run). `decision_s` is the
    wall-clock time of each decision: no part of the simulated time, and not compared by `==`.
    """

    policy: str
    seed: int | None
    duration_us: int
    steps: int
    microbatches: int
    training_us: int
    lost_us: int
    transition_us: int
    stopped_us: int
    saving_us: int
    unfinished_us: int
    failures: int
    repairs: int
    decisions: dict[str, int]
    spans: tuple[Span, ...]
    nodes: tuple[Alive, ...]
    decision_s: tuple[float, ...] = field(default=(), compare=False)

    @property
    def throughput(self) -> float:
        """Microbatches that count, per second of the whole run."""
        return self.microbatches * MICROSECONDS / self.duration_us

    @property
    def effective_ratio(self) -> float:
        """The share of the time that went into steps that count."""
        return self.training_us / self.duration_us

    @property
    def mean_alive(self) -> float:
        """Nodes alive, averaged over the run."""
        ends = [*(entry.at_us for entry in self.nodes[1:]), self.duration_us]
        area = sum(entry.alive * (end - entry.at_us) for entry, end in zip(self.nodes, ends, strict=True))
        return area / self.duration_us
