"""A model that no machine here holds, planned by its shapes: profiled without bytes, decided, and simulated."""

import gc
from typing import Any

import torch

from experiments.hardware import read_hardware
from experiments.layout.outcomes import planned_figures
from experiments.layout.settings import ComposedLayout, LargerConf
from experiments.models import Gpt, GptShape
from experiments.rows import commit
from experiments.tables import Table
from runtime.device import use_sim
from runtime.layout.deciding import Asked, Decided, decide
from runtime.profile.memory import profile_memory
from solvers.ir import Limits, Row
from solvers.ir.amounts import parse_bytes
from solvers.ir.errors import InfeasibleBudget
from solvers.planner import lower_plan
from solvers.timeline import simulate

ROOM_BYTES = 1 << 42
"""A device of shapes that holds everything: the profile is of a plain step."""
GIB = 2**30
NAME = "by shapes"


def shape_of(larger: LargerConf) -> GptShape:
    """The GPT that the settings name."""
    return GptShape(
        layers=larger.layers, width=larger.width, heads=larger.heads, context=larger.context, batch=larger.batch
    )


def planned_by_shapes(larger: LargerConf) -> Decided | str:
    """The layout of a step whose tensors have no bytes; a sentence where none fits."""
    hardware, shape, device = read_hardware(larger.hardware), shape_of(larger), torch.device("sim:0")
    gc.collect()  # tensors with bytes must be gone
    use_sim(hardware, capacity_bytes=ROOM_BYTES, shapes_only=True)
    with torch.device("meta"):
        model = Gpt(shape)
    model = model.to_empty(device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, fused=True)
    words = torch.zeros(shape.batch, shape.context, dtype=torch.int64, device=device)

    def step() -> None:
        loss = model(words, words)
        loss.backward()

    memory_bytes, host_bytes = hardware.device().memory_bytes, parse_bytes(larger.host_budget, "larger.host_budget")
    asked = Asked(memory_bytes, host_bytes, None, larger.solver, Limits(work=1.0), None, True)
    try:
        profile = profile_memory(model, step, device, name=f"GPT of {larger.layers} layers", on_demand=False)
        return decide(profile, model, optimizer, device, asked)
    except InfeasibleBudget as refused:
        return str(refused)


def row_by_shapes(composed: ComposedLayout) -> Row:
    """The larger model's row: what was solved and simulated, and that nothing was trained."""
    larger = composed.settings.larger
    plan = planned_by_shapes(larger)
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in Gpt(shape_of(larger)).parameters())
    found: dict[str, Any] = {"parameters": parameters, "states_bytes": 16 * parameters}
    reason = plan if isinstance(plan, str) else None
    if not isinstance(plan, str):
        report = simulate(plan.problem, lower_plan(plan.problem, plan.plan))
        found |= planned_figures(plan) | {
            "budget_bytes": plan.problem.device_bytes,
            "predicted_step_us": report.makespan_us,
            "simulated_peak_bytes": report.peak_bytes,
            "stall_us": report.stall_us,
        }
    return Row(
        experiment=composed.settings.name,
        asked={"policy": NAME, **{name: getattr(larger, name) for name in LargerConf.__dataclass_fields__}},
        outcome="ok" if reason is None else "infeasible",
        reason=reason,
        figures=found,
        provenance=f"sim-shapes, hardware {larger.hardware}, torch {torch.__version__}; simulated, not trained",
        commit=commit(),
        seed=0,
    )


def table_by_shapes(row: Row) -> Table:
    """What the larger model's layout is, and what it would take."""
    found, asked = row.figures, row.asked
    title = f"GPT of {asked['layers']} layers, width {asked['width']}, by shapes alone"
    lines = [
        ("parameters", f"{found['parameters']:,}"),
        ("states, 16 bytes a parameter (GiB)", f"{found['states_bytes'] / GIB:.1f}"),
    ]
    if row.outcome == "ok":
        blocks = ", ".join(f"{found[policy]} {policy}" for policy in ("keep", "swap", "checkpoint"))
        lines += [
            ("device (GiB)", f"{found['budget_bytes'] / GIB:.1f}"),
            ("chunks that persist, buffers", f"{found['persistent']} of {found['chunks']}, {found['buffers']}"),
            ("blocks", blocks),
            ("predicted peak (GiB)", f"{found['simulated_peak_bytes'] / GIB:.2f}"),
            ("predicted step (s)", f"{found['predicted_step_us'] / 1e6:.2f}"),
            ("proven bound (s)", f"{found['bound_us'] / 1e6:.2f}"),
        ]
    return Table(title, ("what", "value"), tuple(lines), f"{row.provenance}.")
