"""A model that no machine here holds, by its shapes: profiled without bytes, decided, and executed without numbers."""

import gc
from collections.abc import Mapping
from typing import Any

import torch

from experiments.hardware import read_hardware
from experiments.layout.outcomes import planned_figures
from experiments.layout.settings import ComposedLayout, LargerConf
from experiments.models import Gpt, GptShape
from experiments.rows import commit
from experiments.tables import Table
from runtime.device import reset_peak_memory, use_sim
from runtime.layout import report, unwrap, wrap
from runtime.layout.deciding import Asked, Decided, decide
from runtime.layout.report import LayoutReport
from runtime.profile.memory import profile_memory
from solvers.ir import Limits, Row
from solvers.ir.amounts import parse_bytes
from solvers.ir.errors import InfeasibleBudget

ROOM_BYTES = 1 << 42
"""A device of shapes that holds everything: the profile is of a plain step."""
GIB = 2**30
NAME = "by shapes"
STEPS = 3
"""The last one counts."""


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


def executed_by_shapes(larger: LargerConf, plan: Decided) -> LayoutReport:
    """Some steps under the layout, on a device that has what it was planned for; no number is computed anywhere."""
    shape, device, problem = shape_of(larger), torch.device("sim:0"), plan.problem
    gc.collect()
    use_sim(read_hardware(larger.hardware), capacity_bytes=problem.device_bytes, shapes_only=True).reset()
    with torch.device("meta"):
        model = Gpt(shape)
    model = model.to_empty(device="cpu")  # its memory is reserved, and nobody touches it
    optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, fused=True)
    wrap(
        model, optimizer, budget=problem.device_bytes, host_budget=problem.host_bytes, plan=plan.plan,
        profile=plan.profile, device=device,
    )  # fmt: skip
    words = torch.zeros(shape.batch, shape.context, dtype=torch.int64, device=device)
    for number in range(STEPS):
        if number == 1:
            reset_peak_memory(device)
        optimizer.zero_grad()
        loss = model(words, words)
        loss.backward()
        optimizer.step()
        del loss
    told = report(model)
    unwrap(model)
    return told


def row_by_shapes(composed: ComposedLayout) -> Row:
    """The larger model's row: what was solved, predicted and executed, and that no number was computed."""
    larger = composed.settings.larger
    plan = planned_by_shapes(larger)
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in Gpt(shape_of(larger)).parameters())
    found: dict[str, Any] = {"parameters": parameters, "states_bytes": 16 * parameters}
    reason = plan if isinstance(plan, str) else None
    if not isinstance(plan, str):
        told = executed_by_shapes(larger, plan)
        found |= planned_figures(plan) | {
            "budget_bytes": plan.problem.device_bytes,
            "lane_step_us": told.step_us,
            "predicted_lane_step_us": told.predicted_step_us,
            "peak_bytes": told.peak_bytes,
            "pinned_bytes": told.host_bytes,
            "departures": told.departures,
        }
    return Row(
        experiment=composed.settings.name,
        asked={"policy": NAME, **{name: getattr(larger, name) for name in LargerConf.__dataclass_fields__}},
        outcome="ok" if reason is None else "infeasible",
        reason=reason,
        figures=found,
        provenance=f"sim-shapes, hardware {larger.hardware}, torch {torch.__version__}; executed without numbers",
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
            ("device peak, predicted (GiB)", _beside(found, "peak_bytes", GIB)),
            ("page-locked masters and gradients (GiB)", f"{found['pinned_bytes'] / GIB:.1f}"),
            ("step, predicted (s)", _beside(found, "lane_step_us", 1e6)),
            ("objective, proven bound (s)", f"{found['objective_us'] / 1e6:.2f}, {found['bound_us'] / 1e6:.2f}"),
        ]
    return Table(title, ("what", "value"), tuple(lines), f"{row.provenance}.")


def _beside(found: Mapping[str, Any], figure: str, unit: float) -> str:
    executed, predicted = found[figure], found[f"predicted_{figure}"]
    return f"{executed / unit:.3f}, {predicted / unit:.3f} ({predicted / executed - 1:+.4%})"
