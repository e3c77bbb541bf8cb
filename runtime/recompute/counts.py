"""What a walk through blocks counts: operators that ran again, what moved, and how long a pass took."""

from dataclasses import dataclass, field

from runtime.device.native import core
from runtime.recompute.moves import MoveCounts
from runtime.recompute.tape import Tape


@dataclass
class Counts:
    """What ran again since the session began, in operators: when autograd asked, and ahead of it, in windows."""

    on_demand: int = 0
    ahead: int = 0
    left_out: int = 0
    diverged: int = 0
    copies: int = 0
    moves: MoveCounts = field(default_factory=MoveCounts)

    def add(self, tape: Tape) -> None:
        """What a tape that is finished did."""
        self.on_demand += tape.replayed_on_demand
        self.ahead += tape.replayed_ahead
        self.left_out += tape.left_out
        self.diverged += tape.diverged_at is not None
        self.copies += tape.copies


@dataclass(frozen=True)
class PassClock:
    """When a pass began and ended, in marks of its windows."""

    windows: core.Windows
    began: int
    ended: int | None = None

    @property
    def took_us(self) -> float:
        """How long a pass that has ended took, from its first block to the end of its backward pass."""
        assert self.ended is not None
        return self.windows.at_us(self.ended) - self.windows.at_us(self.began)
