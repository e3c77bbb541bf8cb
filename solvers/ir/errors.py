"""What goes wrong, told in one sentence that holds the value, the limit and the remedy."""


class BayplanError(Exception):
    """Root of every error that Bayplan raises on purpose; its text is the sentence that the user reads."""


class InvalidInput(BayplanError, ValueError):
    """The input itself is wrong (exit code 2): a file, a flag, a name or a number that cannot mean anything."""


def require_at_least(least: float, **values: float | None) -> None:
    """Raise `InvalidInput` for the first named value below `least`, or no number; None is left out."""
    for name, value in values.items():
        if value is not None and not value >= least:
            raise InvalidInput(f"{name} is {value}, below {least}: give at least {least}")


class InvalidProblem(InvalidInput):
    """A problem, graph, plan or schedule contradicts itself or the problem that it belongs to."""


class InfeasibleBudget(InvalidInput):
    """No plan keeps the budget. `least_budget_bytes` is the least that one keeps, or a lower bound; None: not known."""

    def __init__(self, sentence: str, least_budget_bytes: int | None) -> None:
        super().__init__(sentence)
        self.least_budget_bytes = least_budget_bytes


class EngineMissing(InvalidInput):
    """A named optimization engine is not installed or cannot be used; engines are never swapped silently."""
