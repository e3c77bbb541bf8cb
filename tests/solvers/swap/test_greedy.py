"""SmartSwap's heuristic: what it does on a story, as printed and repaired, and what it never does."""

from itertools import combinations

import pytest

from solvers.ir import InvalidInput, Limits, Status, SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.swap import GreedySwap
from solvers.swap.instances import llama2
from tests.solvers.swap.brute_force import assert_answered, random_problem


def late_outs() -> SwapProblem:
    """Two equal tensors span the peak at ops 3 and 4; the one that is free first can leave in time, the other cannot.

    Ops of 12 us; 10 bytes at 1 byte/us take 10 us. `early` is last read by op 0 (leaves 12…22), `late` by op 2 (36…46).
    One of them must be gone at op 3, ready at 36: with `early` nothing waits; with `late` op 3 waits until 46.
    """
    return SwapProblem(
        name="late outs",
        budget_bytes=20,
        ops=tuple(SwapOp(name=f"op{j}", time_us=12, phase="forward" if j < 4 else "backward") for j in range(8)),
        memory_bytes=(10, 10, 20, 30, 30, 20, 20, 10),
        tensors=(
            SwapTensor(id="late", bytes=10, last_forward_use=2, first_backward_use=7),
            SwapTensor(id="early", bytes=10, last_forward_use=0, first_backward_use=7),
        ),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
    )


def test_the_repaired_form_takes_the_tensor_that_leaves_in_time() -> None:
    # Both tensors cover the two needy ops alike and are equally large: the score ties and takes the first listed.
    printed = GreedySwap(printed=True, layers=8).solve(late_outs(), Limits())
    repaired = GreedySwap(layers=8).solve(late_outs(), Limits())
    assert printed.objective == 106  # op 3 waits for the late swap-out: 8 · 12 + 10
    assert repaired.objective == 96
    assert repaired.base == 96
    assert repaired.bound is None
    assert repaired.status is Status.FEASIBLE


def test_the_fewest_are_the_largest_though_small_ones_wait_longer() -> None:
    """Five small tensors span more ops at need, and leave in time; one large tensor frees as much at the peak."""
    small = [SwapTensor(id=f"small {place}", bytes=4, last_forward_use=0, first_backward_use=11) for place in range(5)]
    large = SwapTensor(id="large", bytes=20, last_forward_use=4, first_backward_use=9)
    problem = SwapProblem(
        name="few or many",
        budget_bytes=20,
        ops=tuple(SwapOp(name=f"op{j}", time_us=12, phase="forward" if j < 6 else "backward") for j in range(12)),
        memory_bytes=(20, 20, 20, 20, 20, 20, 40, 40, 20, 20, 20, 20),
        tensors=(*small, large),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
    )
    few, many = (GreedySwap(layers=12, weight=0.0, fewest=fewest).solve(problem, Limits()) for fewest in (True, False))
    assert few.plan is not None and many.plan is not None
    assert [swap.tensor for swap in few.plan.swaps] == ["large"]
    assert len(many.plan.swaps) == 5


def test_the_fewest_are_hardly_ever_more_than_any_set_that_frees_enough() -> None:
    found = least = others = 0
    for seed in range(200):
        problem = random_problem(seed, max_ops=12, max_tensors=7)
        plan = GreedySwap(fewest=True).solve(problem, Limits()).plan
        other = GreedySwap().solve(problem, Limits()).plan
        if plan is not None and other is not None:
            found, others = found + len(plan.swaps), others + len(other.swaps)
            least += next(
                size
                for size in range(len(problem.tensors) + 1)
                if any(frees_enough(problem, some) for some in combinations(problem.tensors, size))
            )
    assert least <= found <= 1.02 * least < others


def frees_enough(problem: SwapProblem, away: tuple[SwapTensor, ...]) -> bool:
    """Whether every op has memory while these are away between their uses."""
    return all(
        held - sum(tensor.bytes for tensor in away if tensor.last_forward_use < op < tensor.first_backward_use)
        <= problem.budget_bytes
        for op, held in enumerate(problem.memory_bytes)
    )


