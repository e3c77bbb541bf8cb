"""The simulated accelerator, built from csrc/sim; `runtime.device` is its face for everyone else."""

from typing import Any

torch_version: str
"""The torch that this extension was built for."""

handover_observer: object
"""What `runtime._C.set_handover_observer` takes: the swap engine tells it of every storage that leaves the device."""

launch_meter: object
"""What `runtime._C.set_launch_meter` takes: the profiler asks it what launching cost since it asked last."""

host_registrar: object
"""What `runtime._C.set_host_registrar` takes: the swap engine page-locks memory of its own by it."""

_Access = tuple[str, bool, int, int, int, int, str]
"""Operator, whether it writes, stream, its number in the stream, first byte, end byte, label."""

def register_device(undeclared: list[tuple[str, list[str], str | None]]) -> int:
    """Makes device `sim` known to PyTorch, once per process; returns the number of operators behind the fallback.

    `undeclared` names operators that write arguments in spite of their schema, these arguments, and the argument that
    must be true for that, if any.
    """

def configure(numbers: dict[str, Any]) -> None:
    """Sets the modelled hardware: rates, launch, query and latency times in nanoseconds, noise, seed."""

def reset() -> None:
    """Waits for everything, then zeroes clocks, counters, races, traces and statistics."""

def set_pinned_rounding(power_of_two: bool) -> None:
    """Whether page-locked memory comes in blocks of powers of two that are kept when freed, as PyTorch's on CUDA."""

def set_capacity(bytes: int) -> None:
    """Sets the device's memory; below what is in use, nothing more fits until enough is freed."""

def set_pressure_handler(handler: object | None) -> None:
    """Who is asked for help when a request does not fit; None asks nobody.

    A capsule `bayplan.pressure` of `bool (*)(size_t bytes, size_t missing, unsigned attempt)`, true if it freed
    something. It is called on the allocating thread without the machine's lock, in the middle of kernels too. Attempt 0
    comes before the host waits for anything, 1, 2, … after that, until the request fits or the answer is no.
    """

def set_relief_callback(callback: object | None) -> None:
    """Who is asked for help in mode caching; None asks nobody.

    A capsule `bayplan.relief` of `bool (*)()`, true if it freed something. It is called once for a request that no
    cached chunk fits, before it is known whether the device is full, with the machine's lock held, as CUDA's
    allocator holds its own.
    """

def set_allocator(numbers: dict[str, Any] | None) -> None:
    """Mode caching with these options, None: mode exact. Waits for the device and gives all free memory back."""

def caching() -> bool:
    """Whether requests are served from segments."""

def set_limit(bytes: int | None) -> None:
    """The most that segments may take in mode caching, as CUDA's memory fraction; None: the capacity alone counts."""

def limit() -> int | None: ...
def stitches() -> tuple[int, int, int]:
    """How often, of how many parts, and how many bytes."""

def record_memory(most: int) -> None:
    """Keeps the allocator's last steps, from none on."""

_Chunk = tuple[int, int, int, str]
"""Address, bytes, bytes that were requested, state."""

def memory_snapshot() -> tuple[list[tuple[int, bool, bool, list[_Chunk]]], list[tuple[str, int, int, int, int, str]]]:
    """Runs of mapped memory (stream, small pool, expandable, chunks), and steps.

    A step: action, address (of `oom`: the device's free bytes), bytes, stream, virtual nanoseconds, label.
    """

def capacity() -> int:
    """The device's memory in bytes."""

def bytes_in_use() -> int:
    """Bytes of blocks that are alive, or freed and still waiting for a recorded stream."""

def reuse_intervals() -> list[int]:
    """Kernels launched between giving a block away and its return to the pool, of each block since the last reset."""

def host_ns() -> int:
    """The host's virtual clock."""

def stream_ns(stream: int) -> int:
    """The virtual time at which a stream ends what it holds; 0 is the default stream."""

def set_races(mode: str) -> None:
    """`raise`, `record` or `off`."""

def races() -> list[tuple[_Access, _Access, str, str]]:
    """Earlier access, later access, the block, the sentence."""

def set_tracing(on: bool) -> None:
    """Whether every kernel and copy leaves a record."""

def trace() -> list[tuple[int, str, str, str, int, int, int]]:
    """Stream, operator, label, kind, start and end in nanoseconds, bytes."""

def counters() -> dict[str, int]:
    """Kernels, fallbacks, bytes over the link by direction, event queries, pinned bytes now and at most."""

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
