"""The simulated accelerator, built from csrc/sim; `runtime.device` is its face for everyone else."""

from collections.abc import Callable
from typing import Any

from torch import Generator, Tensor

torch_version: str
"""The torch that this extension was built for."""

handover_observer: object
"""What `runtime._C.set_handover_observer` takes: the swap engine tells it of every storage that leaves the device."""

launch_meter: object
"""What `runtime._C.set_launch_meter` takes: the profiler asks it what launching cost since it asked last."""

def read_launches() -> tuple[int, int, int, int, int, int]:
    """What the work since the last reading costs on the thread's device and current stream, in nanoseconds.

    The device's own time; the host's until all is issued; that to the end of the work, the device being idle; what the
    host waited for, as bits (an operator 1, the stream 2, the device 4); what copies to the host took for which it did,
    and those for which nobody has waited.
    """

host_registrar: object
"""What `runtime._C.set_host_registrar` takes: the swap engine page-locks memory of its own by it."""

_Access = tuple[str, bool, int, int, int, int, str, int]
"""Operator, whether it writes, stream, its number in the stream, first byte, end byte, label, device."""

def register_device(undeclared: list[tuple[str, list[str], str | None]]) -> int:
    """Makes device `sim` known to PyTorch, once per process; returns the number of operators behind the fallback.

    `undeclared` names operators that write arguments in spite of their schema, these arguments, and the argument that
    must be true for that, if any.
    """

# Where a device is asked for, it is by its index, and −1 is the thread's current one. Streams are named by their ids,
# which are unique over all devices.

def set_devices(count: int) -> None:
    """How many devices there are from now on; nothing may run on any of them meanwhile."""

def device_count() -> int: ...
def default_stream(device: int = -1) -> int: ...
def default_generator(device: int = -1) -> Generator:
    """What a device's operators draw from; the first one's stands for the CPU's default generator."""

def synchronize(device: int = -1) -> None:
    """The device's host waits for its streams; the thread sleeps until collectives issued on them are finished."""

def configure(numbers: list[dict[str, Any]], joins_devices: list[bool]) -> None:
    """Sets the modelled hardware of each device: rates, launch, query and latency times in nanoseconds, noise, seed.

    Links are (bytes a second, latency, lane), `links` to the device and to the host, `peers` by the target's index; of
    a lane one transfer at a time has the use. `joins_devices` says of each lane whether groups may want it, too.
    """

def reset() -> None:
    """Waits for everything, then zeroes clocks, counters, races, traces and statistics."""

def set_pinned_rounding(power_of_two: bool) -> None:
    """Whether page-locked memory comes in blocks of powers of two that are kept when freed, as PyTorch's on CUDA."""

def set_capacity(bytes: int, device: int = -1) -> None:
    """Sets a device's memory; below what is in use, nothing more fits until enough is freed."""

def set_pressure_handler(handler: object | None, device: int = -1) -> None:
    """Who is asked for help when a request does not fit on this device; None asks nobody.

    A capsule `bayplan.pressure` of `bool (*)(size_t bytes, size_t missing, unsigned attempt)`, true if it freed
    something. It is called on the allocating thread without the machine's lock, in the middle of kernels too. Attempt 0
    comes before the host waits for anything, 1, 2, … after that, until the request fits or the answer is no.
    """

def set_relief_callback(callback: object | None, device: int = -1) -> None:
    """Who is asked for help on this device in mode caching; None asks nobody.

    A capsule `bayplan.relief` of `bool (*)()`, true if it freed something. It is called once for a request that no
    cached chunk fits, before it is known whether the device is full, with the machine's lock held, as CUDA's
    allocator holds its own.
    """

def set_allocator(numbers: dict[str, Any] | None) -> None:
    """Mode caching with these options, None: mode exact. Waits for all devices and gives all free memory back."""

def caching() -> bool:
    """Whether requests are served from segments."""

def set_limit(bytes: int | None, device: int = -1) -> None:
    """The most that segments may take in mode caching, as CUDA's memory fraction; None: the capacity alone counts."""

def limit(device: int = -1) -> int | None: ...
def stitches(device: int = -1) -> tuple[int, int, int]:
    """How often, of how many parts, and how many bytes."""

def record_memory(most: int, device: int = -1) -> None:
    """Keeps the allocator's last steps, from none on."""

_Chunk = tuple[int, int, int, str]
"""Address, bytes, bytes that were requested, state."""

def memory_snapshot(
    device: int = -1,
) -> tuple[list[tuple[int, bool, bool, list[_Chunk]]], list[tuple[str, int, int, int, int, str]]]:
    """Runs of mapped memory (stream, small pool, expandable, chunks), and steps.

    A step: action, address (of `oom`: the device's free bytes), bytes, stream, virtual nanoseconds, label.
    """

def capacity(device: int = -1) -> int:
    """A device's memory in bytes."""

def bytes_in_use(device: int = -1) -> int:
    """Bytes of blocks that are alive, or freed and still waiting for a recorded stream."""

def reuse_intervals(device: int = -1) -> list[int]:
    """Kernels launched between giving a block away and its return to the pool, of each block since the last reset."""

def host_ns(device: int = -1) -> int:
    """The virtual clock of a device's host."""

def stream_ns(stream: int) -> int:
    """The virtual time at which a stream ends what it holds."""

def own_stream(device: int, index: int) -> int:
    """The id of a device's stream that no program is given, the same each time."""

