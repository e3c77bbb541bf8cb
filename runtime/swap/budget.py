"""What a session may use."""

from decimal import Decimal
from numbers import Real
from types import NoneType

from runtime.loop.arguments import require
from solvers.ir.amounts import parse_budget
from solvers.ir.errors import InvalidInput

MOST_BYTES = 2**63 - 1
"""The most that the native engine can count."""
REMEDY = "a number of bytes, an amount such as '20GiB' or a share such as '80%'"


def budget_of(budget: int | str | None, memory_bytes: int) -> int:
    """Bytes of a budget: a number, an amount such as `20GiB`, a percentage of the device's memory, or all of it.

    Raises `InvalidInput` where it means nothing, is not positive or is more than the device has.
    """
    if isinstance(budget, str):
        amount = parse_budget(budget, memory_bytes, "budget")
    else:
        require("budget", budget, (Real, NoneType), REMEDY)
        number: float = 0 if budget is None else budget
        if not abs(number) <= MOST_BYTES:  # NaN is not, either
            shown = "beyond any memory" if isinstance(number, int) else number
            raise InvalidInput(f"budget is {shown}: give {REMEDY}")
        amount = memory_bytes if budget is None else int(budget)
    if not 0 < amount <= memory_bytes:
        raise InvalidInput(
            f"budget of {amount} bytes is not between 1 and the device's {memory_bytes} bytes: give {REMEDY}"
        )
    return amount


def planned_bytes(budget_bytes: int, headroom: float) -> int:
    """What policies may use: the budget less its share `headroom`."""
    if not 0 <= headroom < 1:
        raise InvalidInput(f"headroom is {headroom}, outside [0, 1): it is a share of the budget")
    return int(Decimal(budget_bytes) * (1 - Decimal(str(headroom))))
