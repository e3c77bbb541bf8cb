"""`bayplan make graph`: the graph of one stage itself."""

from pathlib import Path

from experiments.commands.kinds.face import Face, Made, Request
from experiments.commands.kinds.stage import stage_of
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import document_to_raw
from solvers.ir.errors import InvalidInput


def _from_graph(request: Request, graph: Path) -> Made:
    raise InvalidInput(f"{graph} is a graph already: give --shape to compute one, or another kind")


def _from_shape(request: Request, shape: str) -> Made:
    graph = stage_of(request, shape).graph
    peak = max(graph.memory_bytes)
    figures = [("ops", str(len(graph.ops))), ("peak of the graph", show_bytes(peak))]
    return Made(graph.name, document_to_raw(graph), [*figures])


FACE = Face(from_graph=_from_graph, from_shape=_from_shape)
