"""`bayplan make layout`: its options, and the problem of one data-parallel rank that they state."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from experiments.commands.devices import ready, require_device
from experiments.commands.kinds.face import Made, Request
from experiments.commands.questions import questions
from experiments.commands.streams import read_graph_at
from solvers.ir.amounts import parse_budget, parse_bytes, show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutProblem

if TYPE_CHECKING:
    from solvers.layout.least import Least
    from solvers.layout.make import Rank

OPTIONS = (
    click.option("--hosts", type=click.IntRange(1), help="layout: hosts that the ranks are on, evenly.  [default: 1]"),
    click.option("--host-bytes", metavar="B", help="layout: memory of a whole host.  [default: the hardware's]"),
    click.option(
        "--no-overlap-update",
        is_flag=True,
        default=None,
        help="layout: the host updates after backward, not beside it, as under gradient clipping, loss scaling and "
        "accumulation. (Of a --graph, ops that read gradients before the optimizer are seen.)",
    ),
    click.option(
        "--profile",
        metavar="MODULE:FACTORY",
        help="layout: in place of --graph, a step of yours, as in `bayplan profile`, run here with every block "
        "checkpointed, which shows what each holds. (Clipping is not seen.)",
    ),
    click.option("--device", metavar="D", help="layout of a --profile: sim or cuda.  [default: sim, as --hardware]"),
    click.option("--context", metavar="B", help="layout of a step: what the runtime itself takes.  [default: 1GiB]"),
    click.option(
        "--parameter-bytes",
        type=click.IntRange(1),
        help="layout of a step: of one number.  [default: 2; --profile: the model's]",
    ),
)
OF_GRAPH = ("context", "parameter_bytes")
"""What a shape does not ask for: it is in half precision, with a context of its own."""
OF_PROFILE = ("profile", "device")
OWN = ("data_parallel", "hosts", "host_bytes", "no_overlap_update", *OF_PROFILE, *OF_GRAPH)
"""The options that mean something here and nothing to kinds that are of a stage."""
OF_OTHERS = ("tensor", "pipeline", "microbatches", "stage", "layers", "sequence_parallel", "ungrouped", "stall_us")
"""What means nothing here."""


def from_shape(request: Request, shape: str) -> Made:
    """The problem of a named model; `--microbatch` counts the samples of a rank. Raises `InvalidInput`."""
    from experiments.shapes import read_shape
    from solvers.layout.make import problem_from_shape

    cut = request.cut
    if cut["microbatch"] is None:
        raise InvalidInput("--shape needs --microbatch, the samples of a rank: give it, as in --microbatch 2")
    _refuse_device(cut)
    for option in OF_GRAPH:
        if cut[option] is not None:
            raise InvalidInput(
                f"--{option.replace('_', '-')} is of a --graph: a --shape says it itself, so leave it out"
            )
    model = read_shape(shape)
    batch = (cut["data_parallel"] or 1) * cut["microbatch"]
    sequence = cut["sequence"] or model.sequence
    problem = problem_from_shape(model, request.machine, _rank(cut), batch=batch, sequence=sequence)
    return _budgeted(problem, request.budget, ())


def from_graph(request: Request, place: Path) -> Made:
    """The problem of a measured step, which one rank runs; raises `InvalidInput` where no repeated layers are found."""
    from solvers.layout.assumptions import PARAMETER_BYTES
    from solvers.layout.measured import problem_from_graph, remarks

    graph = read_graph_at(place)
    _refuse_device(request.cut)
    problem = problem_from_graph(
        graph,
        request.machine,
        _rank(request.cut),
        context_bytes=_context_bytes(request.cut),
        parameter_bytes=request.cut["parameter_bytes"] or PARAMETER_BYTES,
    )
    return _budgeted(problem, request.budget, remarks(graph))


def _rank(cut: Mapping[str, Any]) -> "Rank":
    """What the options say of ranks and hosts."""
    from solvers.layout.make import Rank

    return Rank(
        ranks=cut["data_parallel"] or 1,
        hosts=cut["hosts"] or 1,
        host_bytes=_host_bytes(cut),
        overlap_update=not cut["no_overlap_update"],
    )


def _context_bytes(cut: Mapping[str, Any]) -> int:
    """What the runtime itself takes of a measured step's device."""
    from solvers.layout.assumptions import CONTEXT_BYTES

    context = cut["context"]
    return CONTEXT_BYTES if context is None else parse_bytes(context, "--context")


