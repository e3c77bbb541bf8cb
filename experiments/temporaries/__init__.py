"""Measures what kernels of device sim take of its memory while they run, and writes it down as rules.

The rules stand in for the kernels where there are shapes only (csrc/README.md, "Shapes without bytes").
"""

from experiments.temporaries.fit import Call, rule_of
from experiments.temporaries.measure import measured

__all__ = ["Call", "measured", "rule_of"]
