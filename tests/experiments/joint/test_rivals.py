"""PyTorch's planners beside ours, on a graph of two layers and on one that AOTAutograd traces."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from experiments.hardware import read_hardware
from experiments.joint.aot import AotProblem, partitioned, traced
from experiments.joint.policies import judged_policy, where
from experiments.joint.rivals import at_share, knapsack, rows_kept, sac_milp
from experiments.joint.rivals_page import inversions, page
from solvers.ir import InvalidInput, JointProblem
from solvers.joint.instances import peak_bytes
from tests.solvers.joint.layered import layered


def _peak(problem: JointProblem, share: float, name: str) -> int:
    policy, _ = knapsack(name, at_share(problem, share), share)
    peak = judged_policy(problem, policy).peak
    assert peak is not None
    return peak.bytes


@pytest.mark.parametrize("name", ["greedy", "ilp"])
def test_a_knapsack_that_saves_all_peaks_as_everything_kept(name: str) -> None:
    problem = layered(1.0, layers=2)
    assert _peak(problem, 1.0, name) == peak_bytes(problem)
    assert _peak(problem, 0.3, name) < peak_bytes(problem)


def test_the_milp_of_sac_saves_as_much_as_it_may() -> None:
    if find_spec("pulp") is None:
        pytest.skip("pulp is not installed")
    problem = layered(1.0, layers=2)
    policy, _ = sac_milp(problem, 0.5)
    sizes = [problem.ops[int(op)].output_bytes for op in policy.saved]
    assert sizes and sum(sizes) <= 0.5 * sum(sizes + [problem.ops[int(op)].output_bytes for op in policy.recomputed])
    judged = judged_policy(problem, policy)
    assert judged.step_us is not None and judged.step_us > judged.base_us


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x).sum()
        return result


def test_torchs_partitioner_on_the_same_graph() -> None:
    """A budget of 1 recomputes nothing that costs; of 0 saves only inputs, so its peak is that of everything kept."""
    graph = AotProblem(traced("net", lambda: (_Net(), (torch.ones(64, 8),))), read_hardware("a100-sxm-80"))
    problem = graph.problem(2**30)
    products = [op for op in problem.ops if "mm" in op.name]
    assert len(products) == 3 + 5 and 0 < graph.backward < len(problem.ops)  # the input needs no gradient
    assert (
        problem.static_bytes == 64 * 8 * 4 + 2 * 3 * (8 * 8 + 8) * 4 + 4
    )  # batch, weights, their gradients, the loss's
    most, _ = partitioned(graph, "greedy", 1.0)
    least, _ = partitioned(graph, "greedy", 0.0)
    assert most.saved and not least.saved
    again, once = judged_policy(problem, least), judged_policy(problem, most)
    assert once.clean and again.clean and again.again_us > once.again_us
    assert again.peak is not None and once.peak is not None and again.peak.bytes >= once.peak.bytes
    tight = judged_policy(replace(problem, budget_bytes=again.peak.bytes - 1), least)
    assert not tight.clean and where(problem, again.peak).startswith("while op 5 (tanh_2) is computed again")


def test_the_page_counts_what_is_broken() -> None:
    row = {"model": "m", "planner": "p", "s": 0.1, "base_us": 100}
    rows = [
        row | {"share": share, "budget_bytes": 100 * share, "peak_bytes": peak, "step_us": step}
        for share, peak, step in ((0.1, 60, 130), (0.5, 40, 120), (0.9, 90, 101))
    ]
    assert inversions(rows) == 1
    ours = [row | {"planner": "opt", "share": 0.5, "budget_bytes": 50, "peak_bytes": None, "step_us": None}]
    text = page([*rows, *ours])
    assert "| m | p | 2 of 3 | 600 % | 1 | 20.00 % | 0.10 |" in text
    assert "| m | opt | 0 of 1, the others refused | – | – | none | 0.10 |" in text


def test_its_library_leaves_room_for_that_of_ortools() -> None:
    """pulp loads highspy, unless ortools came first; the two libraries cannot live in one process."""
    if find_spec("pulp") is None:
        pytest.skip("pulp is not installed")
    program = (
        "from experiments.joint.rivals import sac_milp; from tests.solvers.joint.layered import layered;"
        "sac_milp(layered(1.0, layers=2), 0.5); import ortools.sat.python.cp_model"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize("line", [b"{bad", b"\xff\xfe", b'{"a":1}', b"[]"])
def test_a_damaged_row_is_named(line: bytes, tmp_path: Path) -> None:
    kept = tmp_path / "pytorch.jsonl"
    kept.write_bytes(b'{"model":"one"}\n' + line + b"\n")
    with pytest.raises(InvalidInput, match=r"pytorch.jsonl, line 2 is no row"):
        rows_kept(kept)
