"""A decision's own run as values of the relaxation's columns, and all keys of its rows: read off the judge's lanes."""

from collections.abc import Iterator
from itertools import accumulate, combinations, combinations_with_replacement, product

from solvers.check.layout.buffers import misses_of, passes_of
from solvers.check.layout.lanes import task_ends
from solvers.ir import LayoutPlan, LayoutProblem

Ends = dict[tuple[str, int], int]


def values_of_run(problem: LayoutProblem, plan: LayoutPlan) -> dict[str, int]:
    """Each moment is the latest end of its tasks so far, or the end of the pass that its rows name, if later."""
    ends = task_ends(problem, plan)
    values = _decision(problem, plan) | _memory(problem, plan) | _moments(problem, plan, ends)
    return values | _windows(problem, plan) | _done(problem, plan, values)


def _decision(problem: LayoutProblem, plan: LayoutPlan) -> dict[str, int]:
    values = {f"checkpoint/{k}": int(policy == "checkpoint") for k, policy in enumerate(plan.policies)}
    values |= {f"swap/{k}": int(policy == "swap") for k, policy in enumerate(plan.policies)}
    values |= {f"persistent/{c}": int(c in plan.persistent) for c in range(len(problem.chunks))}
    values |= {"checkpoints": plan.policies.count("checkpoint"), "swaps": plan.policies.count("swap")}
    values |= {"persistents": len(plan.persistent)}
    values["buffers"] = min(plan.buffers, len(problem.chunks) - len(plan.persistent))
    passes, count = passes_of(problem, plan.persistent), len(problem.blocks)
    misses = [{miss.chunk for miss in missed} for missed in misses_of(problem, passes, plan.buffers)]
    for c in range(len(problem.chunks)):
        asking = [number for number in range(count, 2 * count) if c in passes[number].asks]
        values[f"found/{c}"] = int(bool(asking) and c not in misses[asking[0]])
    return values


def _memory(problem: LayoutProblem, plan: LayoutPlan) -> dict[str, int]:
    held = []
    for j in range(len(problem.blocks)):
        before = 0
        for i, (block, policy) in enumerate(zip(problem.blocks[:j], plan.policies, strict=False)):
            gone = policy == "swap" and j > i + problem.interval
            before += 0 if gone else block.input_bytes if policy == "checkpoint" else block.activation_bytes
        held.append(before)
    values = {f"before/{j}": before for j, before in enumerate(held)}
    needs = []
    for before, block, policy in zip(held, problem.blocks, plan.policies, strict=True):
        own = block.input_bytes if policy == "checkpoint" else block.activation_bytes
        needs.append(before + own + block.forward_transient_bytes)
        needs.append(before + block.activation_bytes + block.backward_transient_bytes)
    return values | {"peak": max(needs)}


def _moments(problem: LayoutProblem, plan: LayoutPlan, ends: Ends) -> dict[str, int]:
    count = len(problem.blocks)
    passes = passes_of(problem, plan.persistent)
    end = [ends[one.name] for one in passes]
    number, loaded, gathered = 0, [0], [0]
    for one, missed in zip(passes, misses_of(problem, passes, plan.buffers), strict=True):
        numbers = range(number, number + len(missed))
        swapped_in = ends.get(("swap-in", one.block), 0) if one.do == "backward" else 0
        number += len(missed) + (("swap-in", one.block) in ends and one.do == "backward")
        gathered.append(max([gathered[-1], loaded[-1], *(ends["gather", n] for n in numbers)]))
        loaded.append(max([loaded[-1], swapped_in, *(ends["load", n] for n in numbers)]))
    rooms = [end[max(count - 1, 2 * count - 2 - k - problem.interval)] for k in range(count)]
    back = [max(ends.get(("swap-in", k), 0), rooms[k]) for k in range(count)]
    out = list(accumulate((max(end[k], ends.get(("swap-out", k), 0)) for k in range(count)), max))
    families = {
        "end": end,
        "loaded": loaded[1:],
        "gathered": gathered[1:],
        "out": out,
        "queued": _queued(problem, plan, end),
        "back": list(reversed(list(accumulate(reversed(back), max)))),
    }
    families |= _gradients(problem, ends, end, out[-1])
    values = {f"{family}/{n}": moment for family, moments in families.items() for n, moment in enumerate(moments)}
    last = max([end[-1], *families["reduced"][-1:], *families["offloaded"][-1:]])
    return values | {"gradients": last, "finish": max(ends.values())}


def _queued(problem: LayoutProblem, plan: LayoutPlan, end: list[int]) -> list[int]:
    """The least that the chain of rows allows: that no forward ends before it is what they claim of pairs."""
    g, count = problem.interval, len(problem.blocks)
    forward = [block.forward_us for block in problem.blocks]
    out = [min(block.swap_out_us, sum(forward[k + 1 : k + 1 + g])) for k, block in enumerate(problem.blocks)]
    queued = [0] * count
    for k in range(count - g - 1):
        queued[k] = end[k] + sum(forward[k + 1 : k + g + 2])
        if k:
            swapped = [plan.policies[k - 1], plan.policies[k]].count("swap")
            more = (swapped - 1) * max(0, out[k - 1] + out[k] - sum(forward[k : k + g + 1]))
            queued[k] = max(queued[k], queued[k - 1] + forward[k + g + 1] + more)
    return queued


