"""`make bench`: speed and quality of the solvers, and what one operator record costs; every figure is of one run."""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import click

from experiments.cli import run
from experiments.commands.outputs import writable
from experiments.commands.show import print_table
from solvers.ir.codec import read_problem, write_json
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver

if TYPE_CHECKING:
    import torch

INSTANCE = Path(__file__).resolve().parent / "instances" / "swap-llama2-32l.json"
GREEDY_RUNS = 7
SECTIONS = ("solvers", "records")


@dataclass(frozen=True)
class Figure:
    """One line of the table; `value` is None where it could not be obtained, and `how` then says why."""

    name: str
    value: float | None
    unit: str
    ratio: float | None
    ratio_to: str
    how: str


def solver_figures(instance: Path, time_limit_s: float, threads: int) -> list[Figure]:
    """Greedy and MILP on one swap instance, judged against each other and against unlimited memory."""
    problem, _ = read_problem(instance)
    if problem.KIND != "swap":
        raise InvalidInput(f"{instance} holds a {problem.KIND} problem: give a swap problem")
    greedy, milp = build_solver("greedy-swap", {}), build_solver("milp-swap", {})
    limits = Limits(time_s=time_limit_s, threads=threads)
    times = []
    for _ in range(GREEDY_RUNS):
        began = time.perf_counter()
        quick = greedy.solve(problem, limits)
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    best = milp.solve(problem, limits)
    spent = time.perf_counter() - began
    on = f"on {problem.name}"
    return [
        Figure("greedy-swap, time", 1e3 * median(times), "ms", None, "", f"median of {GREEDY_RUNS} runs {on}"),
        Figure(
            "greedy-swap, step time", quick.objective, "µs", _over(quick, quick.base), "unlimited", f"its plan, {on}"
        ),
        Figure(
            "milp-swap, time", spent, "s", spent / median(times), "greedy", f"one run, limit {time_limit_s:g} s, {on}"
        ),
        Figure(
            "milp-swap, step time", best.objective, "µs", _over(best, best.base), "unlimited", best.engine or "none"
        ),
        Figure("milp-swap, gap", _percent(best.gap), "%", None, "", "(objective - bound) / objective"),
        Figure(
            "milp-swap, overhead gap",
            _percent(best.overhead_gap),
            "%",
            None,
            "",
            "(objective - bound) / (objective - base)",
        ),
        Figure(
            "greedy overhead",
            _overhead(quick),
            "µs",
            _ratio(_overhead(quick), _overhead(best)),
            "milp",
            "objective - base",
        ),
    ]


def _over(solution: Solution[Any], base: int | None) -> float | None:
    return None if solution.objective is None or not base else solution.objective / base


def _overhead(solution: Solution[Any]) -> float | None:
    return None if solution.objective is None or solution.base is None else solution.objective - solution.base


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def record_figures(rounds: int) -> list[Figure]:
    """Time that each observer adds to a counted operator of a dispatch-bound training step on the CPU, one thread."""
    import torch

    from runtime.native import why_missing

    missing = why_missing("runtime._C")
    if missing is not None:
        return [
            Figure(f"{name}, per operator", None, "ns", None, "", missing) for name in ("light", "detailed", "guard")
        ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _record_figures(_training_step(), rounds)
    finally:
        torch.set_num_threads(threads)


def _training_step() -> Callable[[], "torch.Tensor"]:
    """Forward and backward of four small transformer layers: little arithmetic, so that an observer's cost shows."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    tokens = torch.randn(2, 32, 32)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(tokens).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return step


def _record_figures(step: Callable[[], object], rounds: int) -> list[Figure]:
    from runtime.profile.recording import light_recording

    step()
    with light_recording() as recording:
        step()
    records = len(recording.ids)
    observers = _observers()
    times: dict[str, list[int]] = {name: [] for name in observers}
    for _ in range(rounds + 1):
        for name, observer in observers.items():
            with observer():
                began = time.thread_time_ns()  # what else the machine does is not counted
                step()
                times[name].append(time.thread_time_ns() - began)
    times = {name: spent[1:] for name, spent in times.items()}  # the first round warms up
    plain = times.pop("plain")
    about = f"{records} operators a step, {rounds} interleaved rounds, CPU time of one thread"
    figures = [Figure("plain step, per operator", median(plain) / records, "ns", None, "", f"median, {about}")]
    for name, spent in times.items():
        added = [(with_it - without) / records for with_it, without in zip(spent, plain, strict=True)]
        low, _, high = quantiles(added, n=4)
        how = f"median of paired differences (quartiles {low:.0f} to {high:.0f}), start and stop excluded"
        ratio = 1 + median(added) * records / median(plain)
        figures.append(Figure(f"{name}, per operator", median(added), "ns", ratio, "plain", how))
    if "guard" not in times:
        figures.append(
            Figure("guard, per operator", None, "ns", None, "", "this build has no swap guard: run `make build`")
        )
    return figures


def _observers() -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """What is compared, each as what to enter around a step."""
    import torch

    from runtime.native import core
    from runtime.profile.recording import detailed_recording, light_recording

    observers: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "plain": nullcontext,
        "light": light_recording,
        "detailed": lambda: detailed_recording(torch.device("cpu")),
    }
    hold = getattr(core, "hold_swap_guard", None)
    return observers if hold is None else {**observers, "guard": lambda: _held(hold)}


@contextmanager
def _held(hold: Callable[[bool], None]) -> Iterator[None]:
    """The swap guard looking at every argument, with nothing swapped out."""
    hold(True)
    try:
        yield
    finally:
        hold(False)


@click.command("bench")
@click.option("--only", type=click.Choice(SECTIONS), multiple=True, help="Only this section; repeatable.")
@click.option("--instance", type=click.Path(path_type=Path), default=INSTANCE, help="A swap problem for the solvers.")
@click.option("--time-limit", type=click.FloatRange(min=0.01, max=3600), default=10.0, help="Seconds for milp-swap.")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, help="Threads of milp-swap's engine.")
@click.option("--rounds", type=click.IntRange(2, 100_000), default=60, help="Rounds of the record section.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write the figures to this file, too.")
def bench(only: tuple[str, ...], instance: Path, time_limit: float, threads: int, rounds: int, out: Path | None) -> int:
    """Measure solvers and hooks; ratios are of figures of this same run."""
    place = None if out is None else writable(out, "--json", inputs=(instance,))
    sections = only or SECTIONS
    figures: list[Figure] = []
    if "solvers" in sections:
        figures += solver_figures(instance, time_limit, threads)
    if "records" in sections:
        figures += record_figures(rounds)
    if place is not None:
        write_json(place, {"machine": _machine(), "figures": [asdict(figure) for figure in figures]})
    title = ", ".join(f"{name} {value}" for name, value in _machine().items())
    print_table(f"bench on {title}", ("figure", "value", "ratio", "how obtained"), [_row(figure) for figure in figures])
    return 0


def _row(figure: Figure) -> tuple[str, str, str, str]:
    value = "not measured" if figure.value is None else f"{figure.value:.4g} {figure.unit}"
    if figure.value is not None and figure.unit == "µs":
        value = f"{figure.value:.0f} {figure.unit}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3f} x {figure.ratio_to}"
    return figure.name, value, ratio, figure.how


def _machine() -> dict[str, str | int | None]:
    """What the figures depend on; nothing that names the machine."""
    from importlib.metadata import version

    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def main() -> int:
    """Run the benchmark; the result is the exit code."""
    return run(bench, "bench", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
