"""The generated instance is what its description says, and the shipped file is what the generator makes."""

from pathlib import Path

from solvers.ir.codec import read_problem
from solvers.swap.evaluate import least_budget
from solvers.swap.instances import LARGE, SMALL, llama2

SHIPPED = Path(__file__).parents[3] / "experiments" / "instances" / "swap-llama2-32l.json"


def test_the_shipped_file_is_the_generator_s() -> None:
    problem, _ = read_problem(SHIPPED)
    assert problem == llama2(name="swap-llama2-32l")


def test_it_has_640_tensors_in_32_layers_and_a_feasible_budget_below_its_peak() -> None:
    problem = llama2()
    assert len(problem.tensors) == 32 * 20
    assert (SMALL, LARGE) == (32 << 20, 86 << 20)  # 4096 tokens × 4096 (11008) features × 2 bytes
    sizes = [tensor.bytes for tensor in problem.tensors]
    assert (sizes.count(SMALL), sizes.count(LARGE)) == (32 * 13, 32 * 4)
    assert least_budget(problem) < problem.budget_bytes < max(problem.memory_bytes)


def test_memory_holds_every_tensor_between_its_uses() -> None:
    problem = llama2(layers=3)
    for op, use in enumerate(problem.memory_bytes):
        alive = sum(t.bytes for t in problem.tensors if t.last_forward_use <= op <= t.first_backward_use)
        assert use >= alive
