"""What the allocator counts, under PyTorch's names where it has them."""

from dataclasses import dataclass, field


@dataclass
class Level:
    """A number of bytes, and the most that it was."""

    now: int = 0
    peak: int = 0

    def add(self, change: int) -> None:
        """Raise or lower it."""
        self.now += change
        if self.now > self.peak:
            self.peak = self.now


@dataclass
class Statistics:
    """Bytes in use, bytes held from the driver, and free bytes of split segments; events counted.

    `retries` and `ooms` are `num_alloc_retries` and `num_ooms`; `segments` is how many there are now, `returned` how
    many went back to the driver. Expandable segments count neither `inactive_split` nor `segments`, as in PyTorch.
    """

    allocated: Level = field(default_factory=Level)
    reserved: Level = field(default_factory=Level)
    inactive_split: Level = field(default_factory=Level)
    retries: int = 0
    ooms: int = 0
    segments: int = 0
    returned: int = 0

    def begin(self) -> None:
        """Count from here on: what is held now is the first peak."""
        for level in (self.allocated, self.reserved, self.inactive_split):
            level.peak = level.now
        self.retries = self.ooms = self.returned = 0
