"""A second reading of formats.md 3, told as a clock that ticks: what has ended, what can begin, one tick more.

It shares nothing with `solvers.check.swap.judge`, which computes with maxima instead. Slow and plain on purpose.
"""

from dataclasses import dataclass, field

from solvers.ir import SwapPlan, SwapProblem


@dataclass
class Lane:
    """A FIFO link direction: transfers as (tensor position, duration), the first of them under way since `began`."""

    queue: list[tuple[int, int]] = field(default_factory=list)
    began: int | None = None
    ended: set[int] = field(default_factory=set)

    def advance(self, now: int) -> bool:
        """End or begin a transfer; whether anything happened."""
        if self.began is not None and now - self.began >= self.queue[0][1]:
            self.ended.add(self.queue.pop(0)[0])
            self.began = None
            return True
        if self.began is None and self.queue:
            self.began = now
            return True
        return False


class Clock:
    """One step of training, microsecond by microsecond."""

    def __init__(self, problem: SwapProblem, plan: SwapPlan) -> None:
        self.problem = problem
        by_id = {tensor.id: tensor for tensor in problem.tensors}
        self.tensors = [by_id[swap.tensor] for swap in plan.swaps]
        self.back_at = [swap.swap_in_at for swap in plan.swaps]
        self.out, self.back = Lane(), Lane()
        self.op = 0
        self.granted = False
        self.began: int | None = None

    def run(self) -> int | None:
        """The end of the last op, or None where an op waits for ever."""
        now = 0
        while True:
            while self.out.advance(now) or self.back.advance(now) or self._compute(now):
                pass
            if self.op == len(self.problem.ops):
                return now
            if self.began is None and self.out.began is None and self.back.began is None:
                return None
            now += 1

    def _compute(self, now: int) -> bool:
        op = self.problem.ops[self.op] if self.op < len(self.problem.ops) else None
        if op is None:
            return False
        if self.began is not None:
            if now - self.began < op.time_us:
                return False
            self._leave(self.op)
            self.op, self.granted, self.began = self.op + 1, False, None
        elif self.granted:
            needed = {n for n, tensor in enumerate(self.tensors) if tensor.first_backward_use == self.op}
            if not needed <= self.back.ended:
                return False
            self.began = now
        elif self._fits():
            self.granted = True
            for n, k in enumerate(self.back_at):
                if k == self.op:
                    self.back.queue.append((n, self.problem.link.in_us(self.tensors[n].bytes)))
        else:
            return False
        return True

    def _leave(self, op: int) -> None:
        for n, tensor in enumerate(self.tensors):
            if tensor.last_forward_use == op:
                self.out.queue.append((n, self.problem.link.out_us(tensor.bytes)))

    def _fits(self) -> bool:
        gone = {n for n in self.out.ended if self.back_at[n] > self.op}
        returning = {n for n, k in enumerate(self.back_at) if k == self.op}
        in_use = self.problem.memory_bytes[self.op] - sum(self.tensors[n].bytes for n in gone)
        return returning <= self.out.ended and in_use <= self.problem.budget_bytes


def naive_objective_us(problem: SwapProblem, plan: SwapPlan) -> int | None:
    """The end of the last op under a well-formed plan, or None where the plan is invalid."""
    return Clock(problem, plan).run()
