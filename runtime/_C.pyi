"""The device-neutral native part: the online profiler and the swap engine."""

from collections.abc import Callable, Sequence

import torch

torch_version: str

# csrc/profiler

def operator_names() -> list[str]:
    """Names of all operators seen so far in this process; the index is the operator's id."""

def start_light(capacity: int, inputs: bool = False) -> None:
    """Start recording operator ids on this thread and the autograd threads that work for it.

    With `inputs`, jagged tensors are told, and the operators inside counted, as all other observers do.
    """

def stop_light() -> list[int]:
    """End the light recording; the operators' ids in order."""

def set_launch_meter(meter: object | None) -> None:
    """Let the simulated device tell what launching costs: a capsule `bayplan.launches` of `void (*)(int64_t[8])`.

    It writes the numbers of `MemoryLog.launches` for all that ran on the current stream since it was asked last.
    """

class OperatorRecord:
    """One counted operator; lists are storage numbers in flattened argument order."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def communicates(self) -> bool: ...
    @property
    def has_flops(self) -> bool: ...
    @property
    def range(self) -> str:
        """`outside`, `backward` or `optimizer`."""
    @property
    def accumulation(self) -> bool: ...
    @property
    def thread(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def flops(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def live_start_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def live_end_bytes(self) -> int: ...
    @property
    def allocated_peak_bytes(self) -> int:
        """As `peak_bytes`, but what was really on the device."""
    @property
    def displaced_bytes(self) -> int:
        """What swapping kept off the device at the operator's end."""
    @property
    def inputs(self) -> list[int]: ...
    @property
    def outputs(self) -> list[int]: ...
    @property
    def launch(self) -> tuple[int, int, int, bool] | None:
        """What launching it costs, in nanoseconds, where the device tells (`set_launch_meter`).

        The device's own time, the host being far ahead; the host's until all is issued, and that to the operator's end,
        both with an idle device; whether the host waited for the device.
        """
    @property
    def written(self) -> list[int]: ...

class StorageRecord:
    """One storage; `born` is the operator that created it, None if it was alive before the recording."""

    @property
    def bytes(self) -> int: ...
    @property
    def born(self) -> int | None: ...
    @property
    def inner(self) -> int | None:
        """Its place among the storages that operators inside `born` returned, where `born` itself did not."""
    @property
    def request(self) -> int | None:
        """Which of the recorder's requests took the block that it was first seen on; None if an older one."""
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def gradient(self) -> bool: ...
    @property
    def leaf(self) -> bool: ...

class DetailedRecorder:
    """Records every counted operator of one step; one recording at a time of a device.

    Memory is that of a step without swapping. Not `timed`, it takes neither times nor arithmetic, and `elapsed_ns`
    holds only the step's.
    """

    def __init__(self, device: torch.device, timed: bool = True) -> None: ...
    def start(self, resident: Sequence[torch.Tensor]) -> None: ...
    def stop(self) -> None: ...
    def operators(self) -> list[OperatorRecord]: ...
    def storages(self) -> list[StorageRecord]: ...
    def living(self) -> list[int]: ...
    def storage_number(self, address: int) -> int | None: ...
    def requests(self) -> list[tuple[int, int, int, int]]:
        """The allocator's reports in order: address, bytes (negative: given back), operator, stream.

        Between two operators −1 − n stands for one, n being how many had begun.
        """
    def elapsed_ns(self) -> list[int]: ...
    def host_elapsed_ns(self) -> list[int]:
        """The host's own clock at the same moments, without what the recorder took of it."""
    @property
    def failure(self) -> str: ...
    @property
    def saw_compiled_code(self) -> bool: ...

# csrc/storage, follow, step, session

class HostMemoryShort(MemoryError):
    """The host has no room for a storage that should leave."""

class SwapActionKind:
    """What an action of a schedule, or an event of a policy, does to storages."""

    RELEASE: SwapActionKind
    SWAP_IN: SwapActionKind
    SWAP_OUT: SwapActionKind

