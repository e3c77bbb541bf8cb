"""What the table entries of this paper have in common: the model that an entry's parameters name, and its link."""

from experiments.reproduction import Cells
from solvers.replan.make import Trained

GIGA = 10**9


def trained_in(
    cells: Cells,
    model: str,
    hardware: str,
    gb_per_s: float,
    *,
    layers: int | None = None,
    sequence: int | None = None,
    head: bool = True,
) -> Trained:
    """The model of an entry on its machine, whose nodes send and receive `gb_per_s` gigabytes a second."""
    return Trained(
        shape=cells.shape(model),
        machine=cells.hardware(hardware),
        bytes_per_s=round(gb_per_s * GIGA),
        layers=layers,
        sequence=sequence,
        head=head,
    )