def comm_issue(stream: int, reads: list[Tensor], writes: list[Tensor], op: str) -> int:
    """A member issues its part of a collective on a stream of its device, and learns when it can start at the earliest.

    The host pays a launch. The part happens after what the stream was told to wait for; it touches these tensors, which
    the caller keeps alive until it is finished. Parts of a stream are finished in the order of their issue.
    """

def comm_finish(
    streams: list[int], op: str, start_ns: int, end_ns: int, bytes: int, moves: list[tuple[int, Tensor, Tensor]]
) -> list[CommEnd]:
    """All members' parts, the oldest of each of these streams, ran from start to end, each with so many bytes.

    What comes after one member's part comes after what came before any member's. `moves`: the place of a member in
    `streams`, a tensor of its device, and a CPU tensor with the numbers that it gets, which are copied now. They arrive
    there late: when something that happens after the member's part is about to run, so that a program that does
    not wait reads what was there before, on every device. Returns each member's end.
    """

def reserve_links(lanes: list[int], earliest_ns: int, duration_ns: int) -> int:
    """The start of a group's operation on these lanes: the first gap in which all of them are free at once."""

class CommEnd:
    """The end of a member's part."""

    def wait_on_stream(self, stream: int) -> None:
        """What the stream is given from now on runs after it."""

    def wait_on_host(self) -> None:
        """The host of the current device goes on after it."""

def set_comm_waiter(waiter: Callable[[int], None] | None) -> None:
    """Sets what is called, with a device, on a thread that is about to sleep until parts on it are finished."""

def host_jump(ns: int, device: int) -> None:
    """A device's host goes on at that time, if it is not further."""

def stream_wait_stream(waiter: int, waited: int) -> None:
    """As an event recorded on the one stream and waited for by the other; of any devices."""

def alias(tensor: Tensor) -> Tensor | None:
    """A CPU tensor over the bytes of a tensor of sim, as it was issued up to now.

    Where there are shapes only: a copy of its numbers where they are known (small integers from the host), else None.
    """

def host_worker(device: int = -1) -> int:
    """The stream for which a device's host worker stands in waits, events and traces; no kernel may run on it."""

def host_access(device: int, reads: list[Tensor], writes: list[Tensor], name: str) -> None:
    """The launching thread reads and writes these tensors of the host now; raises at a race on page-locked bytes."""

def host_task(device: int, duration_ns: int, reads: list[Tensor], writes: list[Tensor], name: str) -> None:
    """A task for the host's worker, after what its stream was made to wait for; raises at a race of its accesses."""

def watch_host(on: bool) -> None:
    """Whether operators on tensors of the host alone are its accesses, on all threads; calls are counted.

    Races are kept until the next check, as `raise_races` is one.
    """

def exchange_working(device: int | None) -> int | None:
    """The device whose worker does this thread's operators on the host, which are then watched; returns the one before.

    None: the launching thread does them.
    """

def raise_races(device: int) -> None:
    """In mode raise, raises a device's oldest race that was not raised yet."""

def set_races(mode: str) -> None:
    """`raise`, `record` or `off`."""

def races() -> list[tuple[_Access, _Access, str, str]]:
    """Earlier access, later access, the block, the sentence."""

def set_tracing(on: bool) -> None:
    """Whether every kernel and copy leaves a record."""

def trace() -> list[tuple[int, str, str, str, int, int, int, int]]:
    """Stream, operator, label, kind, start and end in nanoseconds, bytes, device; by device in the order of issue."""

def counters(device: int = -1) -> dict[str, int]:
    """A device's kernels, fallbacks, bytes over links by direction, event queries; pinned bytes now and at most."""

def waits_in_callback() -> int:
    """Of this process: waits for the device, and page-locking, inside the callback of `set_relief_callback`."""

def set_shape_mode(on: bool, item_value: float) -> None:
    """Whether tensors have shapes only, and the number that the program then reads of any tensor."""

def shapes_only() -> bool:
    """Whether tensors have shapes only."""

def set_temporaries(rules: dict[str, tuple[list[tuple[int | None, int, int]], list[tuple[list[int], int]]]]) -> None:
    """What kernels take while they run, for shapes only: by signature, terms, and sizes with the bytes measured there.

    A term (place of a size, factor, divisor) is size · factor / divisor in whole blocks, without a place factor /
    divisor; the terms are added up where a call has none of the sizes that were measured, unless they are constants:
    then it is taken to need what was measured of the nearest sizes.
    """

def temporaries_of(signature: str, sizes: list[int], product: tuple[int, int, int, bool] | None = None) -> int | None:
    """What the rules say of one call, which counts as no run: its sizes in bytes (arguments, then results).

    Of a matrix product also rows, inner and columns, and whether the left operand lies column by column. None where no
    rule knows it.
    """

def unmeasured_temporaries() -> dict[str, int]:
    """Calls since the last reset of which the rules know nothing, by signature."""

def estimated_temporaries() -> dict[str, int]:
    """Calls since the last reset of other sizes than were measured, where the rule is not exact, by signature."""

def measure_temporaries(on: bool) -> None:
    """Whether every kernel with real bytes leaves what it took beside its results."""

def take_measured_temporaries() -> list[tuple[str, list[int], int]]:
    """What kernels left since the last call: signature, sizes in bytes (arguments, then results), bytes taken."""

def follow_sequence() -> None:
    """Numbers this thread's next autograd node after those of all threads that have used the device."""

def exchange_label(label: str) -> str:
    """Sets the thread's label and returns the one before."""
