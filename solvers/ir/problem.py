"""What the problems of all kinds have in common, and their plans."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import Record


class Problem(Record, frozen=True, kw_only=True):
    """Something to decide. `KIND` is its kind's name in files and in `solvers.kinds`; `name` is for people."""

    KIND: ClassVar[str]
    name: str


class Plan(Record, frozen=True, kw_only=True):
    """A decision: what a solver answers to a problem of its kind."""


ProblemT = TypeVar("ProblemT", bound=Problem)


def with_host(problem: ProblemT, host: Mapping[str, object]) -> ProblemT:
    """The problem with these fields of host memory; raises `InvalidInput` where its kind has none such."""
    missing = [name for name in host if name not in problem.__struct_fields__]
    if missing:
        raise InvalidInput(f"{problem.KIND} problems have no {missing[0]}: leave it out, or plan swaps")
    return msgspec.structs.replace(problem, **host)
