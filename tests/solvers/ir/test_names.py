"""A wrong name gets the nearest right one."""

import pytest

from solvers.ir.names import unknown


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("milp-swop", "there is no solver 'milp-swop': did you mean 'milp-swap'?"),
        ("MILP-SWAP", "there is no solver 'MILP-SWAP': did you mean 'milp-swap'?"),
        ("xyz", "there is no solver 'xyz': choose of Reroute, milp-swap"),
        ("reroute", "there is no solver 'reroute': did you mean 'Reroute'?"),
    ],
)
def test_the_nearest_name_or_all_of_them(given: str, sentence: str) -> None:
    assert str(unknown("solver", given, ["milp-swap", "Reroute"])) == sentence


def test_where_nothing_is_known() -> None:
    assert str(unknown("table", "1", [])) == "there is no table '1': choose of none"
