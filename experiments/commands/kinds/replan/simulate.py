"""What `bayplan simulate` prints of a replan plan: the transition, the step after it, and who waits for whom."""

from fractions import Fraction
from typing import TYPE_CHECKING

from experiments.commands.kinds.face import Shown
from experiments.commands.show import Figures, show_share, show_us
from solvers.ir.amounts import show_bytes
from solvers.ir.replan import ReplanPlan, ReplanProblem

if TYPE_CHECKING:
    from solvers.replan.timeline import Simulated


def simulate(problem: ReplanProblem, plan: ReplanPlan) -> Shown:
    """The transition and the first step after it, node by node."""
    from solvers.replan.timeline import simulate_step

    found = simulate_step(problem, plan)
    return Shown(found.report, None, step_figures(problem, plan, found))


def step_figures(problem: ReplanProblem, plan: ReplanPlan, simulated: "Simulated") -> Figures:
    """The figures in the order of time, each with the objective's where that counts otherwise."""
    step = simulated.step
    return [
        ("plan", f"{plan.policy}: {step.how}"),
        ("makespan", f"{show_us(simulated.report.makespan_us)}, transition and one step"),
        ("restart", show_us(simulated.restart_us)),
        ("transfers", _transfers(plan, simulated)),
        ("step", _step(plan, simulated)),
        ("synchronization", f"{show_us(step.sync_us)}, rounds of layers: {step.rounds}"),
        ("bubbles", f"{show_share(simulated.bubble_share)} of the nodes' time until the slowest pipeline ends"),
        ("busiest node", _node(simulated.busiest, step.compute_us)),
        ("least busy node", _node(simulated.idlest, step.compute_us)),
        ("peak", f"{show_bytes(simulated.report.peak_bytes)} on the fullest node (F8)"),
        ("memory of a node", show_bytes(problem.memory_bytes)),
    ]


def _transfers(plan: ReplanPlan, simulated: "Simulated") -> str:
    drawn, counted = simulated.transfer_us, simulated.modelled_transfer_us
    text = f"{show_us(drawn)}, layers: {len(plan.transfers or ())}"
    if drawn - counted < 1 + len(plan.transfers or ()):  # each transfer is drawn in whole microseconds
        return text
    return f"{text}; {show_us(float(counted))} in the objective, where no node waits for another"


def _step(plan: ReplanPlan, simulated: "Simulated") -> str:
    text = show_us(simulated.step_us)
    if plan.policy != "reroute":
        return text
    off = _share(simulated.formula_us, Fraction(simulated.step_us))
    return f"{text} by events; {show_us(float(simulated.formula_us))} by F7, the objective's formula ({off})"


def _share(value: Fraction, of: Fraction) -> str:
    return "no time at all" if not of else f"{float(100 * (value / of - 1)):+.2f} %"


def _node(item: tuple[int, int], whole_us: int) -> str:
    node, time = item
    share = show_share(time / whole_us if whole_us else None)
    return f"{node}, which computes for {show_us(time)}, {share} of the time"
