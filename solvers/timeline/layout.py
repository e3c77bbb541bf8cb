"""What a layout schedule would do: one rank's lanes, memory pass by pass, what compute waits for (README)."""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from solvers.ir.errors import InvalidProblem
from solvers.ir.layout import LayoutProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.lanes import makespan_us, run_lanes
from solvers.timeline.ops import Levels, report_of

COMPUTE = "0.compute"
RUNS = ("compute", "recompute")
CAUSES = {"load": "load", "swap_in": "swap_in", "swap_out": "swap_out", "collective_start": "communication"}
"""What a wait of the compute lane is for, by the action that ends it."""


def simulate_layout(problem: LayoutProblem, schedule: Schedule) -> Report:
    """The report of a layout schedule; raises `InvalidProblem` where it is not a schedule of this problem."""
    read = {action.id: _read(problem, action) for action in schedule.actions}
    step = _Step(problem, schedule, read)
    spans = run_lanes(schedule, lambda action: step.duration_us(action))
    labelled = {action.id: replace(spans[action.id], label=step.label(action)) for action in schedule.actions}
    return report_of(problem, labelled, step.memory(spans), step.stalls(spans))


@dataclass(frozen=True)
class _Data:
    """What an action names: its chunk or block, and whether these are a chunk's gradients."""

    number: int | None = None
    gradients: bool = False


def _read(problem: LayoutProblem, action: Action) -> _Data:
    """The first of its data, which must be there in the problem; its pass, too."""
    passes = 2 * len(problem.blocks)
    if action.op is None and action.do == "load":
        return _Data()
    if action.op is not None and action.op < passes and action.data:
        word, _, digits = str(action.data[0]).partition(" ")
        known = {"chunk": len(problem.chunks), "gradients": len(problem.chunks), "block": len(problem.blocks)}
        of_block = action.do in (*RUNS, "swap_out", "swap_in", "release")
        if digits.isdecimal() and int(digits) < known.get(word, 0) and (word == "block") == of_block:
            return _Data(int(digits), word == "gradients")
    raise InvalidProblem(f"action {action.text()!r} is none of this problem's: lower a plan of this problem")


