"""Judge of `layout` decisions: buffers, device and host memory, then the end of the step (formats.md 8)."""

from itertools import accumulate, pairwise

from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.check.layout.lanes import end_us
from solvers.check.verdict import Verdict
from solvers.ir.layout import LayoutBlock, LayoutPlan, LayoutProblem, Policy
from solvers.ir.sentences import quoted


def judge_layout(problem: LayoutProblem, plan: LayoutPlan) -> Verdict:
    """The decision's violations, and the end of everything where it has none."""
    violations = _form(problem, plan)
    if not violations:
        violations = _buffers(problem, plan) + _memory(problem, plan)
    return Verdict(tuple(violations)) if violations else Verdict((), end_us(problem, plan))


def _form(problem: LayoutProblem, plan: LayoutPlan) -> list[str]:
    """Chunks that are there, ascending; a policy for each block, `keep` where there is no choice."""
    violations = []
    for place, chunk in enumerate(plan.persistent):
        if not 0 <= chunk < len(problem.chunks):
            violations.append(f"persistent[{place}] is {chunk}, but there are only {len(problem.chunks)} chunks")
    for before, after in pairwise(plan.persistent):
        if before >= after:
            violations.append(f"persistent has {after} after {before}, but each stands once, in ascending order")
    if plan.buffers < 0:
        violations.append(f"buffers is {plan.buffers}, below 0")
    if len(plan.policies) != len(problem.blocks):
        violations.append(
            f"policies has {len(plan.policies)} entries, but the problem has {len(problem.blocks)} blocks"
        )
    for index, (block, policy) in enumerate(zip(problem.blocks, plan.policies, strict=False)):
        if policy != "keep" and not block.choice:
            violations.append(
                f"policies[{index}] is {policy}, but block {quoted(block.name)} has no choice: it must be keep"
            )
    return violations


def _buffers(problem: LayoutProblem, plan: LayoutPlan) -> list[str]:
    """No pass needs more chunks in buffers at once than there are buffers."""
    passes = passes_of(problem, plan.persistent)
    needed = [len(bound) for bound in bound_to_buffers(problem, passes)]
    most = max(needed)
    if most <= plan.buffers:
        return []
    tight = passes[needed.index(most)]
    place = f"{tight.do} of block {tight.block} ({quoted(problem.blocks[tight.block].name)})"
    return [f"buffers is {plan.buffers}, but {place} needs {most} chunks in buffers at once"]


def _memory(problem: LayoutProblem, plan: LayoutPlan) -> list[str]:
    """The fullest moment of the device fits, and what leaves it fits the host."""
    violations = []
    device, place = device_peak(problem, plan)
    if device > problem.device_bytes:
        violations.append(f"{place} needs {device} bytes on the device, but it has {problem.device_bytes}")
    host = host_bytes(problem, plan)
    if host > problem.host_bytes:
        violations.append(f"the decision needs {host} bytes of host memory, but there are {problem.host_bytes}")
    return violations


def device_peak(problem: LayoutProblem, plan: LayoutPlan) -> tuple[int, str]:
    """The most bytes on the device in any pass, and the first pass that needs them.

    Before a pass of block j, an earlier block i holds its activations (keep; swap while j ≤ i + interval), its input
    (checkpoint), or nothing.
    """
    stay = [b.input_bytes if p == "checkpoint" else b.activation_bytes for b, p in _pairs(problem, plan)]
    held = list(accumulate((0 if p == "swap" else s for s, p in zip(stay, plan.policies, strict=True)), initial=0))
    swapped = list(accumulate((s if p == "swap" else 0 for s, p in zip(stay, plan.policies, strict=True)), initial=0))
    needs = []
    for j, block in enumerate(problem.blocks):
        before = held[j] + swapped[j] - swapped[max(0, j - problem.interval)]
        needs.append((before + stay[j] + block.forward_transient_bytes, f"forward of block {j} ({quoted(block.name)})"))
        own = block.activation_bytes + block.backward_transient_bytes
        needs.append((before + own, f"backward of block {j} ({quoted(block.name)})"))
    peak, place = max(needs, key=lambda need: need[0])
    persistent = sum(problem.chunk_bytes + problem.chunks[chunk].persistent_bytes for chunk in plan.persistent)
    return persistent + plan.buffers * problem.chunk_bytes + problem.fixed_bytes + peak, place


def host_bytes(problem: LayoutProblem, plan: LayoutPlan) -> int:
    """States of the chunks that are not persistent, and the activations of all swapped blocks."""
    away = set(range(len(problem.chunks))) - set(plan.persistent)
    swapped = sum(block.activation_bytes for block, policy in _pairs(problem, plan) if policy == "swap")
    return sum(problem.chunks[chunk].host_bytes for chunk in away) + swapped


def _pairs(problem: LayoutProblem, plan: LayoutPlan) -> list[tuple[LayoutBlock, Policy]]:
    return list(zip(problem.blocks, plan.policies, strict=True))
