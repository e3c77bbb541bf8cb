"""What a swap session adds to a step: the guard, to follow tensors, and to match them with a policy."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING

from experiments.bench.figure import Figure
from experiments.bench.threads import one_thread

if TYPE_CHECKING:
    from runtime._C import SwapSession

GUARD_GOAL_NS, MATCHING_GOAL_NS = 200, 1000
TARGETS = 200
SESSION, POLICY, TRACKED = "session with nothing out", f"policy of {TARGETS} targets", "everything tracked"
IDLE, GUARD, OWN = "PyTorch's observer that does nothing", "guard", "guard, beyond such an observer"
MATCHING = "matching, each tensor"
NAMES = (IDLE, GUARD, SESSION, POLICY, TRACKED, OWN, MATCHING)


def matching_figures(rounds: int) -> list[Figure]:
    """Time that a session adds to a dispatch-bound training step on sim, by turns with a plain one, one thread."""
    from runtime.device.native import why_missing

    missing = why_missing("runtime._C") or why_missing("runtime._sim")
    if missing is not None:
        return [Figure(name, None, "ns", None, "", missing) for name in NAMES]
    with one_thread():
        return _figures(rounds)


def _figures(rounds: int) -> list[Figure]:
    from experiments.models.gpt import GptShape
    from experiments.smartswap.overhead import dispatcher_calls
    from runtime.device import use_sim

    device = use_sim(races="off").device
    step = GptShape(layers=4, width=32, heads=2, context=16, batch=2, dropout=0.0).build(device).step
    step()
    calls, sightings = dispatcher_calls(step), _sightings(step)
    observers: dict[str, Observer] = {
        "plain": _plain,
        IDLE: _idle,
        GUARD: _held,
        SESSION: _session,
        POLICY: _with_policy,
        TRACKED: _tracking,
    }
    times = _times(step, observers, rounds)
    plain = times.pop("plain")
    about = f"{calls} operators through the dispatcher, {rounds} interleaved rounds"
    figures = [_figure(name, (spent, plain), calls, GUARD_GOAL_NS, about) for name, spent in times.items()]
    own = _figure(OWN, (times[GUARD], times[IDLE]), calls, GUARD_GOAL_NS, "what is ours of the guard's time")
    how = f"what the policy's session takes over the guard, for each of {sightings} sightings"
    return [*figures, own, _figure(MATCHING, (times[POLICY], times[GUARD]), sightings, MATCHING_GOAL_NS, how)]


Step = Callable[[], object]
Observer = Callable[[Step], AbstractContextManager[object]]
"""Given the step, what to enter around the measured one."""


@contextmanager
def _plain(step: Step) -> Iterator[None]:
    """One step more, as the others have, so that all find the same caches."""
    step()
    yield


@contextmanager
def _idle(step: Step) -> Iterator[None]:
    """What PyTorch takes to call anybody with an operator's arguments."""
    from runtime.device.native import core

    core.hold_idle_observer(True)
    try:
        step()
        yield
    finally:
        core.hold_idle_observer(False)


@contextmanager
def _held(step: Step) -> Iterator[None]:
    """The guard alone: it looks at every argument, as it does while something is out."""
    from runtime.device.native import core

    core.hold_swap_guard(True)
    try:
        step()
        yield
    finally:
        core.hold_swap_guard(False)


@contextmanager
def _session(step: Step) -> Iterator["SwapSession"]:
    """A session that follows everything, has no policy, and has seen an iteration."""
    import torch

    from runtime.device.native import core

    session = core.SwapSession(torch.device("sim", 0), least_bytes=1)
    session.start()
    try:
        step()
        session.end_iteration()
        yield session
    finally:
        session.stop()


@contextmanager
def _with_policy(step: Step) -> Iterator["SwapSession"]:
    """With targets that no tensor matches, so that nothing leaves: what is measured is the looking."""
    from runtime.device.native import core

    targets = [core.SwapTarget(f"tensor {number}", 4096, number, 0, 0, 0) for number in range(TARGETS)]
    with _session(step) as session:
        session.set_policy(core.SwapPolicy(targets, [], []))
        yield session


@contextmanager
def _tracking(step: Step) -> Iterator["SwapSession"]:
    """With every sighting written down, as in the iterations from which policies are made."""
    with _session(step) as session:
        session.record_sightings(True)
        yield session


def _sightings(step: Step) -> int:
    """How many times a step shows a tensor that a policy may look for."""
    with _tracking(step) as session:
        step()
        return sum(not one.result for one in session.end_iteration().sightings)


def _times(step: Step, observers: Mapping[str, Observer], rounds: int) -> dict[str, list[int]]:
    """Processor time of this process in nanoseconds: autograd works for sim on a thread of its own."""
    times: dict[str, list[int]] = {name: [] for name in observers}
    for _ in range(rounds + 1):
        for name, observer in observers.items():
            with observer(step):
                began = time.process_time_ns()
                step()
                times[name].append(time.process_time_ns() - began)
    return {name: spent[1:] for name, spent in times.items()}  # the first round warms up


def _figure(name: str, times: tuple[Sequence[int], Sequence[int]], parts: int, goal_ns: int, about: str) -> Figure:
    """What the first takes over the second, by parts; a busy machine lengthens both, the fastest rounds least."""
    each = [(with_it - without) / parts for with_it, without in zip(*times, strict=True)]
    low, _, high = quantiles(each, n=4)
    fastest = (min(times[0]) - min(times[1])) / parts
    how = f"median of paired differences (quartiles {low:.0f} to {high:.0f}; fastest rounds {fastest:.0f}), {about}"
    return Figure(name, median(each), "ns", median(each) / goal_ns, f"goal of {goal_ns} ns", how)
