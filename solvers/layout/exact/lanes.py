"""The lanes in the relaxation of `exact-layout`: moments, and rows that every run obeys (README, rows (5)-(17))."""

from collections.abc import Iterable, Sequence

from solvers.engines import ModelBuilder
from solvers.layout.evaluate import Instance

Term = tuple[int, float]
Amount = tuple[list[Term], float]
"""Σ value·column + constant, in microseconds."""
_MOST_TERMS = 100_000
"""Rows (14) are thinned out where there would be more passes times chunks."""


class Lanes:
    """Adds moments and rows to a model that has the columns of a decision; one family of rows a method."""

    def __init__(
        self,
        given: Instance,
        builder: ModelBuilder,
        persistent: list[int],
        buffers: int,
        again: list[int],
        swapped: list[int],
    ) -> None:
        self.given, self.problem, self.builder = given, given.problem, builder
        self.blocks, self.chunks = self.problem.blocks, self.problem.chunks
        self.count, self.passes = len(self.blocks), 2 * len(self.blocks)
        self.persistent, self.buffers, self.again, self.swapped = persistent, buffers, again, swapped

    def add(self, most_us: float) -> None:
        """All rows; minimise the end of everything, `most_us` at most."""
        moments = self.builder.columns
        self.order = [c for k in reversed(range(self.count)) for c in self.given.completes[k]]
        self.end = moments(self.passes, name="end").tolist()
        self.into = moments(self.passes, name="loaded").tolist()
        self.gathered = moments(self.passes, name="gathered").tolist()
        self.back = moments(self.count, name="back").tolist()
        self.out = moments(self.count, name="out").tolist()
        self.queued = moments(self.count, name="queued").tolist()
        self.reduced = moments(len(self.order), name="reduced").tolist()
        self.offloaded = moments(len(self.order), name="offloaded").tolist()
        self.cpu = moments(len(self.order), name="cpu").tolist()
        self.device = moments(len(self.order), name="device").tolist()
        self.found = moments(len(self.chunks), 0, 1, name="found").tolist()
        self.finish = self.builder.column(0, most_us, integer=True, cost=1, name="finish")
        self._buffered()
        for number in range(self.passes):
            self._compute(number)
            self._load(number)
        self._swaps()
        self._neighbours()
        self._reductions()
        self._network()
        self._prefetch()
        self._updates()
        self._finish()

    def _after(self, later: int, earlier: int | None, amount: Amount, name: str) -> None:
        """later ≥ earlier + amount."""
        row = [(later, 1.0), *((column, -value) for column, value in amount[0])]
        columns, values = split(row if earlier is None else [*row, (earlier, -1.0)])
        self.builder.row(columns, values, lower=amount[1], name=name)

    def _block(self, number: int) -> int:
        return number if number < self.count else self.passes - 1 - number

    def _buffered(self) -> None:
        """(5) What backward finds in a buffer is not persistent, and is no more than there are buffers."""
        for chunk, (found, persistent) in enumerate(zip(self.found, self.persistent, strict=True)):
            self.builder.row([found, persistent], upper=1, name=f"found/{chunk}")
        self.builder.row([*self.found, self.buffers], [1.0] * len(self.found) + [-1.0], upper=0, name="hits")

    def _work(self, number: int) -> Amount:
        """Compute of a pass."""
        k = self._block(number)
        block = self.blocks[k]
        if number < self.count:
            return [], block.forward_us
        return [(self.again[k], float(block.forward_us))], block.backward_us

    def _misses(self, number: int) -> list[int]:
        """Chunks that this pass surely asks for first in forward, or first in backward."""
        k = self._block(number)
        first = self.given.first if number < self.count else self.given.last
        return [chunk for chunk in self.blocks[k].chunks if first[chunk] == k]

    def _missing(self, number: int, chunks: Sequence[int], lane: str) -> Amount:
        """Loads or gathers of chunks that are not persistent, nor in backward held since forward."""
        terms: list[Term] = []
        times = [getattr(self.chunks[chunk], lane) for chunk in chunks]
        for chunk, time in zip(chunks, times, strict=True):
            terms.append((self.persistent[chunk], -float(time)))
            if number >= self.count:
                terms.append((self.found[chunk], -float(time)))
        return terms, sum(times)

    def _compute(self, number: int) -> None:
        """(6) A pass runs after the one before, after its loads and after its gathers."""
        befores = (self.end[number - 1], self.into[number], self.gathered[number])
        for place, before in enumerate(befores):
            if number or place:
                self._after(self.end[number], before, self._work(number), f"compute/{number}/{place}")

    def _load(self, number: int) -> None:
        """(7) Loads and swap-ins one after the other, gathers likewise, each gather after its load."""
        misses = self._misses(number)
        loads = self._missing(number, misses, "load_us")
        if number >= self.count:
            k = self._block(number)
            loads[0].append((self.swapped[k], float(self.blocks[k].swap_in_us)))
        into, gathered = (self.into[number - 1], self.gathered[number - 1]) if number else (None, None)
        self._after(self.into[number], into, loads, f"load/{number}")
        self._after(self.gathered[number], gathered, self._missing(number, misses, "gather_us"), f"gather/{number}")
        for place in range(len(misses)):
            first = self._missing(number, misses[: place + 1], "load_us")
            later = self._missing(number, misses[place:], "gather_us")
            self._after(self.gathered[number], into, plus(first, later), f"relay/{number}/{place}")

    def _swaps(self) -> None:
        """(8) Swap-outs after their forward, (9) done g forwards later; (10) swap-ins when there is room for them."""
        near = self.problem.interval + 1
        for k, block in enumerate(self.blocks):
            moved: Amount = [(self.swapped[k], float(block.swap_out_us))], 0
            self._after(self.out[k], self.end[k], moved, f"out/{k}/0")
            if k:
                self._after(self.out[k], self.out[k - 1], moved, f"out/{k}/1")
            if k + near < self.count:
                self._after(self.end[k + near], self.out[k], self._work(k + near), f"freed/{k}")
            number = self.passes - 1 - k
            moved = [(self.swapped[k], float(block.swap_in_us))], 0
            self._after(self.back[k], self.end[max(self.count - 1, number - near)], moved, f"back/{k}/0")
            if k + 1 < self.count:
                self._after(self.back[k], self.back[k + 1], moved, f"back/{k}/1")
            self._after(self.end[number], self.back[k], self._work(number), f"returned/{k}")

    def _neighbours(self) -> None:
        """(17) Each pair of neighbours that are both swapped holds up forwards behind it, and all of them add up."""
        near = self.problem.interval + 1
        for k in range(self.count - near):
            times = sum(block.forward_us for block in self.blocks[k + 1 : k + near + 1])
            self._after(self.queued[k], self.end[k], ([], times), f"queued/{k}/0")
            if k:
                more = self._held_up_us(k - 1)
                pair: Amount = [(self.swapped[k - 1], float(more)), (self.swapped[k], float(more))], -more
                self._after(self.queued[k], self.queued[k - 1], plus(self._work(k + near), pair), f"queued/{k}/1")
            self._after(self.end[k + near], self.queued[k], ([], 0), f"awaited/{k}")

    def _held_up_us(self, k: int) -> int:
        """By how much the swap-outs of blocks k and k + 1 outlast the forwards until the one that awaits both."""

        def forwards(first: int, last: int) -> int:
            return sum(block.forward_us for block in self.blocks[first : last + 1])

        near = self.problem.interval
        outs = sum(min(self.blocks[j].swap_out_us, forwards(j + 1, j + near)) for j in (k, k + 1))
        return max(0, outs - forwards(k + 1, k + 1 + near))

    def _reduction(self, chunk: int) -> Amount:
        given = self.chunks[chunk]
        return [(self.persistent[chunk], float(given.allreduce_us - given.reduce_us))], given.reduce_us

    def _away(self, chunk: int, time: int) -> Amount:
        return [(self.persistent[chunk], -float(time))], time

    def _reductions(self) -> None:
        """(11) Reductions in their order after their pass, (12) offloads after them and after all swap-outs."""
        for place, chunk in enumerate(self.order):
            done = self.end[self.passes - 1 - self.given.first[chunk]]
            befores = (done, *self.reduced[max(0, place - 1) : place])
            for number, before in enumerate(befores):
                self._after(self.reduced[place], before, self._reduction(chunk), f"reduce/{place}/{number}")
            away = self._away(chunk, self.chunks[chunk].offload_us)
            for number, before in enumerate((self.reduced[place], [*self.out[-1:], *self.offloaded][place])):
                self._after(self.offloaded[place], before, away, f"offload/{place}/{number}")

    def _all_reductions(self, since: int) -> Amount:
        """Reductions of pass `since` and later ones."""
        chunks = [c for c in self.order if self.passes - 1 - self.given.first[c] >= since]
        return plus(*(self._reduction(chunk) for chunk in chunks))

    def _network(self) -> None:
        """(13) When the last reduction ends, all reductions and all gathers up to its pass have run."""
        if not self.order:
            return
        numbers = range(self._last_reduction() + 1)
        gathers = (self._missing(number, self._misses(number), "gather_us") for number in numbers)
        load = self._missing(0, self.blocks[0].chunks[:1], "load_us")
        self._after(self.reduced[-1], None, plus(self._all_reductions(0), *gathers, load), "network")

    def _last_reduction(self) -> int:
        """The pass that the last reduction follows: not the last one where the first chunks are frozen."""
        return self.passes - 1 - self.given.first[self.order[-1]] if self.order else -1

    def _prefetch(self) -> None:
        """(14) When a pass ends, buffers hold what was loaded ahead, beside chunks with incomplete gradients.

        So of the loads of the later passes of this half of the step, or of backward, all are still to come but as many
        as there are buffers.
        """
        lasts = (self.count - 1, self.passes - 1, self._last_reduction())
        for number in range(0, self.passes - 1, max(1, self.passes * len(self.chunks) // _MOST_TERMS)):
            for until, last in enumerate(lasts):
                since = number + 1 if until == 0 else max(number + 1, self.count)
                asked = [c for later in range(since, last + 1) for c in self._misses(later)]
                if number < last:
                    self._to_come(number, until, last, asked)

    def _to_come(self, number: int, until: int, last: int, asked: list[int]) -> None:
        """Loads, and gathers, from the end of a pass to that of another, or gathers and all reductions until then."""
        stuck = self.given.pending(self._block(number)) if number >= self.count else []
        for place, lane in enumerate(("load_us", "gather_us")):
            times = {chunk: float(getattr(self.chunks[chunk], lane)) for chunk in asked}
            most = max(times.values(), default=0.0)
            if not most or place < until - 1:
                continue
            terms = [(self.persistent[chunk], -time) for chunk, time in times.items()]
            terms += [(self.buffers, -most), *((self.persistent[chunk], -most) for chunk in stuck)]
            to_come: Amount = terms, sum(times.values()) + most * len(stuck)
            behind, more = self.end[last], self._work(last)
            if until == 2:
                behind, more = self.reduced[-1], self._all_reductions(max(number, self.count))
            self._after(behind, self.end[number], plus(to_come, more), f"ahead/{number}/{place}/{until}")

    def _updates(self) -> None:
        """(15) Updates on the cpu after offloads, (16) on the device after backward; or all after all gradients."""
        ready, last = None, self.end[-1]
        if not self.problem.overlap_update:
            ready = self.builder.column(name="gradients")
            for place, moment in enumerate((last, *self.reduced[-1:], *self.offloaded[-1:])):
                self._after(ready, moment, ([], 0), f"gradients/{place}")
        for place, chunk in enumerate(self.order):
            given = self.chunks[chunk]
            on_cpu = self._away(chunk, given.cpu_update_us)
            on_device: Amount = [(self.persistent[chunk], float(given.device_update_us))], 0.0
            lanes = (("cpu", self.cpu, self.offloaded, on_cpu), ("device", self.device, self.reduced, on_device))
            for name, lane, since, work in lanes:
                self._after(lane[place], since[place] if ready is None else ready, work, f"{name}/{place}/0")
                if place:
                    self._after(lane[place], lane[place - 1], work, f"{name}/{place}/1")
            self._after(self.device[place], last, on_device, f"device/{place}/2")

    def _finish(self) -> None:
        """The step ends when the last of each kind has ended."""
        for place, moments in enumerate((self.end, self.offloaded, self.cpu, self.device)):
            for moment in moments[-1:]:
                self._after(self.finish, moment, ([], 0), f"finish/{place}")


def split(terms: Iterable[Term]) -> tuple[list[int], list[float]]:
    """Columns and values; a row may name a column twice."""
    pairs = list(terms)
    return [column for column, _ in pairs], [value for _, value in pairs]


def plus(*amounts: Amount) -> Amount:
    """All of them together."""
    return [term for terms, _ in amounts for term in terms], sum(constant for _, constant in amounts)
