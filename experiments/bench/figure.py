"""One line of the benchmark's table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the table; `value` is None where it could not be obtained, and `how` then says why."""

    name: str
    value: float | None
    unit: str
    ratio: float | None
    ratio_to: str
    how: str


def row(figure: Figure) -> tuple[str, str, str, str]:
    """As a line of the table."""
    value = "not measured" if figure.value is None else f"{figure.value:.4g} {figure.unit}"
    if figure.value is not None and figure.unit == "µs":
        value = f"{figure.value:.0f} {figure.unit}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3f} x {figure.ratio_to}"
    return figure.name, value, ratio, figure.how
