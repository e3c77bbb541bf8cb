"""`bayplan make replan`: clusters of pipelines before and after failures, from a shape or a measured step."""

import math
from pathlib import Path
from typing import Any

import pytest

from experiments.hardware import read_hardware
from experiments.replanning import link_bytes_per_s
from solvers.ir import Hosts, ReplanProblem
from solvers.ir.codec import read_problem
from tests.experiments.commands.console import Outcome, call, refused, write_graph

GRID = ["--microbatch", 1, "--microbatches", 64, "--pipeline", 4, "--data-parallel", 2, "--budget", "96GiB"]
LINK = ["--link", "25GB"]
FAILURE = ["--failed", "7", "--restart", 8.2, "--interval", 3600]


def make(out: Path, *arguments: object, hardware: str = "smartswap-910b", shape: str = "llama-2-7b") -> Outcome:
    return call("make", "replan", "--shape", shape, "--hardware", hardware, "--out", out, *arguments)


def made(out: Path, *arguments: object, **options: Any) -> ReplanProblem:
    outcome = make(out, *arguments, **options)
    assert (outcome.code, outcome.err) == (0, "")
    problem, _ = read_problem(out)
    assert isinstance(problem, ReplanProblem)
    return problem


def test_a_model_on_a_cluster_that_lost_a_node(tmp_path: Path) -> None:
    """Llama-2 7B: 202,383,360 parameters a layer, 16 bytes each; activations of 4096 tokens of 4096 half numbers."""
    problem = made(tmp_path / "p.json", *GRID, *LINK, *FAILURE)
    assert (problem.nodes, problem.microbatches, problem.layers, problem.max_depth) == (7, 64, 32, 8)
    assert problem.layer_static_bytes == 16 * 202_383_360
    assert problem.first_static_bytes == 16 * 32000 * 4096
    assert problem.p2p_us == math.ceil(2 * 4096 * 4096 * 1e6 / 25e9)
    assert problem.layer_sync_us == math.ceil(2 * 202_383_360 * 1e6 / 25e9)  # a ring of two: the bytes once
    assert (problem.restart_us, problem.expected_interval_us) == (8_200_000, 3_600_000_000)
    assert problem.bytes_per_s == 25 * 10**9
    assert problem.memory_bytes == 96 << 30
    assert problem.current is not None
    assert [pipeline.nodes for pipeline in problem.current.pipelines] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [pipeline.layers for pipeline in problem.current.pipelines] == [(8, 8, 8, 8)] * 2
    assert problem.current.failed == (7,)


def test_another_sequence_and_more_samples_a_pass(tmp_path: Path) -> None:
    """Messages and activations go by tokens."""
    usual = made(tmp_path / "p.json", *GRID, *LINK)
    half = made(tmp_path / "p.json", *GRID, *LINK, "--sequence", 2048)
    double = made(tmp_path / "p.json", "--microbatch", 2, *GRID[2:], *LINK)
    assert half.p2p_us == pytest.approx(usual.p2p_us / 2, abs=1)
    assert double.p2p_us == pytest.approx(2 * usual.p2p_us, abs=1)
    assert double.layer_activation_bytes == 2 * usual.layer_activation_bytes
    assert half.layer_static_bytes == usual.layer_static_bytes == double.layer_static_bytes


def test_what_is_left_over_goes_to_the_first_ones(tmp_path: Path) -> None:
    problem = made(tmp_path / "p.json", "--microbatch", 1, "--microbatches", 7, "--pipeline", 5, "--data-parallel", 3,
                   *LINK, *FAILURE)  # fmt: skip
    assert problem.current is not None
    assert [pipeline.microbatches for pipeline in problem.current.pipelines] == [3, 2, 2]
    assert problem.current.pipelines[0].layers == (7, 7, 6, 6, 6)


def test_nodes_of_a_host_are_faster(tmp_path: Path) -> None:
    problem = made(tmp_path / "p.json", *GRID, *LINK, *FAILURE, "--host-link", "4,200GB")
    assert problem.hosts == Hosts(nodes=4, bytes_per_s=200 * 10**9)
    assert made(tmp_path / "p.json", *GRID, *LINK, *FAILURE).hosts is None


