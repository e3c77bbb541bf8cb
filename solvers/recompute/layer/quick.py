"""A single policy in milliseconds: windows filled in order, and the memory spent on what saves most time per byte."""

from collections.abc import Collection

from solvers.recompute.layer.answers import Ask, plan_bytes
from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.policies import on_critical_path


def quick_policy(ask: Ask) -> Policy | None:
    """The best of a few policies that fit, with all windows, those after the forward pass, and none; None without one.

    What communication made no window can hide, nor what is computed from it: with some its outputs are stored first.
    """
    layer = Layer.of(ask.problem)
    later = tuple(w for w in layer.open if layer.windows[w].phase != "forward")
    ways = dict.fromkeys(((layer.open, True), (layer.open, False), (later, True), ((), False)))
    found = [_best(ask, layer, windows, comm) for windows, comm in ways]
    fitting = [one for one in found if one is not None]
    return min(fitting, key=lambda one: ask.objective([one.group(ask.problem.layers)]), default=None)


def _best(ask: Ask, layer: Layer, windows: Collection[int], comm: bool) -> Policy | None:
    """As many stored as fit of those that save most time per byte, what no window hides first."""
    problem, ops, best = ask.problem, layer.ops, filled(layer, (), windows)
    each = problem.layers * problem.inflight_microbatches
    hidden = {i for i, w in best.recomputed if w < layer.critical}

    def room(policy: Policy) -> int:
        return problem.budget_bytes - plan_bytes(problem, [policy.group(problem.layers)])

    if room(best) < 0:
        return None

    def worth(i: int) -> tuple[bool, bool, float]:
        return not (comm and ops[i].comm), i in hidden, -ops[i].time_us / max(1, ops[i].output_bytes)

    order = sorted(layer.useful, key=worth)
    few, many = 0, len(order)
    while few < many:  # a policy that stores `few` fits
        middle = (few + many + 1) // 2
        tried = filled(layer, order[:middle], windows)
        if room(tried) < 0:
            many = middle - 1
        else:
            few, best = middle, tried
    left, stored, paid = room(best), set(best.stored), {i for i, w in best.recomputed if w == layer.critical}
    for i in order:
        if i in paid and each * ops[i].output_bytes <= left:
            left -= each * ops[i].output_bytes
            stored.add(i)
    tried = filled(layer, stored, windows)
    return min((one for one in (tried, best) if room(one) >= 0), key=lambda one: ask.objective([one.group(1)]))


def filled(layer: Layer, stored: Collection[int], windows: Collection[int]) -> Policy:
    """These outputs stored, of the others what backward depends on in the first window that has its inputs and time."""
    kept = on_critical_path(layer, stored)
    left = {w: layer.windows[w].time_us for w in windows}
    place: dict[int, int] = {}
    for i, _ in kept.recomputed:
        op = layer.ops[i]
        ready = max((place.get(j, 0) for j in op.inputs), default=0)
        fitting = (w for w in windows if w >= ready and left[w] >= op.time_us and not op.comm)
        place[i] = next(fitting, layer.critical)
        if place[i] < layer.critical:
            left[place[i]] -= op.time_us
    return Policy(kept.stored, tuple(place.items()))
