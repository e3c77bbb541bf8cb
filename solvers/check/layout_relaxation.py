"""A relaxation of `layout` problems by key: rows that every valid decision's own run obeys (README of solvers/layout).

Written from that text alone. Columns are the decision, its sums, what it holds, and moments of its lanes; the rows
carry the numbers that the README gives them. Sums are made of pairs (column, weight); a column may stand twice.
"""

from collections.abc import Callable, Iterable

from solvers.check.keyed import Column, Keyed, Row
from solvers.ir.layout import LayoutProblem

Terms = list[tuple[str, int]]
Amount = tuple[Terms, int]
"""Σ weight·column + constant."""
MakeColumn = Callable[..., Column | None]
MakeRow = Callable[..., Row | None]


class LayoutRelaxation:
    """Columns and rows of a problem, for the decisions that end by `most_us`."""

    def __init__(self, problem: LayoutProblem, most_us: int) -> None:
        self.problem, self.blocks, self.chunks = problem, problem.blocks, problem.chunks
        self.count, self.end = len(self.blocks), 2 * len(self.blocks)
        users: list[list[int]] = [[] for _ in self.chunks]
        for k, block in enumerate(self.blocks):
            for c in block.chunks:
                users[c].append(k)
        self.first, self.last = [found[0] for found in users], [found[-1] for found in users]
        trained = [c for c, chunk in enumerate(self.chunks) if chunk.trainable]
        self.order = sorted(trained, key=lambda c: (-self.first[c], c))
        self.columns: Keyed[Column] = Keyed(self._columns(most_us))
        self.rows: Keyed[Row] = Keyed(self._of_memory() | self._of_lanes() | self._of_gradients())

    def _columns(self, most_us: int) -> dict[str, tuple[int, MakeColumn]]:
        """The decision, sums over it, bytes on the device, and moments: how many of each, and the most they may be."""
        blocks, chunks, passes, trained = self.count, len(self.chunks), self.end, len(self.order)
        choice = [int(block.choice) for block in self.blocks]
        held = sum(max(block.activation_bytes, block.input_bytes) for block in self.blocks)
        most = held + max(max(b.forward_transient_bytes, b.backward_transient_bytes) for b in self.blocks)

        def of_each(count: int, upper: int, integer: bool = False) -> tuple[int, MakeColumn]:
            return 1, lambda number: Column(upper, integer=integer) if number < count else None

        def alone(upper: int, cost_us: int = 0, integer: bool = False) -> tuple[int, MakeColumn]:
            return 0, lambda: Column(upper, cost_us, integer)

        policy = (1, lambda k: Column(choice[k]) if k < blocks else None)
        moments = {name: of_each(passes, most_us) for name in ("end", "loaded", "gathered")}
        moments |= {name: of_each(blocks, most_us) for name in ("out", "back")}
        moments |= {name: of_each(trained, most_us) for name in ("reduced", "offloaded", "cpu", "device")}
        return moments | {
            "checkpoint": policy,
            "swap": policy,
            "persistent": of_each(chunks, 1, integer=True),
            "found": of_each(chunks, 1, integer=True),
            "buffers": alone(chunks, integer=True),
            "checkpoints": alone(blocks, integer=True),
            "swaps": alone(blocks, integer=True),
            "persistents": alone(chunks, integer=True),
            "before": of_each(blocks, most),
            "peak": alone(most),
            "gradients": alone(most_us),
            "finish": alone(most_us, cost_us=1, integer=True),
        }

    # Decisions and memory: (1)-(5)

    def _of_memory(self) -> dict[str, tuple[int, MakeRow]]:
        return {
            "policy": (1, self._policy),
            "room": (1, self._room),
            "chunks": (0, self._most_buffers),
            "host": (0, self._host),
            "memory": (0, self._memory),
            "peak": (2, self._peak),
            "held": (1, self._held),
            "found": (1, self._found),
            "hits": (0, lambda: _at_most([*self._each("found", 1), ("buffers", -1)], 0)),
            "checkpoints": (0, lambda: self._sum("checkpoint", self.count)),
            "swaps": (0, lambda: self._sum("swap", self.count)),
            "persistents": (0, lambda: self._sum("persistent", len(self.chunks))),
        }

    def _policy(self, k: int) -> Row | None:
        """(1) One policy a block."""
        return _at_most([(f"checkpoint/{k}", 1), (f"swap/{k}", 1)], 1) if k < self.count else None

    def _room(self, k: int) -> Row | None:
        """(2) Buffers for what the backward of block k asks for, and for gradients that are incomplete by then."""
        if k >= self.count:
            return None
        needed = {*self.blocks[k].chunks, *self._pending(k)}
        return _at_least([("buffers", 1), *((f"persistent/{c}", 1) for c in needed)], len(needed))

    def _most_buffers(self) -> Row:
        """(2) No more buffers than chunks that may use them: more change nothing."""
        return _at_most([("buffers", 1), *self._each("persistent", 1)], len(self.chunks))

    def _host(self) -> Row:
        """(3) States of chunks that are away, and swapped activations."""
        terms = [(f"swap/{k}", block.activation_bytes) for k, block in enumerate(self.blocks)]
        terms += [(f"persistent/{c}", -chunk.host_bytes) for c, chunk in enumerate(self.chunks)]
        return _at_most(terms, self.problem.host_bytes - sum(chunk.host_bytes for chunk in self.chunks))

    def _memory(self) -> Row:
        """(4) Persistent chunks, buffers, and the most of any pass."""
        size = self.problem.chunk_bytes
        terms = [(f"persistent/{c}", size + chunk.persistent_bytes) for c, chunk in enumerate(self.chunks)]
        return _at_most([*terms, ("buffers", size), ("peak", 1)], self.problem.device_bytes - self.problem.fixed_bytes)

    def _peak(self, k: int, half: int) -> Row | None:
        """(4) A forward (0) and a backward (1) of block k on top of what earlier blocks hold."""
        if k >= self.count or half > 1:
            return None
        block, terms = self.blocks[k], [("peak", 1), (f"before/{k}", -1)]
        if half:
            return _at_least(terms, block.activation_bytes + block.backward_transient_bytes)
        terms.append((f"checkpoint/{k}", block.activation_bytes - block.input_bytes))
        return _at_least(terms, block.activation_bytes + block.forward_transient_bytes)

    def _held(self, k: int) -> Row | None:
        """(4) What earlier blocks hold before block k: a swapped one lets go after `interval` more blocks."""
        if k >= self.count:
            return None
        if k == 0:
            return _exactly([("before/0", 1)], 0)
        block, gone = self.blocks[k - 1], k - 1 - self.problem.interval
        terms = [(f"before/{k}", 1), (f"before/{k - 1}", -1)]
        terms.append((f"checkpoint/{k - 1}", block.activation_bytes - block.input_bytes))
        if gone >= 0:
            terms.append((f"swap/{gone}", self.blocks[gone].activation_bytes))
        return _exactly(terms, block.activation_bytes)

    def _found(self, c: int) -> Row | None:
        """(5) Only what is not persistent is found in a buffer."""
        return _at_most([(f"found/{c}", 1), (f"persistent/{c}", 1)], 1) if c < len(self.chunks) else None

    def _sum(self, name: str, count: int) -> Row:
        """How many there are: nothing new, but good to split."""
        return _exactly([(f"{name}s", 1), *((f"{name}/{number}", -1) for number in range(count))], 0)

    def _each(self, name: str, weight: int) -> Terms:
        return [(f"{name}/{c}", weight) for c in range(len(self.chunks))]

    # Compute, loads, gathers, swaps: (6)-(10)

    def _of_lanes(self) -> dict[str, tuple[int, MakeRow]]:
        return {
            "compute": (2, self._compute),
            "load": (1, self._load),
            "gather": (1, self._gather),
            "relay": (2, self._relay),
            "out": (2, self._out),
            "freed": (1, self._freed),
            "back": (2, self._back),
            "returned": (1, self._returned),
            "ahead": (3, self._ahead),
            "network": (0, self._network),
        }

    def _compute(self, e: int, after: int) -> Row | None:
        """(6) A pass runs after the one before (0), after its loads (1), after its gathers (2)."""
        if e >= self.end or after > 2 or (e == 0 and after == 0):
            return None
        return self._after(f"end/{e}", (f"end/{e - 1}", f"loaded/{e}", f"gathered/{e}")[after], self._work(e))

    def _load(self, e: int) -> Row | None:
        """(7) Loads, and in backward the swap-in, follow those of earlier passes."""
        if e >= self.end:
            return None
        moved = self._missing(e, self._fresh(e), "load_us")
        if e >= self.count:
            k = self._block(e)
            moved = _plus(moved, ([(f"swap/{k}", self.blocks[k].swap_in_us)], 0))
        return self._after(f"loaded/{e}", f"loaded/{e - 1}" if e else None, moved)

    def _gather(self, e: int) -> Row | None:
        """(7) Gathers follow those of earlier passes."""
        if e >= self.end:
            return None
        moved = self._missing(e, self._fresh(e), "gather_us")
        return self._after(f"gathered/{e}", f"gathered/{e - 1}" if e else None, moved)

    def _relay(self, e: int, place: int) -> Row | None:
        """(7) The gather of the pass's chunk in that place follows its load, and those behind follow it."""
        if e >= self.end or place >= len(self._fresh(e)):
            return None
        fresh = self._fresh(e)
        moved = _plus(self._missing(e, fresh[: place + 1], "load_us"), self._missing(e, fresh[place:], "gather_us"))
        return self._after(f"gathered/{e}", f"loaded/{e - 1}" if e else None, moved)

    def _out(self, k: int, after: int) -> Row | None:
        """(8) A swap-out follows its forward (0) and the swap-outs before it (1)."""
        if k >= self.count or after > 1 or (k == 0 and after == 1):
            return None
        moved = [(f"swap/{k}", self.blocks[k].swap_out_us)], 0
        return self._after(f"out/{k}", (f"end/{k}", f"out/{k - 1}")[after], moved)

    def _freed(self, k: int) -> Row | None:
        """(9) Block k's swap-out has ended before the forward at which its bytes count no more."""
        later = k + 1 + self.problem.interval
        return self._after(f"end/{later}", f"out/{k}", self._work(later)) if later < self.count else None

    def _back(self, k: int, after: int) -> Row | None:
        """(10) A swap-in waits for room (0) and for the swap-ins of the blocks behind (1)."""
        if k >= self.count or after > 1 or (k == self.count - 1 and after == 1):
            return None
        near = k + 1 + self.problem.interval
        room = self.count - 1 if near >= self.count else self._backward(near)
        moved = [(f"swap/{k}", self.blocks[k].swap_in_us)], 0
        return self._after(f"back/{k}", (f"end/{room}", f"back/{k + 1}")[after], moved)

    def _returned(self, k: int) -> Row | None:
        """(10) Backward k waits for the swap-ins up to its own."""
        if k >= self.count:
            return None
        e = self._backward(k)
        return self._after(f"end/{e}", f"back/{k}", self._work(e))

    def _ahead(self, e: int, lane: int, until: int) -> Row | None:
        """(14) After pass e: what must still be loaded (lane 0) or gathered (1), but for what buffers hold.

        Until the last forward (0) or the last backward (1); or until the last reduction gathers and reductions (2).
        """
        last = (self.count - 1, self.end - 1, self._last_reduction())[until] if until < 3 else -1
        if e >= last or lane > 1 or (until == 2 and not lane):
            return None
        since = e + 1 if until == 0 else max(e + 1, self.count)
        asked = [c for later in range(since, last + 1) for c in self._fresh(later)]
        times = [self.chunks[c].gather_us if lane else self.chunks[c].load_us for c in asked]
        most = max(times, default=0)
        stuck = self._pending(self._block(e)) if e >= self.count else []
        terms = [(f"persistent/{c}", -time) for c, time in zip(asked, times, strict=True)]
        terms += [("buffers", -most), *((f"persistent/{c}", -most) for c in stuck)]
        to_come = terms, sum(times) + most * len(stuck)
        if until == 2:
            to_come = _plus(to_come, self._reductions(max(e, self.count)))
            return self._after(f"reduced/{len(self.order) - 1}", f"end/{e}", to_come)
        return self._after(f"end/{last}", f"end/{e}", _plus(to_come, self._work(last)))

    def _network(self) -> Row | None:
        """(13) Before the last reduction ends the net has done all reductions and gathers up to its pass."""
        if not self.order:
            return None
        total = self._reductions(0)
        for e in range(self._last_reduction() + 1):
            total = _plus(total, self._missing(e, self._fresh(e), "gather_us"))
        total = _plus(total, self._missing(0, self.blocks[0].chunks[:1], "load_us"))
        return self._after(f"reduced/{len(self.order) - 1}", None, total)

    # Gradients and updates: (11), (12), (15), (16)

    def _of_gradients(self) -> dict[str, tuple[int, MakeRow]]:
        return {
            "reduce": (2, self._reduce),
            "offload": (2, self._offload),
            "gradients": (1, self._gradients),
            "cpu": (2, self._cpu),
            "device": (2, self._device_update),
            "finish": (1, self._finish),
        }

    def _reduce(self, i: int, after: int) -> Row | None:
        """(11) A reduction follows its pass (0) and the reductions before it (1)."""
        if i >= len(self.order) or after > 1 or (i == 0 and after == 1):
            return None
        e = self._backward(self.first[self.order[i]])
        return self._after(f"reduced/{i}", (f"end/{e}", f"reduced/{i - 1}")[after], self._reduction(self.order[i]))

    def _offload(self, i: int, after: int) -> Row | None:
        """(12) An offload follows its reduction (0) and what was sent out before it (1)."""
        if i >= len(self.order) or after > 1:
            return None
        before = f"offloaded/{i - 1}" if i else f"out/{self.count - 1}"
        return self._after(f"offloaded/{i}", (f"reduced/{i}", before)[after], self._away(i, "offload_us"))

    def _gradients(self, after: int) -> Row | None:
        """All gradients are there after the last backward (0), reduction (1) and offload (2)."""
        last = len(self.order) - 1
        if self.problem.overlap_update or after > 2 or (after and last < 0):
            return None
        return self._after("gradients", (f"end/{self.end - 1}", f"reduced/{last}", f"offloaded/{last}")[after], ([], 0))

    def _cpu(self, i: int, after: int) -> Row | None:
        """(15) A cpu update follows its offload or all gradients (0), and those before it (1)."""
        if i >= len(self.order) or after > 1 or (i == 0 and after == 1):
            return None
        ready = f"offloaded/{i}" if self.problem.overlap_update else "gradients"
        return self._after(f"cpu/{i}", (ready, f"cpu/{i - 1}")[after], self._away(i, "cpu_update_us"))

    def _device_update(self, i: int, after: int) -> Row | None:
        """(16) A device update follows its reduction or all gradients (0), those before it (1), all backwards (2)."""
        if i >= len(self.order) or after > 2 or (i == 0 and after == 1):
            return None
        ready = f"reduced/{i}" if self.problem.overlap_update else "gradients"
        work = [(f"persistent/{self.order[i]}", self.chunks[self.order[i]].device_update_us)], 0
        return self._after(f"device/{i}", (ready, f"device/{i - 1}", f"end/{self.end - 1}")[after], work)

    def _finish(self, after: int) -> Row | None:
        """The step ends after backward (0), offloads (1), cpu updates (2) and device updates (3)."""
        last = len(self.order) - 1
        if after > 3 or (after and last < 0):
            return None
        moment = (f"end/{self.end - 1}", f"offloaded/{last}", f"cpu/{last}", f"device/{last}")[after]
        return self._after("finish", moment, ([], 0))

    # What rows are made of

    def _after(self, later: str, earlier: str | None, amount: Amount) -> Row:
        """later ≥ earlier + amount."""
        terms, constant = amount
        before = [] if earlier is None else [(earlier, -1)]
        return _at_least([(later, 1), *before, *((key, -weight) for key, weight in terms)], constant)

    def _block(self, e: int) -> int:
        return e if e < self.count else self.end - 1 - e

    def _backward(self, k: int) -> int:
        return self.end - 1 - k

    def _last_reduction(self) -> int:
        """The pass that the last reduction follows; −1 without trainable chunks."""
        return self._backward(self.first[self.order[-1]]) if self.order else -1

    def _pending(self, k: int) -> list[int]:
        """Chunks whose gradients are incomplete, or just complete, at the end of backward k."""
        return [c for c in self.order if self.first[c] <= k <= self.last[c]]

    def _fresh(self, e: int) -> list[int]:
        """The chunks that pass e is the first of its half to ask for, in the order of asking."""
        k = self._block(e)
        since = self.first if e < self.count else self.last
        return [c for c in self.blocks[k].chunks if since[c] == k]

    def _work(self, e: int) -> Amount:
        """Compute of a pass; a checkpointed block's backward runs its forward again."""
        k = self._block(e)
        if e < self.count:
            return [], self.blocks[k].forward_us
        return [(f"checkpoint/{k}", self.blocks[k].forward_us)], self.blocks[k].backward_us

    def _missing(self, e: int, chunks: Iterable[int], time: str) -> Amount:
        """What these chunks take unless persistent, or in backward found."""
        terms: Terms = []
        total = 0
        for c in chunks:
            each: int = getattr(self.chunks[c], time)
            terms += [(f"persistent/{c}", -each)] + ([(f"found/{c}", -each)] if e >= self.count else [])
            total += each
        return terms, total

    def _reduction(self, c: int) -> Amount:
        chunk = self.chunks[c]
        return [(f"persistent/{c}", chunk.allreduce_us - chunk.reduce_us)], chunk.reduce_us

    def _reductions(self, since: int) -> Amount:
        """All reductions of pass `since` and later ones."""
        total: Amount = ([], 0)
        for c in self.order:
            if self._backward(self.first[c]) >= since:
                total = _plus(total, self._reduction(c))
        return total

    def _away(self, i: int, time: str) -> Amount:
        """What the chunk of reduction i takes unless persistent."""
        each: int = getattr(self.chunks[self.order[i]], time)
        return [(f"persistent/{self.order[i]}", -each)], each


def _plus(one: Amount, other: Amount) -> Amount:
    return [*one[0], *other[0]], one[1] + other[1]


def _weights(terms: Terms) -> dict[str, int]:
    weights: dict[str, int] = {}
    for key, weight in terms:
        weights[key] = weights.get(key, 0) + weight
    return weights


def _at_least(terms: Terms, limit: int) -> Row:
    return Row(limit, None, _weights(terms))


def _at_most(terms: Terms, limit: int) -> Row:
    return Row(None, limit, _weights(terms))


def _exactly(terms: Terms, limit: int) -> Row:
    return Row(limit, limit, _weights(terms))