def _windows(problem: LayoutProblem, plan: LayoutPlan) -> dict[str, int]:
    """Of each window of blocks, whether any is swapped."""
    pairs = combinations(range(len(problem.blocks)), 2)
    return {f"some/{a}/{b}": int("swap" in plan.policies[a : b + 1]) for a, b in pairs}


def _done(problem: LayoutProblem, plan: LayoutPlan, values: dict[str, int]) -> dict[str, int]:
    """How far back found chunks reach; and what swapped blocks and the network's own work say that is done.

    The least that its rows allow: that no reduction ends before it is what they claim.
    """
    count, chunks, g = len(problem.blocks), range(len(problem.chunks)), problem.interval
    uses = [[k for k, block in enumerate(problem.blocks) if c in block.chunks] for c in chunks]
    gathers, reductions = [0] * (2 * count), [0] * (2 * count)
    for c in chunks:
        own = problem.chunks[c]
        if c not in plan.persistent:
            gathers[uses[c][0]] += own.gather_us
            gathers[2 * count - 1 - uses[c][-1]] += 0 if values[f"found/{c}"] else own.gather_us
        if own.trainable:
            reductions[2 * count - 1 - uses[c][0]] += own.allreduce_us if c in plan.persistent else own.reduce_us
    starts = [0] * (2 * count)
    for a, b in combinations_with_replacement(range(count), 2):
        if "swap" in plan.policies[a : b + 1]:
            room = max(count - 1, 2 * count - 2 - b - g)
            ahead = sum(gathers[room + 1 : 2 * count - a])
            starts[room] = max(starts[room], values[f"end/{room}"] + reductions[room] - ahead)
    first = problem.blocks[0].chunks[:1]
    load = sum(problem.chunks[c].load_us for c in first if c not in plan.persistent)
    done: list[int] = []
    for e in range(2 * count):
        done.append(max(starts[e], (done[-1] if e else load) + gathers[e] + reductions[e]))
    found = {(uses[c][-1], -c) for c in chunks if values[f"found/{c}"]}
    reach = {f"reach/{c}": int(any(one <= (uses[c][-1], -c) for one in found)) for c in chunks}
    return reach | {f"done/{e}": moment for e, moment in enumerate(done)}


def _gradients(problem: LayoutProblem, ends: Ends, end: list[int], out: int) -> dict[str, list[int]]:
    """Reductions in their order: by the last of the blocks backward that use a chunk, then by chunk."""
    uses = [[k for k, block in enumerate(problem.blocks) if c in block.chunks] for c in range(len(problem.chunks))]
    order = sorted((c for c in range(len(uses)) if problem.chunks[c].trainable), key=lambda c: (-uses[c][0], c))
    reduced, offloaded, cpu, device = [0], [out], [0], [0]
    for c in order:
        done = end[len(end) - 1 - uses[c][0]]
        reduced.append(max(reduced[-1], done, ends.get(("reduce", c), 0), ends.get(("allreduce", c), 0)))
        offloaded.append(max(offloaded[-1], reduced[-1], ends.get(("offload", c), 0)))
    every = max(end[-1], reduced[-1], offloaded[-1]) if order and not problem.overlap_update else 0
    for c, on_device, on_host in zip(order, reduced[1:], offloaded[1:], strict=True):
        cpu.append(max(cpu[-1], on_host, every, ends.get(("cpu-update", c), 0)))
        device.append(max(device[-1], on_device, every, end[-1], ends.get(("device-update", c), 0)))
    return {"reduced": reduced[1:], "offloaded": offloaded[1:], "cpu": cpu[1:], "device": device[1:]}


FAMILIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("chunks", "host", "memory", "hits", "checkpoints", "swaps", "persistents", "network"), ()),
    **dict.fromkeys(("policy", "room", "held", "found", "load", "gather", "freed", "awaited", "returned"), ("passes",)),
    **dict.fromkeys(("gradients", "finish"), ("few",)),
    **dict.fromkeys(
        ("peak", "compute", "out", "queued", "back", "reduce", "offload", "cpu", "device"), ("passes", "few")
    ),
    "relay": ("passes", "passes"),
    **dict.fromkeys(("done", "cleared"), ("passes",)),
    **dict.fromkeys(("waited", "blocked"), ("passes", "passes")),
    "reach": ("passes", "few"),
    "some": ("passes", "passes", "few"),
    "ahead": ("passes", "few", "few"),
}
"""Each family of rows, and how many numbers follow."""


def row_keys(problem: LayoutProblem) -> Iterator[str]:
    """Every key that may name a row, and some that name none."""
    counts = {"passes": 2 * len(problem.blocks) + len(problem.chunks), "few": 4}
    for family, sizes in FAMILIES.items():
        for numbers in product(*(range(counts[size]) for size in sizes)):
            yield "/".join([family, *map(str, numbers)])
