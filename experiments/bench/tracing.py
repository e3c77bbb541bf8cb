"""What tracing a planned step costs: on the device's clock, of the host, and in events that have to be made."""

import time
from statistics import median

from experiments.bench.figure import Figure
from experiments.bench.threads import one_thread

GOAL = 1.03
DEVICE, HOST, MADE = "traced step, device time", "traced step, processor time", "events made by a step"
NAMES = (DEVICE, HOST, MADE)


def tracing_figures(rounds: int) -> list[Figure]:
    """A planned step of a small GPT on sim with and without spans, stalls and memory, by turns, one thread."""
    from runtime.device.native import why_missing

    missing = why_missing("runtime._C") or why_missing("runtime._sim")
    if missing is not None:
        return [Figure(name, None, "", None, "", missing) for name in NAMES]
    with one_thread():
        return _figures(rounds)


def _figures(rounds: int) -> list[Figure]:
    from experiments.models.gpt import GptShape
    from runtime.device import use_sim
    from runtime.device.native import core
    from runtime.profile import profile_step
    from runtime.swap import SwapExecutor
    from solvers.planner import planner

    sim = use_sim(races="off")
    model = GptShape(layers=4, width=64, heads=2, context=32, batch=4, dropout=0.0).build(sim.device)
    graph = profile_step(model.step, sim.device, model=model.model, optimizer=model.optimizer)
    schedule = planner("greedy-swap")(graph, sim.hardware, "80%").plan
    executors = {trace: SwapExecutor(schedule, graph, sim.device, trace=trace) for trace in (False, True)}
    device_us: dict[bool, list[float]] = {False: [], True: []}
    host_ns: dict[bool, list[int]] = {False: [], True: []}
    made = 0
    for number in range(rounds + 1):
        before = core.events_made()
        for trace, executor in executors.items():
            began = time.process_time_ns()
            executed = executor.run(model.step)
            spent_ns = time.process_time_ns() - began
            if number:  # the first round makes the events and the host memory
                host_ns[trace].append(spent_ns)
                device_us[trace].append(executed.report.makespan_us)  # made now, since nobody asked before
        made = core.events_made() - before
    executors[True].close()
    about = f"{len(graph.ops)} operators, {rounds} interleaved rounds"
    ratio = median(on / off for on, off in zip(host_ns[True], host_ns[False], strict=True))
    virtual = median(device_us[True]) / median(device_us[False])
    spent = median(host_ns[True]) / 1e3
    return [
        Figure(DEVICE, median(device_us[True]), "µs", virtual, "the untraced step", f"virtual time of sim, {about}"),
        Figure(
            HOST,
            spent,
            "µs",
            ratio,
            "the untraced step",
            f"median of paired ratios, goal {GOAL}, reports unread; {about}",
        ),
        Figure(MADE, made, "events", None, "", f"in the last of {rounds} rounds, both steps"),
    ]
