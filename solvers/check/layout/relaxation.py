"""A relaxation of `layout` problems by key: rows that every valid decision's own run obeys (README of solvers/layout).

Written from that text alone. Columns are the decision, its sums, what it holds, and moments of its lanes; the rows
carry the numbers that the README gives them.

One file: a row family is a method of the one class that names all columns.
"""

from collections.abc import Callable

from solvers.check.keyed import Column, Keyed, Row
from solvers.check.layout.queue import LayoutQueue
from solvers.check.layout.step import LayoutStep, Terms, after, at_least, at_most, exactly, plus
from solvers.ir.layout import LayoutProblem

MakeColumn = Callable[..., Column | None]
MakeRow = Callable[..., Row | None]


class LayoutRelaxation:
    """Columns and rows of a problem, for the decisions that end by `most_us`."""

    def __init__(self, problem: LayoutProblem, most_us: int) -> None:
        self.problem, self.blocks, self.chunks = problem, problem.blocks, problem.chunks
        self.count, self.end = len(self.blocks), 2 * len(self.blocks)
        self.step = LayoutStep(problem)
        queue = LayoutQueue(self.step, most_us)
        self.columns: Keyed[Column] = Keyed(self._columns(most_us) | queue.columns())
        self.rows: Keyed[Row] = Keyed(self._of_memory() | self._of_lanes() | self._of_gradients() | queue.rows())

    def _columns(self, most_us: int) -> dict[str, tuple[int, MakeColumn]]:
        """The decision, sums over it, bytes on the device, and moments: how many of each, and the most they may be."""
        blocks, chunks, passes, trained = self.count, len(self.chunks), self.end, len(self.step.order)
        choice = [int(block.choice) for block in self.blocks]
        held = sum(max(block.activation_bytes, block.input_bytes) for block in self.blocks)
        most = held + max(max(b.forward_transient_bytes, b.backward_transient_bytes) for b in self.blocks)

        def of_each(count: int, upper: int, integer: bool = False) -> tuple[int, MakeColumn]:
            return 1, lambda number: Column(upper, integer=integer) if number < count else None

        def alone(upper: int, cost_us: int = 0, integer: bool = False) -> tuple[int, MakeColumn]:
            return 0, lambda: Column(upper, cost_us, integer)

        policy = (1, lambda k: Column(choice[k]) if k < blocks else None)
        moments = {name: of_each(passes, most_us) for name in ("end", "loaded", "gathered")}
        moments |= {name: of_each(blocks, most_us) for name in ("out", "queued", "back")}
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
            "hits": (0, lambda: at_most([*self._each("found", 1), ("buffers", -1)], 0)),
            "checkpoints": (0, lambda: self._sum("checkpoint", self.count)),
            "swaps": (0, lambda: self._sum("swap", self.count)),
            "persistents": (0, lambda: self._sum("persistent", len(self.chunks))),
        }

    def _policy(self, k: int) -> Row | None:
        """(1) One policy a block."""
        return at_most([(f"checkpoint/{k}", 1), (f"swap/{k}", 1)], 1) if k < self.count else None

    def _room(self, k: int) -> Row | None:
        """(2) Buffers for what the backward of block k asks for, and for gradients that are incomplete by then."""
        if k >= self.count:
            return None
        needed = {*self.blocks[k].chunks, *self.step.pending(k)}
        return at_least([("buffers", 1), *((f"persistent/{c}", 1) for c in needed)], len(needed))

    def _most_buffers(self) -> Row:
        """(2) No more buffers than chunks that may use them: more change nothing."""
        return at_most([("buffers", 1), *self._each("persistent", 1)], len(self.chunks))

    def _host(self) -> Row:
        """(3) States of chunks that are away, and swapped activations."""
        terms = [(f"swap/{k}", block.activation_bytes) for k, block in enumerate(self.blocks)]
        terms += [(f"persistent/{c}", -chunk.host_bytes) for c, chunk in enumerate(self.chunks)]
        return at_most(terms, self.problem.host_bytes - sum(chunk.host_bytes for chunk in self.chunks))

    def _memory(self) -> Row:
        """(4) Persistent chunks, buffers, and the most of any pass."""
        size = self.problem.chunk_bytes
        terms = [(f"persistent/{c}", size + chunk.persistent_bytes) for c, chunk in enumerate(self.chunks)]
        return at_most([*terms, ("buffers", size), ("peak", 1)], self.problem.device_bytes - self.problem.fixed_bytes)

    def _peak(self, k: int, half: int) -> Row | None:
        """(4) A forward (0) and a backward (1) of block k on top of what earlier blocks hold."""
        if k >= self.count or half > 1:
            return None
        block, terms = self.blocks[k], [("peak", 1), (f"before/{k}", -1)]
        if half:
            return at_least(terms, block.activation_bytes + block.backward_transient_bytes)
        terms.append((f"checkpoint/{k}", block.activation_bytes - block.input_bytes))
        return at_least(terms, block.activation_bytes + block.forward_transient_bytes)

    def _held(self, k: int) -> Row | None:
        """(4) What earlier blocks hold before block k: a swapped one lets go after `interval` more blocks."""
        if k >= self.count:
            return None
        if k == 0:
            return exactly([("before/0", 1)], 0)
        block, gone = self.blocks[k - 1], k - 1 - self.problem.interval
        terms = [(f"before/{k}", 1), (f"before/{k - 1}", -1)]
        terms.append((f"checkpoint/{k - 1}", block.activation_bytes - block.input_bytes))
        if gone >= 0:
            terms.append((f"swap/{gone}", self.blocks[gone].activation_bytes))
        return exactly(terms, block.activation_bytes)

    def _found(self, c: int) -> Row | None:
        """(5) Only what is not persistent is found in a buffer."""
        return at_most([(f"found/{c}", 1), (f"persistent/{c}", 1)], 1) if c < len(self.chunks) else None

    def _sum(self, name: str, count: int) -> Row:
        """How many there are: nothing new, but good to split."""
        return exactly([(f"{name}s", 1), *((f"{name}/{number}", -1) for number in range(count))], 0)

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
            "queued": (2, self._queued),
            "awaited": (1, self._awaited),
            "back": (2, self._back),
            "returned": (1, self._returned),
            "ahead": (3, self._ahead),
            "network": (0, self._network),
        }

    def _compute(self, e: int, behind: int) -> Row | None:
        """(6) A pass runs after the one before (0), after its loads (1), after its gathers (2)."""
        if e >= self.end or behind > 2 or (e == 0 and behind == 0):
            return None
        return after(f"end/{e}", (f"end/{e - 1}", f"loaded/{e}", f"gathered/{e}")[behind], self.step.work(e))

    def _load(self, e: int) -> Row | None:
        """(7) Loads, and in backward the swap-in, follow those of earlier passes."""
        if e >= self.end:
            return None
        moved = self.step.missing(e, self.step.fresh(e), "load_us")
        if e >= self.count:
            k = self.step.block(e)
            moved = plus(moved, ([(f"swap/{k}", self.blocks[k].swap_in_us)], 0))
        return after(f"loaded/{e}", f"loaded/{e - 1}" if e else None, moved)

    def _gather(self, e: int) -> Row | None:
        """(7) Gathers follow those of earlier passes."""
        if e >= self.end:
            return None
        moved = self.step.missing(e, self.step.fresh(e), "gather_us")
        return after(f"gathered/{e}", f"gathered/{e - 1}" if e else None, moved)

    def _relay(self, e: int, place: int) -> Row | None:
        """(7) The gather of the pass's chunk in that place follows its load, and those behind follow it."""
        if e >= self.end or place >= len(self.step.fresh(e)):
            return None
        fresh = self.step.fresh(e)
        moved = plus(
            self.step.missing(e, fresh[: place + 1], "load_us"), self.step.missing(e, fresh[place:], "gather_us")
        )
        return after(f"gathered/{e}", f"loaded/{e - 1}" if e else None, moved)

    def _out(self, k: int, behind: int) -> Row | None:
        """(8) A swap-out follows its forward (0) and the swap-outs before it (1)."""
        if k >= self.count or behind > 1 or (k == 0 and behind == 1):
            return None
        moved = [(f"swap/{k}", self.blocks[k].swap_out_us)], 0
        return after(f"out/{k}", (f"end/{k}", f"out/{k - 1}")[behind], moved)

    def _freed(self, k: int) -> Row | None:
        """(9) Block k's swap-out has ended before the forward at which its bytes count no more."""
        later = k + 1 + self.problem.interval
        return after(f"end/{later}", f"out/{k}", self.step.work(later)) if later < self.count else None

    def _queued(self, k: int, behind: int) -> Row | None:
        """(17) Forwards behind block k (0), later by each pair of neighbours up to it that are both swapped (1)."""
        later = k + 1 + self.problem.interval
        if later >= self.count or behind > 1 or (k == 0 and behind == 1):
            return None
        if behind == 0:
            return after(f"queued/{k}", f"end/{k}", ([], self.step.forwards(k + 1, later)))
        more = self.step.outlasting(k - 1)
        pair = [(f"swap/{k - 1}", more), (f"swap/{k}", more)], -more
        return after(f"queued/{k}", f"queued/{k - 1}", plus(self.step.work(later), pair))

    def _awaited(self, k: int) -> Row | None:
        """(17) No forward that may await block k's swap-out ends before them."""
        later = k + 1 + self.problem.interval
        return after(f"end/{later}", f"queued/{k}", ([], 0)) if later < self.count else None

    def _back(self, k: int, behind: int) -> Row | None:
        """(10) A swap-in waits for room (0) and for the swap-ins of the blocks behind (1)."""
        if k >= self.count or behind > 1 or (k == self.count - 1 and behind == 1):
            return None
        near = k + 1 + self.problem.interval
        room = self.count - 1 if near >= self.count else self.step.backward(near)
        moved = [(f"swap/{k}", self.blocks[k].swap_in_us)], 0
        return after(f"back/{k}", (f"end/{room}", f"back/{k + 1}")[behind], moved)

    def _returned(self, k: int) -> Row | None:
        """(10) Backward k waits for the swap-ins up to its own."""
        if k >= self.count:
            return None
        e = self.step.backward(k)
        return after(f"end/{e}", f"back/{k}", self.step.work(e))

    def _ahead(self, e: int, lane: int, until: int) -> Row | None:
        """(14) After pass e: what must still be loaded (lane 0) or gathered (1), but for what buffers hold.

        Until the last forward (0) or the last backward (1); or until the last reduction gathers and reductions (2).
        """
        last = (self.count - 1, self.end - 1, self.step.last_reduction())[until] if until < 3 else -1
        if e >= last or lane > 1 or (until == 2 and not lane):
            return None
        since = e + 1 if until == 0 else max(e + 1, self.count)
        asked = [c for later in range(since, last + 1) for c in self.step.fresh(later)]
        times = [self.chunks[c].gather_us if lane else self.chunks[c].load_us for c in asked]
        most = max(times, default=0)
        stuck = self.step.pending(self.step.block(e)) if e >= self.count else []
        terms = [(f"persistent/{c}", -time) for c, time in zip(asked, times, strict=True)]
        terms += [("buffers", -most), *((f"persistent/{c}", -most) for c in stuck)]
        to_come = terms, sum(times) + most * len(stuck)
        if until == 2:
            to_come = plus(to_come, self.step.reductions(max(e, self.count)))
            return after(f"reduced/{len(self.step.order) - 1}", f"end/{e}", to_come)
        return after(f"end/{last}", f"end/{e}", plus(to_come, self.step.work(last)))

    def _network(self) -> Row | None:
        """(13) Before the last reduction ends the net has done all reductions and gathers up to its pass."""
        if not self.step.order:
            return None
        total = self.step.reductions(0)
        for e in range(self.step.last_reduction() + 1):
            total = plus(total, self.step.missing(e, self.step.fresh(e), "gather_us"))
        total = plus(total, self.step.missing(0, self.blocks[0].chunks[:1], "load_us"))
        return after(f"reduced/{len(self.step.order) - 1}", None, total)

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

    def _reduce(self, i: int, behind: int) -> Row | None:
        """(11) A reduction follows its pass (0) and the reductions before it (1)."""
        if i >= len(self.step.order) or behind > 1 or (i == 0 and behind == 1):
            return None
        e = self.step.backward(self.step.first[self.step.order[i]])
        return after(f"reduced/{i}", (f"end/{e}", f"reduced/{i - 1}")[behind], self.step.reduction(self.step.order[i]))

    def _offload(self, i: int, behind: int) -> Row | None:
        """(12) An offload follows its reduction (0) and what was sent out before it (1)."""
        if i >= len(self.step.order) or behind > 1:
            return None
        before = f"offloaded/{i - 1}" if i else f"out/{self.count - 1}"
        return after(f"offloaded/{i}", (f"reduced/{i}", before)[behind], self.step.away(i, "offload_us"))

    def _gradients(self, behind: int) -> Row | None:
        """All gradients are there after the last backward (0), reduction (1) and offload (2)."""
        last = len(self.step.order) - 1
        if self.problem.overlap_update or behind > 2 or (behind and last < 0):
            return None
        return after("gradients", (f"end/{self.end - 1}", f"reduced/{last}", f"offloaded/{last}")[behind], ([], 0))

    def _cpu(self, i: int, behind: int) -> Row | None:
        """(15) A cpu update follows its offload or all gradients (0), and those before it (1)."""
        if i >= len(self.step.order) or behind > 1 or (i == 0 and behind == 1):
            return None
        ready = f"offloaded/{i}" if self.problem.overlap_update else "gradients"
        return after(f"cpu/{i}", (ready, f"cpu/{i - 1}")[behind], self.step.away(i, "cpu_update_us"))

    def _device_update(self, i: int, behind: int) -> Row | None:
        """(16) A device update follows its reduction or all gradients (0), those before it (1), all backwards (2)."""
        if i >= len(self.step.order) or behind > 2 or (i == 0 and behind == 1):
            return None
        ready = f"reduced/{i}" if self.problem.overlap_update else "gradients"
        work = [(f"persistent/{self.step.order[i]}", self.chunks[self.step.order[i]].device_update_us)], 0
        return after(f"device/{i}", (ready, f"device/{i - 1}", f"end/{self.end - 1}")[behind], work)

    def _finish(self, behind: int) -> Row | None:
        """The step ends after backward (0), offloads (1), cpu updates (2) and device updates (3)."""
        last = len(self.step.order) - 1
        if behind > 3 or (behind and last < 0):
            return None
        moment = (f"end/{self.end - 1}", f"offloaded/{last}", f"cpu/{last}", f"device/{last}")[behind]
        return after("finish", moment, ([], 0))
