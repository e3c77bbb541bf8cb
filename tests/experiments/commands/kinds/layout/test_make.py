"""`bayplan make layout`: one rank of many, from a shape or a measured step, solved and judged; and what is refused."""

import json
from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.ir import Op, OpGraph
from solvers.ir.codec import document_to_raw, read_problem, write_json
from solvers.ir.layout import LayoutProblem
from solvers.layout.make import Rank, problem_from_shape
from tests.experiments.commands.console import ROOT, Outcome, call, refused, write_graph
from tests.solvers.layout.test_measured import by_hand

RANKS = ["--microbatch", 2, "--data-parallel", 4]
SHIPPED = ROOT / "experiments" / "instances" / "layout-gpt2-10b-3090.json"
SMALL = ["--hardware", "sim-small", "--host-bytes", "64GiB", "--context", 0, "--parameter-bytes", 4]


def make(out: Path, *arguments: object, shape: str = "gpt2-10b", hardware: str = "protrain-3090") -> Outcome:
    return call("make", "layout", "--shape", shape, "--hardware", hardware, "--out", out, *arguments)


def read(path: Path) -> LayoutProblem:
    problem, _ = read_problem(path)
    assert isinstance(problem, LayoutProblem)
    return problem


def solved_clean(problem: Path, plan: Path, solver: str = "search") -> int:
    """The objective of a solver's plan that the judge finds clean."""
    answer = call("solve", problem, "--solver", solver, "--work", 0.2, "--time-limit", 600, "--out", plan)
    assert answer.code == 0, answer.err
    verdict = call("check", problem, plan)
    assert (verdict.code, verdict.figure("verdict")) == (0, "no violations")
    return int(verdict.figure("objective, recomputed").split()[0])


def test_from_a_shape_to_a_checked_plan(tmp_path: Path) -> None:
    """Row D of the paper's table 4: GPT2-10B, 8 samples on four RTX 3090, is the shipped instance."""
    out = tmp_path / "p.json"
    outcome = make(out, *RANKS)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.figure("blocks") == "50, with a choice: 48"
    assert outcome.figure("chunks") == "49 of 412090368 bytes (393.00 MiB)"
    assert outcome.figure("least budget") == "4076179456 bytes (3.80 GiB)"
    made, shipped = read(out), read(SHIPPED)
    assert (made.blocks, made.chunks) == (shipped.blocks, shipped.chunks)
    heuristic = solved_clean(out, tmp_path / "search.json")
    assert solved_clean(out, tmp_path / "exact.json", "exact-layout") <= heuristic


