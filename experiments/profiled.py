"""What a profiled step lets a plan do, in sentences: `profile` and `make` warn with them, `compare` refuses."""

from solvers.ir.errors import InvalidInput
from solvers.ir.graph import NOT_MEASURED, OTHER_KERNELS, OTHER_SEQUENCE, OTHER_SIZES, OpGraph

SIZED = ("aten::nonzero", "aten::masked_select", "aten::unique", "aten::_unique")
"""How the names of operators begin whose results are as large as their data say."""
INDEX, ANSWERS = "aten::index.Tensor", ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isfinite", "logical", "bitwise")
"""An index is a mask where one of these made it: then its result is as large as the data say, too."""
SESSION = "train it inside runtime.swap.session(budget), which needs no plan"


def require_operators(graph: OpGraph, what: str, device: object) -> None:
    """Raise `InvalidInput` for a step that does nothing on the device: none of its operators takes memory there."""
    if not graph.ops or min(graph.memory_bytes) == max(graph.memory_bytes):
        raise InvalidInput(
            f"{what} takes no memory on {device} ({len(graph.ops)} operators ran), so there is nothing to plan: let it "
            "train the model that is there"
        )


def doubts(graph: OpGraph) -> tuple[str, ...]:
    """Why a plan of this step cannot help, or cannot hold; empty where nothing speaks against one."""
    found = []
    if all(op.phase != "backward" for op in graph.ops):
        found.append(
            f"none of the {len(graph.ops)} operators of {graph.name} belongs to a backward pass, so nothing waits in "
            "memory that a plan could move: call loss.backward() in the step"
        )
    if OTHER_SEQUENCE in (graph.source or ""):
        found.append(
            f"{graph.name} runs other operators from one step to the next ({len(graph.ops)} in the profiled one), and "
            f"a plan is of one sequence: {SESSION}"
        )
    return tuple(found)


def sizes_doubts(graph: OpGraph) -> tuple[str, ...]:
    """What speaks against a plan where sizes differ from the step before, or where they depend on data, and may."""
    other = varies(graph)
    if other is not None and other.startswith(OTHER_SIZES):
        return (f"in {graph.name} {other}, and a plan is of one step's sizes: {SESSION}",)
    masks = {one for op in graph.ops if _named(op.name, ANSWERS) for one in op.outputs}
    masked = {"a boolean index" for op in graph.ops if op.name == INDEX and masks.intersection(op.inputs)}
    sized = {op.name.removeprefix("aten::").split(".")[0] for op in graph.ops if op.name.startswith(SIZED)}
    if not masked and not sized:
        return ()
    found = ", ".join([*sorted(sized), *masked])
    return (
        f"sizes in {graph.name} depend on data ({found}), and a plan is of one step's sizes: where they change from "
        f"step to step, a planned run ends with a refusal: {SESSION}",
    )


def varies(graph: OpGraph) -> str | None:
    """What the step before did otherwise, as the graph's source says; None where it did the same."""
    remarks = (graph.source or "").split("; ")
    return next((one for one in remarks if one.startswith((OTHER_SEQUENCE, OTHER_SIZES))), None)


def _named(operator: str, stems: tuple[str, ...]) -> bool:
    return operator.removeprefix("aten::").startswith(stems) and "backward" not in operator


def temporaries_doubts(graph: OpGraph) -> tuple[str, ...]:
    """What a profile by shapes alone says against its own memory; no plan is refused for it."""
    remarks = (graph.source or "").split("; ")
    return tuple(one for one in remarks if one.startswith((NOT_MEASURED, OTHER_KERNELS)))
