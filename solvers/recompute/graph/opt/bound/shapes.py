"""Where to cut a graph for a strong bound: shapes of the cut relaxation for layered and for other graphs."""

from collections.abc import Iterator, Sequence

from solvers.recompute.graph.opt.bound.cut import Shape
from solvers.recompute.graph.opt.layers import Layers
from solvers.recompute.graph.replay import Instance, replay_runs, retained

WHOLE, PEAKS = 110, 12
"""The most ops of a graph that is examined as a whole, and the number of its memory peaks that are used."""
CUTS = 48
"""The most stages of one layer at each of which there is a cut; of longer ones there are cuts at the fullest."""
ZONES = 6
"""The most intervals of communications where no layers tell them apart."""


def layered_shapes(given: Instance, layers: Layers) -> Iterator[Shape]:
    """One shape for every stage of the top layer's backward pass; the layers below are counted.

    Of a long one (a recurrent layer's steps) only for its fullest stages, fullest first: each is a program of its own.
    """
    top = layers.count - 1
    last = _top_end(given, layers)
    explicit = tuple(range(layers.op(top, 0), last + 1))
    before = tuple(i for i in range(layers.first) if any(user >= layers.first for user in given.users[i]))
    groups = [tuple(tuple(layer) for layer in layers.lists[:top])]
    if before:
        groups.append((before,))
    ends = _last_windows(given, layers, last)
    cuts: Sequence[int] = range(layers.end, last + 1)
    for cut in cuts if len(cuts) <= CUTS else _fullest(given, cuts, 24) or cuts[:1]:
        inside = [t for t in range(cut + 1, last + 1) if given.comm[t]]
        zones = tuple(sorted({*inside, *ends, len(given) - 1}))
        yield Shape(cut, layers.end, last, explicit, tuple(groups), zones, (cut,))


def _last_windows(given: Instance, layers: Layers, last: int) -> list[int]:
    """The ends of zones of the first layer's own communications: when they come, little is left that they can hide."""
    windows = [t for t in range(last + 1, len(given)) if given.comm[t]]
    own = -(-len(windows) // layers.count) + 1
    return windows[-own - 1 :]


def _top_end(given: Instance, layers: Layers) -> int:
    """The last stage before the next layer's own ops are read."""
    top = layers.count - 1
    read = {j for i in layers.lists[top] for j in given.inputs[i]}
    stages = [u for i in layers.lists[top - 1] if i not in read for u in given.users[i] if u >= layers.end]
    return min(stages, default=len(given)) - 1


def general_shapes(given: Instance, most: int = 24) -> list[Shape]:
    """Cuts of any graph, at the stages that would need the most memory with everything kept, one a neighbourhood."""
    chosen = _fullest(given, range(1, len(given)), most)
    shapes = [_general(given, cut) for cut in chosen]
    if len(given) <= WHOLE:
        shapes.insert(0, _whole(given, tuple(sorted(chosen[:PEAKS]))))
    return shapes


def _fullest(given: Instance, stages: Sequence[int], most: int) -> list[int]:
    """Those above the budget with everything kept, one a neighbourhood, fullest first."""
    peaks = replay_runs(given, retained(given, [()] * len(given))).peaks
    ranked = sorted(stages, key=lambda t: (-peaks[t], t))
    chosen: list[int] = []
    apart = max(1, (len(stages) + 1) // (4 * most))
    for t in ranked:
        if peaks[t] <= given.budget or len(chosen) >= most:
            break
        if all(abs(t - other) > apart for other in chosen):
            chosen.append(t)
    return chosen


def _whole(given: Instance, peaks: tuple[int, ...]) -> Shape:
    """All stages of a small graph in detail: the corrected model without what stages hold before their op."""
    last = len(given) - 1
    return Shape(last, 0, last, tuple(range(last + 1)), (), (), peaks)


def _general(given: Instance, cut: int) -> Shape:
    later = [any(user > cut for user in given.users[i]) for i in range(cut)]
    useful = [False] * cut
    for i in reversed(range(cut)):
        useful[i] = later[i] or any(user < cut and useful[user] for user in given.users[i])
    ops = tuple(i for i in range(cut) if useful[i])
    windows = [t for t in range(cut + 1, len(given)) if given.comm[t]]
    step = -(-len(windows) // ZONES) if windows else 1
    zones = tuple(windows[min(end, len(windows)) - 1] for end in range(step, len(windows) + step, step))
    return Shape(cut, cut, cut, (), ((ops,),) if ops else (), tuple(dict.fromkeys(zones)))
