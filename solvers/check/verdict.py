"""What a judge answers: the violations, and the objective that it computed itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """`violations` holds a sentence each (place, value, limit); `objective_us` is None where the decision has none.

    `certified_us`: what a certificate proves that no decision ends before, in µs; None without one that adds up.
    """

    violations: tuple[str, ...]
    objective_us: int | None = None
    certified_us: float | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.violations