def from_profile(request: Request) -> Made:
    """The problem of the user's step, run on this machine; raises `InvalidInput` where it cannot be profiled."""
    import torch

    from experiments.profiled_layout import layout_problem
    from runtime.profile import call_theirs, load_factory
    from runtime.profile.memory import profile_memory
    from runtime.profile.memory.optimizer import growing_state_bytes
    from solvers.layout.make import Sizes

    cut = request.cut
    factory, device = cut["profile"], cut["device"]
    require_device(device, None)
    build = load_factory(factory)
    target = ready(device, request.hardware if device in (None, "sim") else None)
    try:
        model, optimizer, step = call_theirs(lambda: build(target), factory)
        profile = profile_memory(
            model, lambda: call_theirs(step, f"the step of {factory}"), target, name=factory, optimizer=optimizer
        )
    except torch.OutOfMemoryError as error:
        raise InvalidInput(f"{factory} does not fit the whole device: make it smaller") from error
    size = cut["parameter_bytes"] or max(parameter.element_size() for parameter in model.parameters())
    trained = sum(one.bytes for one in profile.parameters if one.trainable)
    states = round(size * growing_state_bytes(optimizer) / max(1, trained))
    problem = layout_problem(
        profile,
        request.machine,
        _rank(cut),
        context_bytes=_context_bytes(cut),
        sizes=Sizes(size, states / size),
    )
    return _budgeted(problem, request.budget, profile.remarks())


def _refuse_device(cut: Mapping[str, Any]) -> None:
    if cut["device"] is not None:
        raise InvalidInput("--device says where a --profile runs: leave it out")


def _host_bytes(cut: Mapping[str, Any]) -> int | None:
    return None if cut["host_bytes"] is None else parse_bytes(cut["host_bytes"], "--host-bytes")


def _budgeted(problem: LayoutProblem, budget: str | None, said: tuple[str, ...]) -> Made:
    """The problem with this budget of the device; a percentage is of a step with everything on the device."""
    from solvers.layout.answers import memory_sentence
    from solvers.layout.evaluate import all_on_device, device_bytes, instance
    from solvers.layout.least import Least

    given = instance(problem)
    peak = device_bytes(given, all_on_device(problem))
    if budget is not None:
        problem = msgspec.structs.replace(problem, device_bytes=parse_budget(budget, peak))
        said = (*said, *questions(budget, problem.device_bytes, peak))
    least = Least(instance(problem))
    if least.device_bytes > problem.device_bytes:
        said = (*said, f"no layout fits: {memory_sentence(least)}")
    return Made.of(problem, [*_figures(problem, least), ("everything on the device", show_bytes(peak))], said)


def _figures(problem: LayoutProblem, least: "Least") -> Iterator[tuple[str, str | None]]:
    chosen = sum(block.choice for block in problem.blocks)
    yield "ranks", str(problem.ranks)
    yield "blocks", f"{len(problem.blocks)}, with a choice: {chosen}"
    yield "chunks", f"{len(problem.chunks)} of {show_bytes(problem.chunk_bytes)}"
    yield "swap interval", f"{problem.interval} blocks"
    yield "updates on the host", "beside backward" if problem.overlap_update else "after backward"
    yield "budget", show_bytes(problem.device_bytes)
    yield "least budget", f"{'' if least.is_exact else 'at least '}{show_bytes(least.device_bytes)}"
    yield "host memory of a rank", show_bytes(problem.host_bytes)
