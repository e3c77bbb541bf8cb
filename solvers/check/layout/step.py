"""What rows of the `layout` relaxation are made of: amounts of a step as sums over columns, and what they depend on."""

from collections.abc import Iterable

from solvers.check.keyed import Row
from solvers.ir.layout import LayoutProblem

Terms = list[tuple[str, int]]
"""(column, weight); a column may stand twice."""
Amount = tuple[Terms, int]
"""Σ weight·column + constant."""


class LayoutStep:
    """A problem's passes 0…2N−1, forward first, its chunks' uses, and what tasks take as far as the decision tells.

    By chunk: `first` and `last` block that uses it. `order`: trainable chunks in the order of their reductions.
    """

    def __init__(self, problem: LayoutProblem) -> None:
        self.blocks, self.chunks, self.interval = problem.blocks, problem.chunks, problem.interval
        self.count, self.end = len(self.blocks), 2 * len(self.blocks)
        users: list[list[int]] = [[] for _ in self.chunks]
        for k, block in enumerate(self.blocks):
            for c in block.chunks:
                users[c].append(k)
        self.first, self.last = [found[0] for found in users], [found[-1] for found in users]
        trained = [c for c, chunk in enumerate(self.chunks) if chunk.trainable]
        self.order = sorted(trained, key=lambda c: (-self.first[c], c))

    def block(self, e: int) -> int:
        """The block of a pass."""
        return e if e < self.count else self.end - 1 - e

    def backward(self, k: int) -> int:
        """The backward pass of a block."""
        return self.end - 1 - k

    def last_reduction(self) -> int:
        """The pass that the last reduction follows; −1 without trainable chunks."""
        return self.backward(self.first[self.order[-1]]) if self.order else -1

    def pending(self, k: int) -> list[int]:
        """Chunks whose gradients are incomplete, or just complete, at the end of backward k."""
        return [c for c in self.order if self.first[c] <= k <= self.last[c]]

    def fresh(self, e: int) -> list[int]:
        """The chunks that pass e is the first of its half to ask for, in the order of asking."""
        k = self.block(e)
        since = self.first if e < self.count else self.last
        return [c for c in self.blocks[k].chunks if since[c] == k]

    def work(self, e: int) -> Amount:
        """Compute of a pass; a checkpointed block's backward runs its forward again."""
        k = self.block(e)
        if e < self.count:
            return [], self.blocks[k].forward_us
        return [(f"checkpoint/{k}", self.blocks[k].forward_us)], self.blocks[k].backward_us

    def forwards(self, first: int, last: int) -> int:
        """What the forwards of these blocks take together."""
        return sum(block.forward_us for block in self.blocks[first : last + 1])

    def outlasting(self, k: int) -> int:
        """By how much two swap-outs, of block k and the next, outlast the forwards until that one's end is awaited.

        No swap-out is counted longer than `interval` forwards behind its block.
        """
        one, other = (min(self.blocks[j].swap_out_us, self.forwards(j + 1, j + self.interval)) for j in (k, k + 1))
        return max(0, one + other - self.forwards(k + 1, k + 1 + self.interval))

    def missing(self, e: int, chunks: Iterable[int], time: str) -> Amount:
        """What these chunks take unless persistent, or in backward found."""
        terms: Terms = []
        total = 0
        for c in chunks:
            each: int = getattr(self.chunks[c], time)
            terms += [(f"persistent/{c}", -each)] + ([(f"found/{c}", -each)] if e >= self.count else [])
            total += each
        return terms, total

    def reduction(self, c: int) -> Amount:
        """The all-reduce of a persistent chunk, or the reduction of another."""
        chunk = self.chunks[c]
        return [(f"persistent/{c}", chunk.allreduce_us - chunk.reduce_us)], chunk.reduce_us

    def reductions(self, since: int) -> Amount:
        """All reductions of pass `since` and later ones."""
        total: Amount = ([], 0)
        for c in self.order:
            if self.backward(self.first[c]) >= since:
                total = plus(total, self.reduction(c))
        return total

    def away(self, i: int, time: str) -> Amount:
        """What the chunk of reduction i takes unless persistent."""
        each: int = getattr(self.chunks[self.order[i]], time)
        return [(f"persistent/{self.order[i]}", -each)], each


def plus(one: Amount, other: Amount) -> Amount:
    """Both together."""
    return [*one[0], *other[0]], one[1] + other[1]


def _weights(terms: Terms) -> dict[str, int]:
    weights: dict[str, int] = {}
    for key, weight in terms:
        weights[key] = weights.get(key, 0) + weight
    return weights


def at_least(terms: Terms, limit: int) -> Row:
    """Σ weight·column ≥ limit."""
    return Row(limit, None, _weights(terms))


def at_most(terms: Terms, limit: int) -> Row:
    """Σ weight·column ≤ limit."""
    return Row(None, limit, _weights(terms))


def exactly(terms: Terms, limit: int) -> Row:
    """Σ weight·column = limit."""
    return Row(limit, limit, _weights(terms))


def after(later: str, earlier: str | None, amount: Amount) -> Row:
    """later ≥ earlier + amount."""
    terms, constant = amount
    before = [] if earlier is None else [(earlier, -1)]
    return at_least([(later, 1), *before, *((key, -weight) for key, weight in terms)], constant)
