"""What the problems of all kinds have in common, and their plans."""

from typing import ClassVar

from solvers.ir.fields import Record


class Problem(Record, frozen=True, kw_only=True):
    """Something to decide. `KIND` is its kind's name in files and in `solvers.kinds`; `name` is for people."""

    KIND: ClassVar[str]
    name: str


class Plan(Record, frozen=True, kw_only=True):
    """A decision: what a solver answers to a problem of its kind."""
