"""Random programs on three streams: the check's verdict is that of a graph search, whatever waits are left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import use_sim
from tests.csrc.sim.conftest import ROUND

N = 64
BUFFERS, PINNED, STREAMS = 2, 1, 3
REGIONS = {"all": slice(0, N), "left": slice(0, N // 2), "right": slice(N // 2, N), "middle": slice(16, 48)}
REGIONS |= {"even": slice(0, N, 2), "odd": slice(1, N, 2)}


@dataclass(frozen=True)
class Step:
    """`add` changes a region on the device; `upload` and `download` copy it from and to the pinned block."""

    kind: str
    stream: int
    buffer: int
    region: str
    waits: frozenset[int]  # Earlier steps, counted back from this one.
    host_waits: bool  # The host then waits for this step.

    def touched(self) -> list[tuple[str, int, bool]]:
        """Memory, buffer, and whether it is written."""
        device = ("device", self.buffer)
        if self.kind == "add":
            return [(*device, True)]
        if self.kind == "sum":
            return [(*device, False)]
        upload = self.kind == "upload"
        return [(*device, upload), ("pinned", 0, not upload)]


def conflict(a: Step, b: Step) -> bool:
    """Whether they touch a common byte and one writes it."""
    common = set(range(N)[REGIONS[a.region]]) & set(range(N)[REGIONS[b.region]])
    return bool(common) and any(
        mine[:2] == theirs[:2] and (mine[2] or theirs[2]) for mine in a.touched() for theirs in b.touched()
    )


def before(steps: Sequence[Step], waited: Sequence[set[int]]) -> list[set[int]]:
    """For each step, all steps that happen before it: by stream order, waits, and what the host waited for."""
    known: list[set[int]] = []
    host: set[int] = set()
    for number, step in enumerate(steps):
        past = set(host)
        direct = {i for i in range(number) if steps[i].stream == step.stream} | waited[number]
        for i in direct:
            past |= known[i] | {i}
        known.append(past)
        if step.host_waits:
            host |= past | {number}
    return known


def waits_of(steps: Sequence[Step]) -> list[set[int]]:
    return [{number - back for back in step.waits if back <= number} for number, step in enumerate(steps)]


def complete(steps: Sequence[Step]) -> list[set[int]]:
    """Every wait that the program needs."""
    return [{i for i in range(number) if conflict(steps[i], step)} for number, step in enumerate(steps)]


class Memory:
    """The same buffers on a device."""

    def __init__(self, device: str) -> None:
        self.device = [torch.arange(N, dtype=torch.float32).to(device) for _ in range(BUFFERS)]
        self.pinned = torch.zeros(N).pin_memory() if device == "sim" else torch.zeros(N)

    def run(self, step: Step) -> None:
        part = self.device[step.buffer][REGIONS[step.region]]
        if step.kind == "add":
            part.mul_(2).add_(1)
        elif step.kind == "sum":
            part.sum()
        elif step.kind == "upload":
            part.copy_(self.pinned[REGIONS[step.region]], non_blocking=True)
        else:
            self.pinned[REGIONS[step.region]].copy_(part, non_blocking=True)


def run_on_sim(steps: Sequence[Step], waited: Sequence[set[int]]) -> Memory:
    memory = Memory("sim")
    torch.accelerator.synchronize()
    streams = [torch.accelerator.current_stream(), *POOL[: STREAMS - 1]]
    events: list[torch.Event] = []
    for number, step in enumerate(steps):
        for earlier in sorted(waited[number]):
            streams[step.stream].wait_event(events[earlier])
        with streams[step.stream]:
            memory.run(step)
            events.append(torch.Event(device="sim"))
            events[-1].record()
        if step.host_waits:
            events[-1].synchronize()
    torch.accelerator.synchronize()
    return memory


STEP = st.builds(
    Step,
    kind=st.sampled_from(["add", "sum", "upload", "download"]),
    stream=st.integers(0, STREAMS - 1),
    buffer=st.integers(0, BUFFERS - 1),
    region=st.sampled_from(sorted(REGIONS)),
    waits=st.frozensets(st.integers(1, 4), max_size=3),
    host_waits=st.sampled_from([False, False, False, True]),
)
PROGRAMS = st.lists(STEP, min_size=2, max_size=10)
POOL: list[torch.Stream] = []


def prepare() -> None:
    if not POOL:
        POOL.extend(torch.Stream(device="sim") for _ in range(STREAMS - 1))


@settings(max_examples=150)
@given(PROGRAMS)
def test_any_program_races_exactly_where_no_path_of_waits_leads(steps: list[Step]) -> None:
    sim = use_sim(ROUND, races="record")
    prepare()
    waited = waits_of(steps)
    past = before(steps, waited)
    pairs = [(i, j) for j in range(len(steps)) for i in range(j) if conflict(steps[i], steps[j]) and i not in past[j]]
    run_on_sim(steps, waited)
    assert bool(sim.races()) == bool(pairs)


@settings(max_examples=100)
@given(PROGRAMS)
def test_a_program_with_all_its_waits_is_clean_and_computes_what_one_stream_would(steps: list[Step]) -> None:
    sim = use_sim(ROUND, races="record")
    prepare()
    on_sim, on_cpu = run_on_sim(steps, complete(steps)), Memory("cpu")
    for step in steps:
        on_cpu.run(step)
    assert sim.races() == []
    assert torch.equal(on_sim.pinned, on_cpu.pinned)
    for mine, cpus in zip(on_sim.device, on_cpu.device, strict=True):
        assert torch.equal(mine.cpu(), cpus)


@settings(max_examples=100)
@given(PROGRAMS, st.data())
def test_dropping_a_wait_that_is_needed_is_always_caught(steps: list[Step], data: st.DataObject) -> None:
    full = complete(steps)
    needed = []
    for number, waits in enumerate(full):
        for wait in waits:
            dropped = [w - {wait} if at == number else w for at, w in enumerate(full)]
            if wait not in before(steps, dropped)[number]:
                needed.append(dropped)
    if not needed:
        return
    sim = use_sim(ROUND, races="record")
    prepare()
    run_on_sim(steps, data.draw(st.sampled_from(needed)))
    assert sim.races() != []
