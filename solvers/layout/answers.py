"""What the solvers of this room answer alike: a measured plan, or what memory is lacking."""

from collections.abc import Iterable
from fractions import Fraction

from solvers.ir.layout import LayoutPlan
from solvers.ir.solution import Call, Solution, Watch
from solvers.layout.evaluate import Instance, evaluate
from solvers.layout.least import Least

FLOOR = {"form": "floor/1"}
"""Certificate of `floor_us`: whoever reads it computes that again."""
LEAST_MEMORY = {"form": "least-memory/1"}
"""Certificate that nothing fits the device: the closed form of the least device memory says so."""


def fastest(given: Instance, plans: Iterable[LayoutPlan], call: Call, watch: Watch | None) -> tuple[LayoutPlan, int]:
    """The first of the plans that end soonest on the lanes, and that end; of those looked at before time is up."""
    best: tuple[LayoutPlan, int] | None = None
    for plan in plans:
        end_us = evaluate(given, plan).end_us
        if best is None or end_us < best[1]:
            best = plan, end_us
        elapsed = call.elapsed_s
        if elapsed > call.limits.time_s or (watch is not None and watch(best[1], None, elapsed)):
            break
    assert best is not None, "there is a plan at least"
    return best


def feasible(
    call: Call, given: Instance, plan: LayoutPlan, end_us: int, reason: str | None = None
) -> Solution[LayoutPlan]:
    """The plan, which ends then on the lanes, with the cheap bound; OPTIMAL where they meet."""
    bound = floor_us(given)
    return call.based(bound).found(plan, end_us, bound, reason=reason, certificate=FLOOR)


def without_plan(call: Call, given: Instance, lacking: str) -> Solution[LayoutPlan]:
    """INFEASIBLE with the least memory where no decision at all is valid, else UNKNOWN and what this solver lacked."""
    least = Least(given)
    if least.device_bytes <= given.problem.device_bytes:
        return call.unknown(lacking)
    return call.infeasible(memory_sentence(least), least_budget_bytes=least.device_bytes, certificate=LEAST_MEMORY)


def memory_sentence(least: Least, device: int | None = None, host: int | None = None) -> str:
    """What device and host would have to have, where no decision is valid.

    `device`: the least device memory with this host, `host`: the least host memory with this device, where known.
    """
    problem, needed = least.given.problem, least.device_bytes if device is None else device
    label = "exactly" if least.is_exact or device is not None else "at least"
    why = f"beside {problem.host_bytes} bytes on the host " if needed > least.roomy_bytes else ""
    if host is not None:
        lacks = f"exactly {host} with this device"
    elif problem.device_bytes >= least.roomy_bytes:
        lacks = f"at least {max(problem.host_bytes + 1, least.host_bytes(problem.device_bytes))} with this device"
    else:
        lacks = f"at least {least.host_bytes(needed)}"
    return (
        f"the device has {problem.device_bytes} bytes, but {why}{label} {needed} bytes are needed; the host has "
        f"{problem.host_bytes} bytes, and needs {lacks}: give more memory, take more ranks or a smaller batch"
    )


def floor_us(given: Instance) -> int:
    """No decision takes less: all passes, and the updates shared between device and cpu as evenly as they can be.

    Nor does the network: a trainable chunk is all-reduced, or gathered once at least and reduced. The device updates
    after the last backward pass; the cpu not before the first gradients are there, and not before the last backward
    pass where updates do not overlap. Parts of a chunk may be updated here and there.
    """
    blocks, chunks = given.problem.blocks, given.problem.chunks
    passes = sum(block.forward_us + block.backward_us for block in blocks)
    done, clock = [0] * len(blocks), passes - sum(block.backward_us for block in blocks)
    for number in reversed(range(len(blocks))):
        clock += blocks[number].backward_us
        done[number] = clock
    trained = [(chunk, done[first]) for chunk, first in zip(chunks, given.first, strict=True) if chunk.trainable]
    starts = (end + chunk.reduce_us + chunk.offload_us for chunk, end in trained)
    start = min(starts, default=passes) if given.problem.overlap_update else passes
    costs = [(chunk.device_update_us, chunk.cpu_update_us) for chunk, _ in trained]
    network = sum(min(chunk.allreduce_us, chunk.gather_us + chunk.reduce_us) for chunk, _ in trained)
    return max(network, _shared(passes, min(start, passes), costs))


def _shared(device: int, cpu: int, costs: list[tuple[int, int]]) -> int:
    """The least end of device and cpu, which start then; each of `costs` is work for one or the other, or parts."""
    cpu += sum(on_cpu for _, on_cpu in costs)
    for on_device, on_cpu in sorted(
        costs, key=lambda cost: Fraction(cost[0], cost[1]) if cost[1] else Fraction(10**18)
    ):
        if device + on_device < cpu - on_cpu:
            device, cpu = device + on_device, cpu - on_cpu
            continue
        if cpu <= device or not on_device + on_cpu:
            break
        return int(-(-(device * on_cpu + cpu * on_device) // (on_device + on_cpu)))
    return max(device, cpu)
