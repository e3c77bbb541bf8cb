"""`bayplan make replan`: its options, and the problem that they state."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from experiments.commands.kinds.face import Made, Request, budget_bytes, given_bytes
from experiments.commands.streams import read_graph_at
from experiments.replanning import Cluster, Failure, fullest_bytes, link_bytes_per_s, why_never_ran
from solvers.ir.amounts import parse_bytes, show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.fields import LARGEST
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.replan import Hosts, ReplanProblem

SECONDS = 10**6
"""Microseconds of a second."""

OPTIONS = (
    click.option(
        "--data-parallel", type=click.IntRange(1), help="replan: pipelines alike; layout: ranks.  [default: 1]"
    ),
    click.option("--nodes", type=click.IntRange(1), help="replan: nodes alive.  [default: those of the pipelines]"),
    click.option("--failed", metavar="N,N,…", help="replan: nodes that failed; stage s of pipeline d is d·stages + s."),
    click.option("--restart", metavar="S", help="replan: seconds to restart; needed with --failed."),
    click.option("--interval", metavar="S", help="replan: seconds to the next failure; needed with --failed."),
    click.option("--link", metavar="B", help="replan, pipeline: bytes a second of nodes.  [default: the hardware's]"),
    click.option(
        "--host-link", metavar="N,B", help="replan: nodes of a host, bytes a second within it; with --failed."
    ),
    click.option("--max-depth", type=click.IntRange(1), help="replan: the most stages.  [default: twice --pipeline]"),
    click.option("--sharded-optimizer", is_flag=True, default=None, help="replan: optimizer states have no replica."),
)
OWN = (
    "data_parallel",
    "nodes",
    "failed",
    "restart",
    "interval",
    "link",
    "host_link",
    "max_depth",
    "sharded_optimizer",
)
"""The same options as parameters: what means nothing to other kinds."""
OF_OTHERS = ("stage", "layers", "stall_us", "ungrouped")
"""What means nothing here."""


def from_shape(request: Request, shape: str) -> Made:
    """The problem of a named model. What a percentage refers to is the fullest node before the failure."""
    cut = request.cut
    amount = request.machine.device().memory_bytes
    problem = problem_of_shape(shape, request.machine, amount, cut)
    peak = fullest_bytes(problem, cut["pipeline"] or 1, cut["data_parallel"] or 1)
    if request.budget is not None:
        amount = given_bytes(request.budget, peak)
        problem = msgspec.structs.replace(problem, memory_bytes=amount)
    beyond = ", more than the budget: it cannot have run" if peak > amount else ""
    return _made(problem, amount, ("fullest node before the failure", f"{show_bytes(peak)}{beyond}"))


def from_graph(request: Request, graph: Path) -> Made:
    """The problem of a measured step."""
    step = read_graph_at(graph)
    peak = max(step.memory_bytes)
    amount = budget_bytes(request.budget, peak, request.machine)
    problem = problem_of_graph(step, request.machine, amount, request.cut)
    return _made(problem, amount, ("peak of the graph", show_bytes(peak)))


def _made(problem: ReplanProblem, amount: int, peak: tuple[str, str]) -> Made:
    why = why_never_ran(problem)
    return Made.of(problem, [("budget", show_bytes(amount)), peak], () if why is None else (why,))


def problem_of_shape(shape: str, machine: Hardware, memory_bytes: int, cut: Mapping[str, Any]) -> ReplanProblem:
    """The problem of a named model; raises `InvalidInput` where an option is missing or means nothing."""
    from experiments.shapes import read_shape
    from solvers.replan.make import Trained

    if cut["microbatch"] is None:
        raise InvalidInput("--shape needs --microbatch, the samples of one pass: give it, as in --microbatch 8")
    cluster = cluster_of(machine, cut)
    model = Trained(
        shape=read_shape(shape),
        machine=machine,
        bytes_per_s=cluster.bytes_per_s,
        tensor=cut["tensor"] or 1,
        sequence=cut["sequence"],
        flash=False,
        microbatch=cut["microbatch"],
        sequence_parallel=bool(cut["sequence_parallel"]),
    )
    problem = model.problem(depth=cluster.depth, data=cluster.data, microbatches=cluster.microbatches)
    summed = model.all_reduce_us(max(2, cluster.data))  # a single pipeline may become several
    problem = msgspec.structs.replace(problem, layer_sync_us=summed, memory_bytes=memory_bytes)
    return _stated(problem, cluster, model.sized.name)


def problem_of_graph(graph: OpGraph, machine: Hardware, memory_bytes: int, cut: Mapping[str, Any]) -> ReplanProblem:
    """The problem of a measured step; raises `InvalidInput` where no repeated layers are found in it."""
    from solvers.replan.estimate import problem_from_graph
    from solvers.replan.estimate.measured import Nodes

    cluster = cluster_of(machine, cut)
    problem = problem_from_graph(
        graph,
        machine,
        Nodes(
            count=cluster.depth * cluster.data,
            bytes_per_s=cluster.bytes_per_s,
            data_parallel=cluster.data,
            max_depth=cluster.deepest,
            budget_bytes=memory_bytes,
        ),
        microbatches=cluster.microbatches,
    )
    return _stated(problem, cluster, graph.name)


def _stated(problem: ReplanProblem, cluster: Cluster, model: str) -> ReplanProblem:
    name = f"{model}, {cluster.data} pipelines of {cluster.depth}"
    return cluster.state(msgspec.structs.replace(problem, name=name))


def cluster_of(machine: Hardware, cut: Mapping[str, Any]) -> Cluster:
    """The pipelines and the failure that the options describe."""
    depth, data = cut["pipeline"] or 1, cut["data_parallel"] or 1
    link = cut["link"]
    rate = link_bytes_per_s(machine) if link is None else parse_bytes(link, "--link")
    if rate < 1:
        raise InvalidInput(f"--link is {link!r}: give at least one byte a second, as in --link 25GB")
    return Cluster(
        depth=depth,
        data=data,
        microbatches=cut["microbatches"] or depth * data,
        bytes_per_s=rate,
        nodes=cut["nodes"],
        max_depth=cut["max_depth"],
        sharded_optimizer=bool(cut["sharded_optimizer"]),
        failure=_failure(cut["failed"], cut["restart"], cut["interval"]),
        hosts=_hosts(cut["host_link"], cut["failed"]),
    )


def _hosts(text: str | None, failed: str | None) -> Hosts | None:
    """Nodes that share a host are faster among each other; only transfers after a failure ask for that."""
    if text is None:
        return None
    if failed is None:
        raise InvalidInput("--host-link is of a failure: give --failed with the nodes that failed, or leave it out")
    nodes, comma, rate = text.partition(",")
    if not comma or not re.fullmatch(r"[1-9]\d{0,5}", nodes.strip(), re.ASCII):
        raise InvalidInput(f"--host-link is {text!r}: give nodes and bytes a second, as in --host-link 8,200GB")
    return Hosts(nodes=int(nodes), bytes_per_s=parse_bytes(rate.strip(), "--host-link"))


def _failure(failed: str | None, restart: str | None, interval: str | None) -> Failure | None:
    if failed is None:
        for flag, value in (("--restart", restart), ("--interval", interval)):
            if value is not None:
                raise InvalidInput(f"{flag} is of a failure: give --failed with the nodes that failed, or leave it out")
        return None
    for flag, value in (("--restart", restart), ("--interval", interval)):
        if value is None:
            raise InvalidInput(f"--failed needs {flag}, a time in seconds: give it, as in {flag} 60")
    if not re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*", failed, re.ASCII):
        raise InvalidInput(f"--failed is {failed!r}: give node numbers from 0, as in --failed 7 or --failed 3,7")
    return Failure(
        nodes=tuple(int(number) for number in failed.split(",")),
        restart_us=_microseconds("--restart", str(restart)),
        interval_us=_microseconds("--interval", str(interval)),
    )


def _microseconds(flag: str, text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and 0 <= seconds * SECONDS <= LARGEST):
        raise InvalidInput(f"{flag} is {text!r}: give seconds, from 0 to {LARGEST // SECONDS}")
    return round(seconds * SECONDS)