def test_the_options_are_those_of_the_problem(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    options = ["--hosts", 4, "--sequence", 512, "--host-bytes", "512GiB", "--budget", "40GiB"]
    cluster = ["--microbatch", 3, "--data-parallel", 16]
    assert make(out, *cluster, *options, shape="gpt2-1b", hardware="protrain-a100-16").code == 0
    expected = problem_from_shape(
        read_shape("gpt2-1b"),
        read_hardware("protrain-a100-16"),
        Rank(ranks=16, hosts=4, host_bytes=512 << 30, device_bytes=40 << 30),
        batch=48,
        sequence=512,
    )
    assert read(out) == expected
    assert expected.host_bytes == 128 << 30  # four ranks share a host


def test_a_percentage_is_of_everything_on_the_device(tmp_path: Path) -> None:
    outcome = make(tmp_path / "p.json", *RANKS, "--budget", "50%")
    everything = int(outcome.figure("everything on the device").split()[0])
    problem = read(tmp_path / "p.json")
    assert problem.device_bytes == everything // 2
    states = sum(chunk.persistent_bytes + problem.chunk_bytes for chunk in problem.chunks)
    kept = sum(block.activation_bytes for block in problem.blocks[:-1])
    assert everything > states + kept + problem.fixed_bytes


def test_the_least_budget_is_enough_and_a_byte_less_is_not(tmp_path: Path) -> None:
    """Too small a budget: the problem is written with a warning, solvers say what device and host need.

    Three layers, few enough for every decision to be tried.
    """
    shape, out = tmp_path / "short.json", tmp_path / "p.json"
    whole = json.loads((ROOT / "conf" / "model" / "shapes" / "gpt2-10b.json").read_text())
    shape.write_text(json.dumps({**whole, "layers": 3}))
    least = make(out, *RANKS, shape=str(shape)).figure("least budget").split()[0]
    assert make(out, *RANKS, "--budget", least, shape=str(shape)).err == ""
    solved_clean(out, tmp_path / "plan.json", "exact-layout")
    short = int(least) - 1
    warned = make(out, *RANKS, "--budget", short, shape=str(shape)).err
    says = warned.removeprefix("bayplan: warning: no layout fits: ").rstrip()
    host = sum(chunk.host_bytes for chunk in read(out).chunks)
    assert says == (
        f"the device has {short} bytes, but exactly {least} bytes are needed; the host has 103079215104 bytes, and "
        f"needs at least {host}: give more memory, take more ranks or a smaller batch"
    )
    for solver in ("search", "exact-layout"):
        answer = call("solve", out, "--solver", solver)
        assert (answer.code, answer.figure("status"), answer.figure("reason")) == (1, "infeasible", says)


def test_from_a_step_to_a_checked_plan(tmp_path: Path) -> None:
    """The demo's eight layers on the simulated device, in single precision; half of everything is enough."""
    graph, out = tmp_path / "g.json", tmp_path / "p.json"
    assert call("profile", "experiments.models.gpt:demo", "--device", "sim", "--out", graph).code == 0
    rest = ["--graph", graph, *SMALL, "--out", out]
    outcome = call("make", "layout", *rest, "--budget", "50%")
    assert outcome.code == 0
    assert outcome.err == (
        "bayplan: warning: aten::_foreach_norm.Scalar reads gradients between backward and optimizer, "
        "as clipping does: no update overlaps with backward\n"
    )
    assert not read(out).overlap_update
    assert (outcome.figure("ranks"), outcome.figure("blocks")) == ("1", "10, with a choice: 8")
    solved_clean(out, tmp_path / "plan.json")
    said = refused(call("make", "layout", *rest, "--sequence", 9))
    assert said == "--sequence says how a --shape is cut, but --graph is a measured step: leave it out"


def test_a_computed_step_is_made_from_its_shape(tmp_path: Path) -> None:
    graph = tmp_path / "g.json"
    cut = ["--shape", "gpt-300m", "--microbatch", 1, "--layers", 4, "--hardware", "sim-small", "--out", graph]
    assert call("make", "graph", *cut).code == 0
    said = refused(call("make", "layout", "--graph", graph, *SMALL, "--out", tmp_path / "p.json"))
    assert said.startswith("no block uses a parameter") and "give the shape itself" in said


def test_a_parameter_that_is_used_nowhere_is_told(tmp_path: Path) -> None:
    graph, out = tmp_path / "g.json", tmp_path / "p.json"
    write_json(graph, document_to_raw(by_hand()))
    outcome = call("make", "layout", "--graph", graph, *SMALL, "--out", out)
    assert outcome.code == 0
    assert outcome.err == "bayplan: warning: a parameter is used nowhere (w9): in no chunk, always on the device\n"


def test_a_step_without_repeated_layers(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    said = refused(call("make", "layout", "--graph", write_graph(tmp_path / "g.json"), *SMALL, "--out", out))
    assert said.startswith("graph 'tiny step' ") and "layers" in said
    inference = OpGraph(name="one op", ops=(Op(name="a", phase="forward", time_us=1),), tensors=(), memory_bytes=(1,))
    write_json(tmp_path / "h.json", document_to_raw(inference))
    refused(call("make", "layout", "--graph", tmp_path / "h.json", *SMALL, "--out", out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--shape needs --microbatch, the samples of a rank: give it, as in --microbatch 2"),
        ([*RANKS, "--microbatch", 0], "0 is not in the range x>=1"),
        ([*RANKS, "--data-parallel", 5], "protrain-3090"),
        ([*RANKS, "--hosts", 3], "ranks is 4 on 3 hosts: give at least 1 of each, and a multiple of hosts"),
        ([*RANKS, "--hosts", 2], "protrain-3090"),
        ([*RANKS, "--budget", "lots"], "--budget is 'lots': give bytes"),
        ([*RANKS, "--host-bytes", "50%"], "--host-bytes is '50%': give bytes"),
        ([*RANKS, "--context", "1GiB"], "--context is of a --graph: a --shape says it itself, so leave it out"),
        ([*RANKS, "--tensor", 2], "--tensor means nothing to layout, which is of one rank's whole model: leave it out"),
        ([*RANKS, "--microbatches", 2], "--microbatches means nothing to layout"),
        ([*RANKS, "--failed", 1], "--failed means something to replan problems only: leave it out"),
        (["--microbatch", 10**12, *RANKS[2:]], "beyond the"),
    ],
)
def test_ranks_that_mean_nothing(tmp_path: Path, arguments: list[object], says: str) -> None:
    out = tmp_path / "p.json"
    assert says in refused(make(out, *arguments))
    assert not out.exists()


def test_an_unknown_shape_and_a_host_of_unknown_memory(tmp_path: Path) -> None:
    said = refused(make(tmp_path / "p.json", *RANKS, shape="gpt2-10"))
    assert said == "there is no shape 'gpt2-10': did you mean 'gpt2-10b'?"
    said = refused(make(tmp_path / "p.json", "--microbatch", 1, hardware="sim-small", shape="gpt2-1b"))
    assert "does not say how much memory a host has" in said and "host_bytes" in said


def test_options_of_layout_mean_nothing_to_other_kinds(tmp_path: Path) -> None:
    rest = ["--shape", "gpt-300m", "--microbatch", 1, "--hardware", "lynx-nvlink", "--out", tmp_path / "p.json"]
    for option in (
        ["--no-overlap-update"],
        ["--hosts", 1],
        ["--host-bytes", 1],
        ["--context", 0],
        ["--parameter-bytes", 4],
    ):
        said = refused(call("make", "swap", *rest, *option))
        assert said == f"{option[0]} means something to layout problems only: leave it out"
    said = refused(call("make", "swap", *rest, "--data-parallel", 2))
    assert said == "--data-parallel means something to replan and layout problems only: leave it out"


def test_overlap_of_the_update_can_be_switched_off(tmp_path: Path) -> None:
    """The help says what for; a plan of row D then takes longer than with it."""
    out, graph = tmp_path / "p.json", tmp_path / "g.json"
    help_text = " ".join(call("make", "--help").out.split())
    assert "--no-overlap-update" in help_text and "gradient clipping, loss scaling and accumulation" in help_text
    objectives = []
    for option, says in ([], "beside backward"), (["--no-overlap-update"], "after backward"):
        assert make(out, *RANKS, *option).figure("updates on the host") == says
        assert read(out).overlap_update == (not option)
        objectives.append(solved_clean(out, tmp_path / "plan.json"))
    assert objectives[0] < objectives[1]
    write_json(graph, document_to_raw(by_hand()))
    outcome = call("make", "layout", "--graph", graph, *SMALL, "--no-overlap-update", "--out", out)
    assert (outcome.code, read(out).overlap_update) == (0, False)


OWN = """
import torch


class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.dead = torch.nn.Linear(8, 32), torch.nn.Linear(32, 3), torch.nn.Linear(100, 100)
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh()) for _ in "abcd")

    def forward(self, hidden):
        hidden = self.first(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return self.last(hidden)


def build(device):
    torch.manual_seed(0)
    model = Own().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(64, 8).to(device)

    def step():
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step
"""


def test_a_step_is_profiled_with_every_block_checkpointed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and states are the model's and its optimizer's; what is used nowhere is told and fixed."""
    (tmp_path / "own_step.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "p.json"
    rest = ["--profile", "own_step:build", "--hardware", "sim-small", "--host-bytes", "1GiB", "--out", out]
    outcome = call("make", "layout", *rest, "--context", 0, "--no-overlap-update")
    assert outcome.code == 0, outcome.err
    assert outcome.err == (
        "bayplan: warning: 2 parameters are used nowhere (dead.weight, dead.bias): in no chunk, always on the device\n"
    )
    problem = read(out)
    assert [block.choice for block in problem.blocks] == [False, *[True] * 4, False]
    trained = 4 * (8 * 32 + 32 + 4 * (32 * 32 + 32) + 32 * 3 + 3)
    assert sum(chunk.host_bytes for chunk in problem.chunks) == 2 * trained  # AdamW in single precision: two moments
    assert problem.fixed_bytes >= 4 * (64 * 8 + 100 * 101)
    assert not problem.overlap_update
    solved_clean(out, tmp_path / "plan.json")
    assert "--sequence says how a --shape is cut" in refused(call("make", "layout", *rest, "--sequence", 9))
    assert "profile memory on an accelerator" in refused(call("make", "layout", *rest, "--device", "cpu"))
    assert "give either --graph" in refused(call("make", "layout", *rest, "--shape", "gpt2-1b"))
    assert refused(make(out, *RANKS, "--device", "sim")) == "--device says where a --profile runs: leave it out"
