"""Random programs on three streams that make, use and free tensors in little memory, with every wait they need."""

from dataclasses import dataclass, field

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import SimDevice, memory_stats, use_sim
from tests.csrc.sim.conftest import ROUND

STREAMS = 3
SIZE = 1 << 12
POOL: list[torch.Stream] = []


@dataclass
class Held:
    """A live tensor, what it must contain, its stream, and the events of all its uses by others."""

    tensor: torch.Tensor
    value: int
    owner: int
    made: torch.Event
    uses: dict[int, torch.Event] = field(default_factory=dict)


def event_on(stream: torch.Stream) -> torch.Event:
    event = torch.Event(device="sim")
    event.record(stream)
    return event


class Program:
    """Executes steps, adding the waits and `record_stream` calls that the rules ask for."""

    def __init__(self) -> None:
        if not POOL:
            POOL.extend(torch.Stream(device="sim") for _ in range(STREAMS - 1))
        self.streams = [torch.accelerator.current_stream(), *POOL]
        self.held: list[Held] = []
        self.hosts: list[tuple[torch.Tensor, int]] = []

    def make(self, stream: int, value: int) -> None:
        with self.streams[stream]:
            tensor = torch.full((SIZE,), value, dtype=torch.uint8, device="sim")
        self.held.append(Held(tensor, value, stream, event_on(self.streams[stream])))

    def use(self, stream: int, which: int, download: bool) -> None:
        if not self.held:
            return
        source = self.held[which % len(self.held)]
        self.streams[stream].wait_event(source.made)
        with self.streams[stream]:
            if download:
                host = torch.zeros(SIZE, dtype=torch.uint8).pin_memory()
                host.copy_(source.tensor, non_blocking=True)
                self.hosts.append((host, source.value))
            else:
                result = (source.tensor + 1) % 100
        done = event_on(self.streams[stream])
        source.uses[stream] = done
        if not download:
            self.held.append(Held(result, (source.value + 1) % 100, stream, done))

    def free(self, which: int, record: bool) -> None:
        if not self.held:
            return
        gone = self.held.pop(which % len(self.held))
        for stream, event in gone.uses.items():
            if record:
                gone.tensor.record_stream(self.streams[stream])
            else:
                self.streams[gone.owner].wait_event(event)


def play(steps: list[tuple[object, ...]], sim: SimDevice) -> None:
    """Run a program; being out of memory makes it drop everything. No race, and every byte right, on either side."""
    program = Program()
    for name, *arguments in steps:
        try:
            getattr(program, str(name))(*arguments)
        except torch.OutOfMemoryError:
            torch.accelerator.synchronize()
            program.held.clear()
    torch.accelerator.synchronize()
    assert [race.sentence for race in sim.races()] == []
    assert all(host.eq(value).all() for host, value in program.hosts)
    assert all(held.tensor.cpu().eq(held.value).all() for held in program.held)


MAKE = st.tuples(st.just("make"), st.integers(0, STREAMS - 1), st.integers(0, 99))
USE = st.tuples(st.just("use"), st.integers(0, STREAMS - 1), st.integers(0, 20), st.booleans())
FREE = st.tuples(st.just("free"), st.integers(0, 20), st.booleans())


@settings(max_examples=150)
@given(st.lists(st.one_of(MAKE, USE, FREE), min_size=3, max_size=30), st.integers(6, 40))
def test_a_program_that_waits_is_clean_and_right_in_any_memory(steps: list[tuple[object, ...]], blocks: int) -> None:
    """Out of memory is allowed, a race or a wrong byte never: freed blocks are used again all the time."""
    sim = use_sim(ROUND, races="record")
    sim.set_capacity(memory_stats(sim.device).reserved_bytes + blocks * SIZE)
    play(steps, sim)
