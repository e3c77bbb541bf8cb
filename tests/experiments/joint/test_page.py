"""The page of the joint study says what its rows say, no more."""

from experiments.joint.cases import CASES
from experiments.joint.machines import LINKS
from experiments.joint.page import gap, page, summary

ROW = {
    "case": "a", "family": "Llama", "link": "PCIe 4", "base_us": 1000, "swap": 300, "recompute": 200,
    "greedy": 120, "joint": 50, "bound": 45.0, "proven": True,
}  # fmt: skip


def test_gaps_are_of_the_step() -> None:
    assert gap(ROW, "joint") == 5 / 1050
    assert gap(ROW, "greedy") == 75 / 1120


def test_a_row_and_what_it_says() -> None:
    text = page([ROW, ROW | {"case": "b", "recompute": None, "swap": 0, "greedy": 0, "joint": 0, "bound": 0.0}])
    assert "| a | PCIe 4 | 1 | 30.00 | 20.00 | 12.00 | 5.00 | 4.50 | 6.70 | 0.48 | 10.0 |" in text
    assert "| b | PCIe 4 | 1 | 0.00 | – | 0.00 | 0.00 | 0.00 | 0.00 | 0.00 | 0 |" in text
    assert (
        "never above a single technique in 2 of 2 cases, better than both by at least 1 % of the base in 1 of 2" in text
    )
    assert "longer than joint's by 0.00 to 6.67 %, by 1 % or more in 1, by 5 % or more in 1 cases" in text
    assert "| Llama | 2 | 3.35, 6.70 % | 3.33, 6.67 % | 1 |" in text
    assert "at most 10 % in 1 of 1 cases with overhead" in text


def test_a_win_over_one_technique_is_no_win_over_both() -> None:
    text = "\n".join(summary([ROW, ROW | {"recompute": None}]))
    assert "in 1 of 2, better than the only one that has a plan in 1 more." in text


def test_losses_are_told_too() -> None:
    worse = ROW | {"joint": 250}
    assert "in 0 of 1 cases, better than both by at least 1 % of the base in 0 of 1" in "\n".join(summary([worse]))


def test_the_cases_are_many_and_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 20
    assert {case.hardware for case in CASES} == set(LINKS)
    problem = CASES[0].problem()
    assert problem.name == CASES[0].name and problem.budget_bytes > problem.static_bytes