def test_before_any_failure_and_with_idle_nodes(tmp_path: Path) -> None:
    problem = made(tmp_path / "p.json", *GRID, *LINK, "--nodes", 9, "--max-depth", 6, "--sharded-optimizer")
    assert (problem.current, problem.restart_us, problem.bytes_per_s) == (None, None, None)
    assert (problem.nodes, problem.data_parallel, problem.max_depth) == (9, 2, 6)
    assert problem.sharded_optimizer
    alone = made(tmp_path / "p.json", "--microbatch", 1, *LINK)
    assert (alone.nodes, alone.microbatches, alone.data_parallel) == (1, 1, 1)
    assert alone.memory_bytes == 64 << 30  # the device's
    assert alone.layer_sync_us == problem.layer_sync_us  # a single pipeline may become two
    spare = made(tmp_path / "p.json", *GRID, *LINK, *FAILURE, "--nodes", 9)
    assert spare.nodes == 9


def test_a_percentage_is_of_the_fullest_node_before_the_failure(tmp_path: Path) -> None:
    outcome = make(tmp_path / "p.json", *GRID, *LINK, *FAILURE, "--budget", "50%")
    fullest = int(outcome.figure("fullest node before the failure").split()[0])
    problem, _ = read_problem(tmp_path / "p.json")
    assert isinstance(problem, ReplanProblem)
    held = problem.layer_static_bytes + 4 * problem.layer_activation_bytes
    assert fullest == 8 * held + problem.first_static_bytes
    assert problem.memory_bytes == fullest // 2


def test_pipelines_that_never_fitted_are_called_so(tmp_path: Path) -> None:
    """74.1 GiB on devices of 64: the problem is written, as hardware to come may be asked for, but not in silence."""
    outcome = make(tmp_path / "p.json", *GRID[:-2], *LINK, *FAILURE)
    assert outcome.code == 0
    assert outcome.err == (
        "bayplan: warning: the running pipelines cannot have run: before any failure stage 0 needed 79608938496 bytes, "
        "but a node has 68719476736: give more stages by --pipeline, devices by --tensor, or memory by --budget\n"
    )
    assert make(tmp_path / "q.json", *GRID[:-2], *LINK, *FAILURE, "--tensor", 2).err == ""


def test_a_tensor_parallel_group_is_a_node(tmp_path: Path) -> None:
    problem = made(tmp_path / "p.json", *GRID, *LINK, *FAILURE, "--tensor", 8)
    whole = made(tmp_path / "q.json", *GRID, *LINK, *FAILURE)
    assert problem.nodes == 7
    assert 8 * problem.layer_static_bytes == pytest.approx(whole.layer_static_bytes, rel=1e-3)


def test_the_rate_between_nodes_is_the_hardware_s_unless_given(tmp_path: Path) -> None:
    """Lynx's clusters: 100 Gb/s InfiniBand shared by the devices of a node."""
    cluster = read_hardware("lynx-nvlink")
    problem = made(tmp_path / "p.json", *GRID, *FAILURE, hardware="lynx-nvlink", shape="gpt-7b")
    assert problem.bytes_per_s == link_bytes_per_s(cluster) == 12_500_000_000 // 4
    said = refused(make(tmp_path / "q.json", *GRID, *FAILURE))
    assert said == (
        "hardware 'smartswap-910b' has a single node, so it tells no rate between nodes: give --link, as in --link 25GB"
    )


def test_a_measured_step(tmp_path: Path) -> None:
    graph, out = tmp_path / "g.json", tmp_path / "p.json"
    cut = ["--shape", "gpt-300m", "--microbatch", 1, "--layers", 4, "--hardware", "sim-small", "--out", graph]
    assert call("make", "graph", *cut).code == 0
    rest = ["--graph", graph, "--hardware", "sim-small", "--link", "1GB", "--out", out]
    outcome = call("make", "replan", *rest, "--pipeline", 2, "--data-parallel", 2, "--failed", 1, *FAILURE[2:])
    assert (outcome.code, outcome.err) == (0, "")
    problem, _ = read_problem(out)
    assert isinstance(problem, ReplanProblem)
    assert (problem.nodes, problem.microbatches, problem.data_parallel) == (3, 4, 2)
    assert problem.forward_us > 0 and problem.layer_static_bytes > 0
    assert call("solve", out, "--solver", "algorithm1").code == 0
    said = refused(call("make", "replan", *rest, "--tensor", 2))
    assert said.startswith("--tensor says how a --shape is cut, but --graph is a measured step")