class SwapWait:
    """A wait for the end of an action; `frontier`: for all that the compute lane holds now."""

    def __init__(self, action: int, frontier: bool) -> None: ...

class SwapAction:
    """An action; `id` and the waits are indices in the schedule, `awaited` says that it records an event."""

    def __init__(
        self, kind: SwapActionKind, id: int, slots: Sequence[int], waits: Sequence[SwapWait], awaited: bool
    ) -> None: ...

class SwapLocator:
    """The storage of a slot is that of this tensor among the operator's arguments, or results."""

    def __init__(self, position: int, slot: int) -> None: ...

class SwapSlot:
    """A tensor that the plan moves; the label is for messages."""

    def __init__(self, label: str, bytes: int) -> None: ...

class SwapRow:
    """An operator, with what stands before it and what follows it."""

    def __init__(
        self,
        name: str,
        id: int,
        awaited: bool,
        arguments: Sequence[SwapLocator],
        results: Sequence[SwapLocator],
        inner: Sequence[SwapLocator],
        returns: bool,
        sizes: Sequence[tuple[int, int]],
        before: Sequence[SwapAction],
        waits: Sequence[SwapWait],
        arrivals: Sequence[int],
        after: Sequence[SwapAction],
    ) -> None: ...

class SwapProgram:
    """A swap schedule as a table; `actions` is the number of the schedule's actions."""

    def __init__(self, rows: Sequence[SwapRow], slots: Sequence[SwapSlot], actions: int) -> None: ...