def test_what_no_op_needs_is_pruned_and_costs_no_time() -> None:
    fewer = 0
    for seed in range(120):
        problem = random_problem(seed)
        all_, pruned = (GreedySwap(pruned=pruned).solve(problem, Limits()) for pruned in (False, True))
        assert_answered(problem, pruned)
        assert all_.status is pruned.status
        if all_.plan is None or pruned.plan is None or all_.objective is None or pruned.objective is None:
            continue
        assert pruned.objective <= all_.objective
        assert {swap.tensor for swap in pruned.plan.swaps} <= {swap.tensor for swap in all_.plan.swaps}
        fewer += len(pruned.plan.swaps) < len(all_.plan.swaps)
    assert fewer > 10


def test_every_answer_is_a_plan_of_the_stated_objective_or_a_proof() -> None:
    for seed in range(120):
        problem = random_problem(seed)
        for solver in (
            GreedySwap(),
            GreedySwap(printed=True),
            GreedySwap(layers=1, weight=0.0),
            GreedySwap(fewest=True),
            GreedySwap(pruned=True),
        ):
            assert_answered(problem, solver.solve(problem, Limits()))


def test_swapping_nearly_everything_takes_no_seconds() -> None:
    # No layer has time for most tensors here, so the list is walked once for each of some 800 forced ones.
    problem = llama2(layers=64, budget_fraction=0.4, link_bytes_per_s=8_000_000_000)
    assert GreedySwap().solve(problem, Limits()).plan is not None


def test_everything_that_fits_stays() -> None:
    answer = GreedySwap().solve(llama2(layers=2, budget_fraction=1.0), Limits())
    assert answer.status is Status.OPTIMAL
    assert answer.plan is not None
    assert answer.plan.swaps == ()
    assert answer.objective == answer.base == answer.bound


@pytest.mark.parametrize("options", [{"layers": 0}, {"weight": -1.0}, {"weight": float("nan")}, {"least_bytes": -1}])
def test_meaningless_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="give at least"):
        GreedySwap(**options)  # type: ignore[arg-type]


def three_candidates() -> SwapProblem:
    """10 bytes are missing at ops 4 to 7 and at 10 and 11, so there are six entries of the memory reduction list.

    `wide` covers four of them and has 10 bytes, `large` covers two of the same and has 20, `late` covers the last two.
    """
    missing = {4, 5, 6, 7, 10, 11}
    return SwapProblem(
        name="three candidates",
        budget_bytes=100,
        ops=tuple(SwapOp(name=f"op{j}", time_us=100, phase="forward" if j < 8 else "backward") for j in range(16)),
        memory_bytes=tuple(110 if j in missing else 90 for j in range(16)),
        tensors=(
            SwapTensor(id="wide", bytes=10, last_forward_use=3, first_backward_use=9),
            SwapTensor(id="large", bytes=20, last_forward_use=5, first_backward_use=9),
            SwapTensor(id="late", bytes=10, last_forward_use=9, first_backward_use=13),
        ),
        link=SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0),
    )


@pytest.mark.parametrize(("weight", "swapped"), [(0.9, {"wide", "late"}), (1.1, {"large", "wide", "late"})])
def test_the_score_weighs_entries_against_bytes_each_by_its_largest(weight: float, swapped: set[str]) -> None:
    """Equation 2 by hand: Score = N̂ + C·Ŝ, entries by the most of any candidate (4), bytes by the most (20).

    C = 0.9: wide 4/4 + 0.9·10/20 = 1.45, large 2/4 + 0.9·20/20 = 1.40, late 2/4 + 0.9·10/20 = 0.95: after `wide` no
    entry of `large` is left. C = 1.1: large 1.60, wide 1.55, late 1.05: `large` comes first and leaves ops 4 and 5.
    """
    for printed in (True, False):
        answer = GreedySwap(layers=8, weight=weight, printed=printed).solve(three_candidates(), Limits())
        assert answer.plan is not None
        assert {swap.tensor for swap in answer.plan.swaps} == swapped
