"""The policies that a session tries: each a planner by name, with its parameters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Literal

from runtime.loop.arguments import require
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits
from solvers.planner import Planner, planner, solver_entry

TIME_S = 2.0
"""Training waits while a policy is made, so that a search may not take long."""


@dataclass(frozen=True, kw_only=True)
class PolicyChoice:
    """A planner of kind `swap` and its parameters; `time_s` limits planners that search (seconds of host time).

    `tried` always, or only where sizes are `varied` from iteration to iteration, where they are not and `launches` of
    copies take long, in `either` case, or where memory is `short`: no policy before it alone keeps the budget. With
    `residents` parameters and the optimizer's states may leave, too, where memory is counted in exact bytes. With
    `gaps`, there too, any tensor may leave between any two of its uses, and more than once.
    """

    solver: str = "greedy-swap"
    parameters: Mapping[str, object] = field(default_factory=dict)
    time_s: float = TIME_S
    tried: Literal["always", "varied", "launches", "either", "short"] = "always"
    residents: bool = False
    gaps: bool = False

    def __str__(self) -> str:
        """As on a command line: `greedy-swap layers=8 weight=4.0`."""
        more = [f"with {what}" for what in ("residents", "gaps") if getattr(self, what)]
        return " ".join([self.solver, *(f"{name}={value}" for name, value in self.parameters.items()), *more])

    def planner(self, host: Mapping[str, object] | None = None) -> Planner:
        """The planner, perhaps with a limit of host memory (`solvers.planner.planner`).

        Raises `InvalidInput` on an unknown name or parameter, or on a solver of another kind.
        """
        kind = solver_entry(self.solver).kind
        if kind != "swap":
            raise InvalidInput(f"solver {self.solver!r} solves problems of kind {kind!r}: name one of kind 'swap'")
        return planner(self.solver, self.parameters, Limits(time_s=self.time_s), host=host, gaps=self.gaps)


def needed_only(choice: PolicyChoice) -> PolicyChoice:
    """The same, but of what the greedy heuristic chooses only what some operator needs, if that takes no longer."""
    if choice.solver != "greedy-swap" or choice.parameters.get("fewest"):
        return choice
    return replace(choice, parameters={**choice.parameters, "pruned": True})


FEWEST = PolicyChoice(parameters={"fewest": True}, tried="either")
"""Beside a portfolio that nobody listed: each swap of a small tensor costs launches in every iteration, and hardly any
is as large as the one that a policy is for."""
RESIDENTS = PolicyChoice(parameters={"pruned": True}, tried="varied", residents=True)
"""Likewise: what outlives an iteration is as large in each, whatever its tokens are routed to, and few tensors of it
are as much as many of those that experts make. Not the fewest, which suffice for the recorded iteration only."""
FEW_RESIDENTS = PolicyChoice(parameters={"fewest": True}, tried="launches", residents=True)
"""Likewise where all iterations are as the recorded one."""

GAPS = PolicyChoice(parameters={"fewest": True}, tried="either", gaps=True)
"""Likewise: what waits through several passes of one iteration, as an optimizer's history does while its closure is
evaluated, frees memory in each of them for the launches of one. Also where memory is short: what is used again and
again within one pass (fixed points, penalties on gradients) frees none between its forward and backward use."""
ALL_GAPS = PolicyChoice(tried="short", gaps=True)
"""Likewise. Where most of what is there must leave at some moment, the fewest tensors are not what takes least time."""


def portfolio(solver: str | Sequence[PolicyChoice], policies: int) -> tuple[PolicyChoice, ...]:
    """The policies to try, in order: the named solver as it is, then others that decide differently, and those
    that are not always tried.

    A sequence of choices is taken as it stands, whatever `policies` says. Raises `InvalidInput` for what no planner is.
    """
    if isinstance(solver, str):
        first = PolicyChoice(solver=solver)
        others = (choice for choice in _variety() if choice != first)
        chosen = (first, *islice(others, max(policies - 1, 0)), FEWEST, RESIDENTS, FEW_RESIDENTS, GAPS, ALL_GAPS)
    else:
        require("solver", solver, Sequence, "a planner's name, or a list of PolicyChoice")
        chosen = tuple(solver)
    if not chosen:
        raise InvalidInput("solver is an empty list: name at least one policy to try")
    for choice in chosen:
        require("a policy in solver", choice, PolicyChoice, "PolicyChoice(solver=…), or one planner's name for all")
        choice.planner()
    return chosen


def _variety() -> Iterator[PolicyChoice]:
    """Without end: the greedy heuristic in its two forms, Capuchin's, then finer and coarser logical layers.

    Where every operator's time is the mean (Eq. 1), the placing that looks best need not be; what differs most is the
    number of logical layers and what a candidate's size weighs against its place (C of Eq. 2). Of 34 settings, tried on
    sim with GPTs of several shapes, budgets and links, these leave least between their best and the best of all.
    """
    yield PolicyChoice()
    yield PolicyChoice(parameters={"layers": 16})
    yield PolicyChoice(parameters={"layers": 8, "printed": True})
    yield PolicyChoice(parameters={"layers": 32, "weight": 4.0, "printed": True})
    yield PolicyChoice(solver="capuchin-swap")
    for step in count(1):
        yield PolicyChoice(parameters={"layers": 32 * step, "weight": 0.0})
        yield PolicyChoice(parameters={"layers": 32 * step, "weight": 16.0})