def test_a_step_without_repeated_layers(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "g.json")
    out = tmp_path / "p.json"
    refused(call("make", "replan", "--graph", graph, "--hardware", "sim-small", "--link", "1GB", "--out", out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--shape needs --microbatch"),
        ([*GRID, "--failed", "8", *FAILURE[2:]], "failed node 8 is none of the 8 nodes of 2 pipelines of 4"),
        ([*GRID, "--failed", "7,7", *FAILURE[2:]], "failed node 7 appears twice"),
        ([*GRID, "--failed", "", *FAILURE[2:]], "--failed is '': give node numbers from 0"),
        ([*GRID, "--failed", "-1", *FAILURE[2:]], "--failed is '-1': give node numbers from 0"),
        ([*GRID, "--failed", "last", *FAILURE[2:]], "--failed is 'last': give node numbers from 0"),
        ([*GRID, "--failed", "0,1,2,3,4,5,6,7", *FAILURE[2:]], "all 8 nodes failed: leave one alive"),
        ([*GRID, "--failed", "7", "--interval", 9], "--failed needs --restart, a time in seconds"),
        ([*GRID, "--failed", "7", "--restart", 9], "--failed needs --interval, a time in seconds"),
        ([*GRID, "--restart", 9], "--restart is of a failure: give --failed"),
        ([*GRID, "--failed", "7", "--restart", "nan", "--interval", 9], "--restart is 'nan': give seconds"),
        ([*GRID, "--failed", "7", "--restart", "1e18", "--interval", 9], "--restart is '1e18': give seconds"),
        ([*GRID, "--failed", "7", "--restart", 1, "--interval", -9], "--interval is '-9': give seconds"),
        ([*GRID, *FAILURE, "--nodes", 3], "current has 7 nodes alive, more than nodes = 3"),
        ([*GRID, *FAILURE, "--nodes", 0], "0 is not in the range x>=1"),
        ([*GRID, *FAILURE, "--data-parallel", 10**6], "64 microbatches cannot feed 1000000 pipelines"),
        ([*GRID, *FAILURE, "--pipeline", 33], "32 layers cannot fill 33 stages"),
        ([*GRID, *FAILURE, "--stage", 1], "--stage means nothing to replan, which is of all stages"),
        ([*GRID, *FAILURE, "--link", "fast"], "--link is 'fast': give bytes"),
        ([*GRID, *FAILURE, "--link", "0"], "--link is '0': give at least one byte a second"),
        (
            [*GRID, *FAILURE, "--host-link", "8"],
            "--host-link is '8': give nodes and bytes a second, as in --host-link 8,",
        ),
        ([*GRID, *FAILURE, "--host-link", "0,1GB"], "--host-link is '0,1GB': give nodes and bytes a second"),
        ([*GRID, *FAILURE, "--host-link", "8,fast"], "--host-link is 'fast': give bytes"),
        (
            [*GRID, *FAILURE, "--host-link", "8,0"],
            "hosts.bytes_per_s is 0, below bytes_per_s 25000000000 between hosts",
        ),
        ([*GRID, *FAILURE, "--host-link", "8,1GB"], "hosts.bytes_per_s is 1000000000, below bytes_per_s 25000000000"),
        (
            [*GRID, *FAILURE, "--host-link", "8,200GiB"],
            "hosts.bytes_per_s 214748364800 and bytes_per_s 25000000000 are as 16777216 to 1953125, but ",
        ),
        ([*GRID, "--host-link", "8,200GB"], "--host-link is of a failure: give --failed with the nodes that failed"),
        ([*GRID, *FAILURE, "--budget", "-1"], "--budget is '-1'"),
        ([*GRID, *FAILURE, "--tensor", 3], "tensor is 3"),
        (["--microbatch", 10**9, *GRID[2:], *FAILURE], "a step may take"),
    ],
)
def test_clusters_that_mean_nothing(tmp_path: Path, arguments: list[object], says: str) -> None:
    out = tmp_path / "p.json"
    link = [] if "--link" in arguments else LINK
    assert says in refused(make(out, *arguments, *link))
    assert not out.exists()


def test_options_of_replan_mean_nothing_to_other_kinds(tmp_path: Path) -> None:
    rest = ["--shape", "gpt-300m", "--microbatch", 1, "--hardware", "lynx-nvlink", "--out", tmp_path / "p.json"]
    for option in (["--failed", 1], ["--link", "1GB"], ["--nodes", 2], ["--sharded-optimizer"], ["--max-depth", 2]):
        said = refused(call("make", "swap", *rest, *option))
        kinds = "pipeline and replan" if option[0] == "--link" else "replan"  # messages between stages have a rate, too
        assert said == f"{option[0]} means something to {kinds} problems only: leave it out"