class SwapCounts:
    """What happened to storages."""

    @property
    def swapped_out(self) -> int: ...
    @property
    def swapped_in(self) -> int: ...
    @property
    def fetched(self) -> int: ...
    @property
    def cancelled(self) -> int: ...
    @property
    def early(self) -> int: ...
    @property
    def died(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...

class SwapOutcome:
    """How a step agreed with its table."""

    @property
    def operators(self) -> int: ...
    @property
    def followed(self) -> int: ...
    @property
    def departure(self) -> str | None: ...
    @property
    def failed(self) -> bool:
        """Whether the departure is an error of the engine's own, which `raise_error` raises."""
    @property
    def difference(self) -> str | None: ...
    @property
    def refused(self) -> int: ...
    @property
    def postponed(self) -> int: ...
    @property
    def left_out(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def host_peak_bytes(self) -> int: ...
    @property
    def counts(self) -> SwapCounts: ...

class SwapStep:
    """Executes a table on the operators that run between `begin` and `end`; one step at a time in a process."""

    def __init__(self, program: SwapProgram, device: torch.device, traced: bool) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> SwapOutcome: ...
    def failed(self) -> bool: ...
    def raise_error(self) -> None: ...
    def makespan_us(self) -> float: ...
    def spans(self) -> list[tuple[int, float, float]]: ...
    def stalls(self) -> list[tuple[int, float, float]]: ...
    def memory(self) -> list[tuple[float, int, int]]: ...

class SwapTarget:
    """A tensor that leaves when it is sighted so; `op` and `position` are for matching by index.

    Only where the forward pass has worked on `least_pass_bytes` by then. `since` counts lookalikes from a landmark.
    Before operator `latest_op` it waits for the host's reads (`SwapPace`). One with the address of its `storage` leaves
    at an event instead.
    """

    def __init__(
        self,
        label: str,
        bytes: int,
        key: int,
        ordinal: int,
        op: int,
        position: int,
        result: bool = False,
        least_pass_bytes: int = 0,
        landmark: int = 0,
        since: int = 0,
        latest_op: int = 0,
        storage: int = 0,
    ) -> None: ...

class SwapEvent:
    """What happens before the operator with this anchor: phase, id, how many like it came before; `op` by index.

    Or before the one that comes `since` operators after a landmark.
    """

    def __init__(
        self,
        phase: int,
        operator: int,
        ordinal: int,
        op: int,
        kind: SwapActionKind,
        targets: Sequence[int],
        landmark: int = 0,
        since: int = 0,
    ) -> None: ...

class SwapLandmark:
    """The first use of a storage (its address; 0: any, or none) in operators of that phase and turn: operator `op`."""

    def __init__(self, storage: int, phase: int, turn: int, op: int = 0) -> None: ...

class SwapPace:
    """At which operators the host reads from the device, and how many operators' time a copy takes: so many for each
    byte, and the latency.
    """

    def __init__(self, reads: Sequence[int], latency: float, per_byte: float) -> None: ...

class SwapPolicy:
    """What a session does; `arrivals` (target, operator of its next use) serve only without the guard.

    `on_demand`: blocks are released once memory is asked for, not when the policy says. `landmarks` in their order, by
    which places are told instead of by counts from the iteration's begin.
    """

    def __init__(
        self,
        targets: Sequence[SwapTarget],
        events: Sequence[SwapEvent],
        arrivals: Sequence[tuple[int, int]],
        on_demand: bool = False,
        landmarks: Sequence[SwapLandmark] = (),
        pace: SwapPace = ...,
    ) -> None: ...

class SwapSessionCounts:
    """What happened in one iteration of a session."""

    @property
    def matched(self) -> int:
        """Targets that were sighted."""
    @property
    def refused(self) -> int:
        """Of these, those that could not leave."""
    @property
    def spared(self) -> int:
        """Of these, those that the policy needs in larger iterations only."""
    @property
    def in_time(self) -> int:
        """Used when their planned swap-in was under way or done."""
    @property
    def postponed(self) -> int:
        """Planned swap-ins that found no memory."""
    @property
    def missed_events(self) -> int:
        """Targets that were not where an event supposes them."""
    @property
    def passive(self) -> int:
        """Storages swapped out because memory was short."""
    @property
    def passive_bytes(self) -> int: ...
    @property
    def moved(self) -> int:
        """Blocks put elsewhere in the arena, so that what is free lies together."""
    @property
    def moved_bytes(self) -> int: ...
    @property
    def again(self) -> int:
        """Times that an operator ran once more, as it had run out of memory."""
    @property
    def relieved(self) -> int:
        """Blocks released because memory was short."""
    @property
    def kept(self) -> int:
        """Planned swap-ins of what had not been released, as nobody needed its memory."""
    @property
    def recalled(self) -> int:
        """Planned swap-ins undone because memory was short."""
    @property
    def failed(self) -> int:
        """Requests that nothing could relieve."""
    @property
    def retries(self) -> int:
        """Requests for which the allocator gave its cache back to the driver."""
    @property
    def swapped_out(self) -> int: ...
    @property
    def swapped_in(self) -> int: ...
    @property
    def fetched(self) -> int:
        """Brought back on demand."""
    @property
    def cancelled(self) -> int:
        """Wanted while still leaving."""
    @property
    def died(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...

class SwapSighting:
    """A storage at an operator, as a later iteration can find it again; `storage` is the StorageImpl's address.

    `pass_bytes` are those that the forward pass had worked on by then, counted since the latest backward pass.
    """

    @property
    def op(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def storage(self) -> int: ...
    @property
    def key(self) -> int: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def result(self) -> bool: ...
    @property
    def pass_bytes(self) -> int: ...

class SwapIteration:
    """One iteration: operator ids and the phase of each (0 forward, 1 without gradients, 2 backward, 3 optimizer)."""

    @property
    def operators(self) -> list[int]: ...
    @property
    def phases(self) -> bytes: ...
    @property
    def sightings(self) -> list[SwapSighting]: ...
    @property
    def reads(self) -> list[int]:
        """Operators at which the host waited for what it reads from the device, where sightings are listed."""
    @property
    def counts(self) -> SwapSessionCounts: ...
    @property
    def unmatched(self) -> int: ...
    @property
    def peak_bytes(self) -> int:
        """On the device, since the session started."""
    @property
    def reserved_peak_bytes(self) -> int:
        """The allocator's, what it caches included."""
    @property
    def host_peak_bytes(self) -> int: ...
    @property
    def backward(self) -> bool: ...
    @property
    def forward_bytes(self) -> int:
        """Bytes of what each operator of the forward pass uses, summed; what is older than the session excepted."""
    def duration_us(self) -> float:
        """Device time from its begin to its end, for which the host waits."""
    @property
    def clock(self) -> SwapClock: ...

class SwapClock:
    """When an iteration began and ended on the device, and where its time went if that was measured."""

    @property
    def done(self) -> bool:
        """Whether the device has come to its end."""
    @property
    def measured(self) -> bool: ...
    def duration_us(self) -> float:
        """Device time from its begin to its end, for which the host waits."""
    def without_swapping_us(self) -> float:
        """Device time that it would have taken without swapping, replayed; the host waits for the iteration's end."""

class SwapSegments:
    """How the allocator takes memory: by exact bytes, in segments, or in pages of ranges that grow."""

    NONE: SwapSegments
    FIXED: SwapSegments
    EXPANDABLE: SwapSegments

class SwapMatching:
    """How tensors and operators of a policy are found."""

    FEATURES: SwapMatching
    INDEX: SwapMatching

class SwapRecordStream:
    """When the block of a storage that leaves is used again."""

    CUSTOM: SwapRecordStream
    PRINTED: SwapRecordStream
    TORCH: SwapRecordStream

class SwapSession:
    """Follows a training loop: swaps by the policy, brings back on demand, answers when memory is short."""

    def __init__(
        self,
        device: torch.device,
        least_bytes: int = 4096,
        matching: SwapMatching = ...,
        guard: bool = True,
        record_stream: SwapRecordStream = ...,
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> tuple[int, int]:
        """Bring everything back and end: bytes and number of storages that the device had no memory for."""
    @property
    def active(self) -> bool: ...
    def add_resident(self, tensors: Sequence[torch.Tensor]) -> None: ...
    def end_iteration(self) -> SwapIteration: ...
    def record_sightings(self, on: bool) -> None: ...
    def set_policy(self, policy: SwapPolicy | None) -> None: ...
    def set_ranks(self, by_frequency: Sequence[int]) -> None: ...
    def set_optimizer(self, runs: bool) -> None:
        """Whether the calling thread runs an optimizer's step."""
    def set_segments(self, segments: SwapSegments, cuts: bool = True) -> None:
        """How the allocator takes memory from the driver, and whether it cuts a segment for blocks of any size."""
    def set_more(self, more: Callable[[], None]) -> None:
        """Called where an operator ran out of memory and may run again: it may set another budget."""
    def renew_arena(self) -> None:
        """Before the next operator the arena is looked at, and made anew if it is worth it."""
    @property
    def pool_bytes(self) -> int:
        """What the allocator has for requests above 1 MiB where there is an arena, else 0."""
    @property
    def small_peak_bytes(self) -> int:
        """The most that it has held for other requests."""
    @property
    def only_small(self) -> bool:
        """Whether there were no others in the iteration before it was last looked for an arena."""
    @property
    def least_bytes(self) -> int:
        """What the allocator would have to hold for the latest request that nothing could be freed for, at least."""
    def latest_request(self) -> str:
        """The latest request that the allocator had no block for: who asked, what was expected, and what was free."""
    def least_bytes_for(self, bytes: int) -> int:
        """The same where that request is known to be of so many bytes."""
    def set_budget(self, bytes: int | None) -> None: ...
    def come_down(self) -> tuple[int, int, int]:
        """Swap out what is above the budget: bytes in use before, after, and how many storages left."""
    def measure_swapping(self) -> None:
        """Mark operators and the engine's own work until the iteration ends."""
    def set_watching(self, on: bool) -> None: ...
    @property
    def backward_seen(self) -> bool: ...
    @property
    def owns_thread(self) -> bool:
        """Whether the calling thread is the one that trains, or one of autograd's that works for it."""

    @property
    def tracked(self) -> int: ...
    def raise_error(self) -> None: ...

class SwapHostStats:
    """The page-locked memory of the swap engine, in use and idle.

    `unserved` counts looks for a block that only waiting could have given, where an allocator waited for the answer;
    `fallback` says why PyTorch's host allocator, which rounds up to powers of two, was asked; empty: it was not.
    """

    @property
    def held_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def peak_held_bytes(self) -> int: ...
    @property
    def peak_used_bytes(self) -> int: ...
    @property
    def allocations(self) -> int: ...
    @property
    def reuses(self) -> int: ...
    @property
    def unserved(self) -> int: ...
    @property
    def fallback(self) -> str: ...

def ensure_in(tensor: torch.Tensor) -> None: ...
def ensure_in_storage(storage: int) -> None:
    """Bring back the storage at this address, `untyped_storage()._cdata`."""

def hold_storage(storage: int, for_life: bool) -> None:
    """Let a storage stay until the active session's iteration ends, or for its life: somebody knows its address."""

def swap_out(tensor: torch.Tensor) -> None: ...
def copy_lanes(device: torch.device) -> tuple[torch.Stream, torch.Stream]:
    """The streams on which storages come in and go out, of a device, for the whole process."""

def begin_swap_out(tensor: torch.Tensor) -> None:
    """Queue the copy of its storage to the host, on the lane that the caller has ordered; its block stays for now."""

def give_block_back(tensor: torch.Tensor) -> None:
    """Its storage is leaving: the block goes back to its pool, behind the copy; nothing where it has come back."""

def begin_swap_in(tensors: Sequence[torch.Tensor]) -> int:
    """Take blocks for storages that are away, and queue the copies into them; how many. Raises `OutOfMemoryError`."""

def arrive(tensor: torch.Tensor) -> None:
    """Its storage is there for what is queued next on the current stream, wherever it was."""

def why_it_stays(tensor: torch.Tensor) -> str | None:
    """Why its storage cannot leave, or None."""

def is_out(tensor: torch.Tensor) -> bool: ...
def swapped_out_storages() -> int: ...
def hold_storages(tensors: Sequence[torch.Tensor]) -> None:
    """Bring back the tensors on devices and let them stay until they are let go: an operation knows their addresses."""

def let_go_of_storages(tensors: Sequence[torch.Tensor]) -> None:
    """They may leave again, once they were let go as often as they were held."""

def set_host_limit(bytes: int | None, device: torch.device | None = None) -> None:
    """What a device may page-lock; without one, each of them."""

def host_stats(device: torch.device | None = None) -> SwapHostStats:
    """Of a device, or sums over all: then peaks need not have been at one time."""

def trim_host(device: torch.device | None = None) -> None: ...
def reset_host_peak(device: torch.device | None = None) -> None:
    """The most that is held counts from what is held now, as it does when a session begins."""

def reserve_host(bytes: int, device: torch.device) -> None:
    """Page-lock one arena of so many bytes, unless one is free already; within the limit, as much as it allows."""

def arena_bytes(requests: list[tuple[bool, int]]) -> int:
    """The arena that serves them one after the other: (True, bytes) takes, (False, n) gives back the n-th taken."""

def host_is_exact(device: torch.device) -> bool:
    """Whether the device's tensors take their bytes of the host; else the next power of two."""

def set_host_arenas(on: bool) -> None:
    """Whether there are arenas; else all memory is PyTorch's host allocator's, for comparison."""

def set_host_registrar(registrar: object | None) -> None:
    """Connect who page-locks memory for the foreign accelerator: a capsule `bayplan.registrar`."""

def events_made() -> int:
    """How many events were ever made in this process; those that are recorded again are not."""

def set_handover_observer(observer: object | None) -> None:
    """Connect a race checker: a capsule `bayplan.handover` of `void (*)(const void*, size_t, int64_t stream)`."""

def hold_swap_guard(hold: bool) -> None: ...
def hold_idle_observer(hold: bool) -> None:
    """Whether PyTorch calls an observer that is given every argument and does nothing: what one costs by itself."""

def swap_guard_is_on() -> bool: ...
def swap_guard_has_results() -> bool: ...
def pressure_handler() -> object:
    """A capsule `bayplan.pressure` of `bool (*)(size_t bytes, size_t missing, unsigned attempt)` for an allocator."""

def relief_callback() -> object:
    """A capsule `bayplan.relief` of `bool (*)()` for an allocator that asks once and does not say what it lacks."""

def answer_under_lock() -> bool:
    """What CUDA's allocator asks with its lock held: free what lacks without waiting for threads or page-locking."""

def relief_counts() -> dict[str, int]:
    """Of this process: requests answered under_lock, of these refused; of those, for lack of page-locked memory:
    unlocked; waits for threads; times caught_up.

    What must stay 0: waits of any kind under_lock, and waits for other threads of one that held the store.
    """

def hold_unobserved(hold: bool) -> None:
    """Let no observer see the calling thread's operators: they are no program's, but what a device would do itself."""

def hold_without_waits(hold: bool) -> None:
    """Let every wait of the calling thread count as one under an allocator's lock, for tests."""

def listen_to_cuda() -> bool:
    """Have CUDA's allocator ask when memory is short; False where this process has no CUDA."""

class TapeNode:
    """An operator of a tape: it made or wrote a storage."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> list[int]: ...
    @property
    def reads(self) -> list[tuple[int, int]]: ...
    @property
    def made(self) -> list[tuple[int, bool]]: ...
    @property
    def writes_over(self) -> int | None: ...
    @property
    def communicates(self) -> bool: ...
    @property
    def group(self) -> object: ...
    @property
    def random(self) -> bool: ...
    @property
    def why_stored(self) -> str | None: ...
    @property
    def stored(self) -> bool: ...
    @property
    def saved(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    @property
    def saved_bytes(self) -> int: ...
    @property
    def present(self) -> bool: ...
    @property
    def needed(self) -> bool: ...
    @property
    def time_us(self) -> float: ...
    @property
    def arguments(self) -> list[tuple[int, bool]]: ...
    @property
    def results(self) -> list[tuple[int, int]]: ...

class MemoryLog:
    """What a device's memory did while tapes that were told so recorded and replayed.

    `events`: the tape by number (-1: none), what happened, its index, the most bytes since the event before, and now.
    `follow`: also tell when a tensor's storage is read by others, or gone; `index` is below 0, as it is no value's.
    `launches`: by event, what launching has cost since the one before, as in `OperatorRecord.launch` (0 where the event
    does not ask; what the host waited for as bits: an operator 1, the stream 2, the device 4), what copies took for
    which it did, and what those did for which nobody has, what ran on other streams, and the stream; and last what it
    has since, as of the first call; None where the device does not tell.
    `requests`: by event, how many blocks the allocator had given and taken back by then. `places`: of each storage that
    was followed the tape, the index, its address, and the event before which it was there. From
    `stop` on nothing is told, though tapes live on.
    """

    def __init__(self, device: torch.device) -> None: ...
    def stop(self) -> None: ...
    def mark(self, name: int) -> None: ...
    def follow(self, tape: int, index: int, tensor: torch.Tensor) -> None: ...
    @property
    def events(self) -> list[tuple[int, int, int, int, int]]: ...
    def launches(self) -> list[list[int]] | None: ...
    @property
    def requests(self) -> list[int]: ...
    @property
    def places(self) -> list[tuple[int, int, int, int]]: ...

class TapePolicy:
    """What of operators' results stays: by index, for those beyond, and for which operators it was made."""

    def __init__(
        self, store: Sequence[int], store_others: bool, names: Sequence[str], most_bytes: int | None
    ) -> None: ...

class Tape:
    """The operators of a region below autograd, and what of their results is there."""

    def __init__(self, device: torch.device, policy: TapePolicy, timed: bool) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nodes(self) -> list[TapeNode]: ...
    @property
    def finished(self) -> bool: ...
    def tell(self, log: MemoryLog) -> None: ...
    @property
    def value_bytes(self) -> list[int]: ...
    @property
    def again_us(self) -> list[tuple[int, float]]: ...
    def node_of(self, tensor: torch.Tensor) -> int | None: ...
    @property
    def diverged_at(self) -> int | None: ...
    @property
    def asked_bytes(self) -> int: ...
    @property
    def groups(self) -> list[str]: ...
    @property
    def present_bytes(self) -> int: ...
    @property
    def replayed_on_demand(self) -> int: ...
    @property
    def replayed_ahead(self) -> int: ...
    @property
    def left_out(self) -> int: ...
    @property
    def copies(self) -> int: ...
    def replay(self, nodes: Sequence[int], but: Sequence[tuple[int, int]] = ()) -> int: ...
    def drop(self, nodes: Sequence[int], but: Sequence[tuple[int, int]] = ()) -> None: ...
    def begin_retained(self) -> None: ...
    def end_retained(self) -> None: ...
    def pause_before(self, nodes: list[int], then: Callable[[int], None], gathers: bool) -> None: ...
    def held(self, node: int) -> list[torch.Tensor | None]: ...

class WeakBytes:
    """The storage of a tensor, which does not live longer for it."""

    def __init__(self, tensor: torch.Tensor) -> None: ...
    def bytes(self) -> torch.Tensor | None: ...

class PackedTensor:
    """What autograd holds in the place of a tensor that a tape knows.

    `where`: the node that made it, and its place in `TapeNode.made`; None where it is none of the region's.
    """

    @property
    def where(self) -> tuple[int, int] | None: ...

class Windows:
    """What the next windows of a device run: before the program waits for a collective."""

    def __init__(self, device: torch.device, timed: bool) -> None: ...
    def mark(self) -> int: ...
    def at_us(self, mark: int) -> float: ...
    @property
    def waits(self) -> list[tuple[int, int]]: ...
    def tell(self, log: MemoryLog) -> None: ...
    def watch(self) -> None: ...
    def stop(self) -> None: ...
    def plan(
        self, windows: list[list[tuple[Tape, list[int]]]], in_wait: Callable[[int], None] | None = None
    ) -> None: ...
    def pause_after(self, operators: int, then: Callable[[], None]) -> None: ...
    def end_pauses(self) -> None: ...
    def open(self) -> int: ...
    @property
    def opened(self) -> int: ...

def begin_wait(device: torch.device) -> bool: ...
def end_wait(device: torch.device) -> None: ...
def start_recording(tape: Tape, unpack: Callable[[object], torch.Tensor]) -> None: ...
def stop_recording() -> None: ...
def hold_idle_recorder(hold: bool) -> None: ...
def pack_hook(wrapped: Callable[[torch.Tensor], object]) -> Callable[[torch.Tensor], object]: ...
def unpack_hook(wrapped: Callable[[object], torch.Tensor]) -> Callable[[object], torch.Tensor]: ...
def set_python_hooks(pack: Callable[[torch.Tensor], object], unpack: Callable[[object], torch.Tensor]) -> None: ...
def note_write(tensor: torch.Tensor, name: str = "", group: str = "") -> None: ...
def set_secret_writer(name: str) -> None:
    """An operator, without overload, that writes arguments in spite of its schema: it never runs again."""

def is_repeatable(name: str, overload: str) -> bool:
    """Whether an operator can be done twice, by its schema and by what was told of secret writers."""

def run_again(on: bool) -> None:
    """Whether the calling thread's operators run again where they find no memory and a session makes place."""

def set_secret_writes(name: str, arguments: list[str], condition: str | None) -> None: ...
