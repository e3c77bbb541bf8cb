"""Parameters of solvers from text: their types, and a sentence for each that has another one."""

import pytest

from experiments.commands.parameters import read_parameter
from solvers.ir import InvalidInput


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("printed", "On", True),
        ("printed", "0", False),
        ("layers", "+12", 12),
        ("weight", "1e-3", 0.001),
    ],
)
def test_values_have_the_types_of_their_fields(key: str, text: str, value: object) -> None:
    found = read_parameter("greedy-swap", key, text)
    assert (found, type(found)) == (value, type(value))


def test_an_unknown_parameter_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InvalidInput, match="no parameter of milp-swap 'engin'"):
        read_parameter("milp-swap", "engin", "highs")