class _Step:
    """A schedule with what its actions name; `persistent` chunks and buffers stand in its first action."""

    def __init__(self, problem: LayoutProblem, schedule: Schedule, read: dict[int, _Data]) -> None:
        self.problem, self.schedule, self.read = problem, schedule, read
        self.lane = [action for action in schedule.actions if action.lane == COMPUTE]
        lying = [str(name) for action in self.lane if action.op is None for name in action.data]
        self.persistent = {int(name.partition(" ")[2]) for name in lying if name.startswith("chunk ")}
        self.buffers = sum(name.startswith("buffer ") for name in lying)
        found = [action.op for action in self.lane if action.do == "compute"]
        if found != list(range(2 * len(problem.blocks))):
            raise InvalidProblem(
                f"the schedule computes the passes {found[:20]}, the problem has {2 * len(problem.blocks)}: lower a "
                "plan of this problem"
            )

    def duration_us(self, action: Action) -> int:
        """Its time on its lane; what only says that something is there or gone takes none."""
        data = self.read[action.id]
        if data.number is None or action.do == "release":
            return 0
        if action.do in (*RUNS, "swap_out", "swap_in"):
            return self._of_block(action, data.number)
        chunk = self.problem.chunks[data.number]
        if action.do == "load":
            return chunk.load_us
        if action.do == "evict":
            return 0 if action.lane == COMPUTE else chunk.offload_us
        if action.do == "update":
            return chunk.device_update_us if action.lane == COMPUTE else chunk.cpu_update_us
        if action.do == "collective_start":
            exchange = chunk.allreduce_us if data.number in self.persistent else chunk.reduce_us
            return exchange if data.gradients else chunk.gather_us
        raise InvalidProblem(f"action {action.id} does {action.do}, which no layout schedule does: drop it")

    def _of_block(self, action: Action, number: int) -> int:
        block = self.problem.blocks[number]
        if action.do in RUNS:
            again = action.do == "recompute" or self._is_forward(action)
            return block.forward_us if again else block.backward_us
        return block.swap_out_us if action.do == "swap_out" else block.swap_in_us

    def _is_forward(self, action: Action) -> bool:
        return action.op is not None and action.op < len(self.problem.blocks)

    def label(self, action: Action) -> str:
        """What is done, in words of the step: `forward of layer 3`, `load of chunk 7`."""
        data = self.read[action.id]
        if data.number is None:
            return f"{len(self.persistent)} persistent chunks and {self.buffers} buffers"
        if action.do in (*RUNS, "swap_out", "swap_in", "release"):
            did = {"compute": "forward" if self._is_forward(action) else "backward", "recompute": "forward again"}
            return f"{did.get(action.do, action.do.replace('_', '-'))} of {self.problem.blocks[data.number].name}"
        did = {"evict": "evict" if action.lane == COMPUTE else "offload", "collective_start": "gather"}
        did["update"] = "device-update" if action.lane == COMPUTE else "cpu-update"
        if data.gradients:
            did["collective_start"] = "allreduce" if data.number in self.persistent else "reduce"
        return f"{did.get(action.do, action.do)} of chunk {data.number}"

    def memory(self, spans: dict[int, Span]) -> Levels:
        """Bytes in use during each pass, from the end of the compute lane's action before it; at last what stays."""
        chunks, began, levels = self.problem.chunks, 0.0, []
        always = sum(self.problem.chunk_bytes + chunks[number].persistent_bytes for number in self.persistent)
        always += self.buffers * self.problem.chunk_bytes + self.problem.fixed_bytes
        for level, last in self._levels():
            levels.append((began, always + level))
            began = spans[last.id].end_us
        return (*levels, (began, always))

    def _levels(self) -> Iterator[tuple[int, Action]]:
        """For each pass what activations and the block itself hold, and the action that ends it.

        What is swapped out is gone from its release on; what is swapped in counts from the pass that the swap-in stands
        before. A block's activations go with its backward.
        """
        count, level = len(self.problem.blocks), 0
        held, changes = [0] * count, self._changes()
        again = {action.op for action in self.lane if action.do == "recompute"}
        for number, last in enumerate(action for action in self.lane if action.do == "compute"):
            forward = number < count
            index = number if forward else 2 * count - 1 - number
            block = self.problem.blocks[index]
            checkpointed = forward and 2 * count - 1 - index in again
            own = (index, block.input_bytes if checkpointed else block.activation_bytes)
            for changed, size in (*changes.get(number, ()), own):
                level += size - held[changed]
                held[changed] = size
            yield level + (block.forward_transient_bytes if forward else block.backward_transient_bytes), last
            if not forward:
                level -= held[index]
                held[index] = 0

    def _changes(self) -> dict[int, list[tuple[int, int]]]:
        """Before each pass: the blocks that go or return, and what they hold then."""
        found: dict[int, list[tuple[int, int]]] = {}
        for action in self.schedule.actions:
            number = self.read[action.id].number
            if action.do in ("release", "swap_in") and number is not None and action.op is not None:
                size = self.problem.blocks[number].activation_bytes if action.do == "swap_in" else 0
                found.setdefault(action.op, []).append((number, size))
        return found

    def stalls(self, spans: dict[int, Span]) -> dict[str, float]:
        """How long compute waits, by what it waited for last; after its last action for updates on the host."""
        by_id = {action.id: action for action in self.schedule.actions}
        found: dict[str, float] = {}
        free = 0.0
        for action in self.lane:
            idle = spans[action.id].start_us - free
            if idle > 0:
                latest = by_id[max(action.after, key=lambda before: spans[before].end_us)]
                cause = CAUSES.get(latest.do, "gradients")
                found[cause] = found.get(cause, 0) + idle
            free = spans[action.id].end_us
        rest = makespan_us(spans) - free
        return found | ({"update": rest} if rest > 0 else {})
