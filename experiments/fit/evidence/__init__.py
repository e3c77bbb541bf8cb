"""Is `fit` right? Programs and shapes near their limits: predicted first, then run in that much simulated memory.

python -m experiments.fit.evidence --allocator exact
python -m experiments.fit.evidence --allocator expandable --of swaps
"""

from experiments.fit.evidence.case import FACTORS, Allocator, Case
from experiments.fit.evidence.programs import PROGRAMS, Program, cases
from experiments.fit.evidence.shapes import STAGES, StageCase, stage_cases
from experiments.fit.evidence.swaps import SWAPPED, swap_cases

__all__ = [
    "FACTORS",
    "PROGRAMS",
    "STAGES",
    "SWAPPED",
    "Allocator",
    "Case",
    "Program",
    "StageCase",
    "cases",
    "stage_cases",
    "swap_cases",
]
