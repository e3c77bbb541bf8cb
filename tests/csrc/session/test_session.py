"""The session's engine by itself: how tensors are recognised, what a policy does, and how short memory is answered."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import nn

from runtime.device import limited_memory
from runtime.device.native import core, load
from tests.accelerators import ON_EACH

FORWARD, WITHOUT_GRADIENTS, BACKWARD, OPTIMIZER = range(4)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def relief(device: torch.device) -> Iterator[None]:
    """The allocator asks the engine where memory is short."""
    if device.type != "sim":
        core.listen_to_cuda()
        yield
        return
    sim = load("runtime._sim")
    sim.set_pressure_handler(core.pressure_handler())
    yield
    sim.set_pressure_handler(None)


def names(iteration: core.SwapIteration) -> list[str]:
    known = core.operator_names()
    return [known[number] for number in iteration.operators]


class Loop:
    """A chain of layers, trained step by step; each step's loss on the CPU."""

    def __init__(self, device: torch.device, depth: int = 6, rows: int = 512) -> None:
        torch.manual_seed(0)
        layers = [
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Dropout(0.1)) for _ in range(depth)
        ]
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=False)
        self.data = torch.randn(rows, 64).to(device)

    def loss(self) -> torch.Tensor:
        found: torch.Tensor = self.model(self.data).square().mean()
        return found

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach().cpu()

    def validate(self) -> torch.Tensor:
        with torch.no_grad():
            return self.loss().cpu()


def sightings(engine: core.SwapSession, step: Callable[[], object]) -> core.SwapIteration:
    """One iteration in which every sighting is listed."""
    engine.end_iteration()
    engine.record_sightings(True)
    step()
    return engine.end_iteration()


def activations(found: core.SwapIteration, loop: Loop) -> list[core.SwapSighting]:
    """The last sighting in the forward pass of each storage that the backward pass uses, and that is not older."""
    last = {each.storage: each for each in found.sightings if found.phases[each.op] == FORWARD}
    later = {each.storage for each in found.sightings if found.phases[each.op] == BACKWARD}
    older = {each.untyped_storage()._cdata for each in (*loop.model.parameters(), loop.data)}
    return [each for storage, each in last.items() if storage in later - older]


def anchor(found: core.SwapIteration, op: int) -> tuple[int, int, int, int]:
    alike = [
        before for before in range(op) if (found.phases[before], found.operators[before])
        == (found.phases[op], found.operators[op])
    ]  # fmt: skip
    return found.phases[op], found.operators[op], len(alike), op


def policy_of(
    found: core.SwapIteration, chosen: list[core.SwapSighting], least_pass_bytes: Sequence[int] = ()
) -> core.SwapPolicy:
    """Each chosen tensor leaves, its block is free four operators before its next use, and it returns two before."""
    targets, events, arrivals = [], [], []
    for number, each in enumerate(chosen):
        use = next(s.op for s in found.sightings if s.storage == each.storage and s.op > each.op)
        least = least_pass_bytes[number] if least_pass_bytes else 0
        place = (each.key, each.ordinal, each.op, each.position)
        targets.append(core.SwapTarget(str(number), 0, *place, each.result, least))
        for kind, op in ((core.SwapActionKind.RELEASE, use - 4), (core.SwapActionKind.SWAP_IN, use - 2)):
            events.append(core.SwapEvent(*anchor(found, op), kind=kind, targets=[number]))
        arrivals.append((number, use))
    return core.SwapPolicy(targets, events, arrivals)


@pytest.fixture
def engine(device: torch.device) -> Iterator[core.SwapSession]:
    made = core.SwapSession(device)
    made.start()
    yield made
    made.stop()


@ON_EACH
def test_an_iteration_lists_operators_and_their_phases(device: torch.device, engine: core.SwapSession) -> None:
    loop = Loop(device, depth=1)
    engine.end_iteration()
    loop.validate()
    loop.loss().backward()  # type: ignore[no-untyped-call]
    engine.set_optimizer(True)
    loop.optimizer.step()
    engine.set_optimizer(False)
    found = engine.end_iteration()
    phases = dict.fromkeys(found.phases)
    assert list(phases) == [WITHOUT_GRADIENTS, FORWARD, BACKWARD, OPTIMIZER]
    assert found.backward
    assert names(found)[:4] == ["aten::linear", "aten::gelu", "aten::linear", "aten::dropout"]
    assert found.duration_us() > 0
    assert not engine.end_iteration().operators


@ON_EACH
def test_the_same_tensors_have_the_same_features_in_the_next_iteration(
    device: torch.device, engine: core.SwapSession
) -> None:
    loop = Loop(device)
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))

    def seen() -> list[tuple[int, int, int, bool]]:
        found = sightings(engine, loop.step)
        return [(each.op, each.key, each.ordinal, each.result) for each in found.sightings]

    first = seen()
    assert first == seen()
    assert len({(key, ordinal) for _, key, ordinal, _ in first}) == len(first)  # nothing has two meanings
    keys = {key for _, key, _, _ in first}
    assert len(keys) < len(first)  # layers look alike: only their order tells them apart


@ON_EACH
def test_operators_that_come_and_go_elsewhere_change_no_features(
    device: torch.device, engine: core.SwapSession
) -> None:
    loop = Loop(device)
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    plain = {(each.key, each.ordinal) for each in activations(sightings(engine, loop.step), loop)}

    def disturbed() -> None:
        loop.validate()
        torch.ones(64, 64, device=device).exp_()
        loop.step()

    assert plain == {(each.key, each.ordinal) for each in activations(sightings(engine, disturbed), loop)}


@ON_EACH
@pytest.mark.parametrize(
    "streams", [core.SwapRecordStream.CUSTOM, core.SwapRecordStream.PRINTED, core.SwapRecordStream.TORCH]
)
def test_a_policy_swaps_in_time_and_changes_no_number(device: torch.device, streams: core.SwapRecordStream) -> None:
    plain = Loop(device)
    expected = [plain.step() for _ in range(5)]
    loop = Loop(device)
    engine = core.SwapSession(device, record_stream=streams)
    engine.start()
    losses = [loop.step()]
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    found = sightings(engine, lambda: losses.append(loop.step()))
    chosen = [each for each in activations(found, loop) if each.op + 6 < len(found.operators) // 3][:8]
    assert len(chosen) == 8
    engine.set_policy(policy_of(found, chosen))
    for _ in range(3):
        losses.append(loop.step())
        done = engine.end_iteration()
        assert done.counts.matched == 8
        assert done.unmatched == 0
        assert done.counts.swapped_out == 8
        assert done.counts.in_time + done.counts.kept == 8  # what nobody needed the memory of has not even left
        assert done.counts.swapped_in == done.counts.in_time
        assert done.counts.fetched == done.counts.cancelled == done.counts.refused == done.counts.passive == 0
        assert done.counts.missed_events == 0
    engine.stop()
    assert torch.equal(torch.stack(losses), torch.stack(expected))


@ON_EACH
def test_a_tensor_leaves_in_passes_that_are_large_enough_for_it(device: torch.device, engine: core.SwapSession) -> None:
    """What is spared misses no event."""
    loop = Loop(device)
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    found = sightings(engine, loop.step)
    chosen = [each for each in activations(found, loop) if each.op + 6 < len(found.operators) // 3][:8]
    assert min(each.pass_bytes for each in chosen) > 0
    for spared in (0, 3):
        least = [each.pass_bytes + (place < spared) for place, each in enumerate(chosen)]
        engine.set_policy(policy_of(found, chosen, least))
        loop.step()
        done = engine.end_iteration()
        assert (done.counts.matched, done.counts.spared, done.counts.swapped_out) == (8, spared, 8 - spared)
        assert done.counts.missed_events == done.counts.fetched == 0


@ON_EACH
def test_bytes_count_by_forward_pass(device: torch.device, engine: core.SwapSession) -> None:
    loop = Loop(device)
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))

    def twice() -> None:
        loop.loss().backward()  # type: ignore[no-untyped-call]
        loop.loss().backward()  # type: ignore[no-untyped-call]

    found = sightings(engine, twice)
    seen = [each.pass_bytes for each in found.sightings if found.phases[each.op] == FORWARD]
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert found.forward_bytes == 2 * max(seen) > 0


@ON_EACH
def test_a_policy_outlives_a_validation_in_between(device: torch.device) -> None:
    plain = Loop(device)
    expected = [plain.step() for _ in range(2)] + [plain.validate(), plain.step()]
    loop = Loop(device)
    engine = core.SwapSession(device)
    engine.start()
    losses = [loop.step()]
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    found = sightings(engine, lambda: losses.append(loop.step()))
    chosen = activations(found, loop)[:6]
    engine.set_policy(policy_of(found, chosen))
    losses += [loop.validate(), loop.step()]
    done = engine.end_iteration()
    engine.stop()
    assert done.counts.matched == done.counts.in_time + done.counts.kept == 6
    assert torch.equal(torch.stack(losses), torch.stack(expected))


def test_matching_by_index_without_the_guard_fails_where_operators_are_added(device: torch.device) -> None:
    loop = Loop(device)
    engine = core.SwapSession(device, matching=core.SwapMatching.INDEX, guard=False)
    engine.start()
    loop.step()
    engine.set_ranks(sorted(set(engine.end_iteration().operators)))
    found = sightings(engine, loop.step)
    engine.set_policy(policy_of(found, activations(found, loop)[:6]))
    loop.step()  # unchanged: as good as any other way
    assert engine.end_iteration().counts.matched == 6
    with pytest.raises(RuntimeError, match="is swapped out to the host"):
        torch.ones(64, 64, device=device).exp_().neg_()
        loop.step()
    engine.stop()


def test_short_memory_is_answered_from_the_first_iteration_on(device: torch.device, engine: core.SwapSession) -> None:
    """Of exact bytes: half of these are no segments that CUDA could do with."""
    plain = Loop(device, rows=2048)
    torch.accelerator.reset_peak_memory_stats()
    expected = [plain.step() for _ in range(3)]
    peak = torch.accelerator.max_memory_allocated()
    del plain
    loop = Loop(device, rows=2048)
    engine.end_iteration()
    engine.set_budget(peak // 2)
    with limited_memory(device, peak // 2):
        losses = []
        for _ in range(3):
            losses.append(loop.step())
            assert engine.end_iteration().counts.passive > 0
    assert torch.equal(torch.stack(losses), torch.stack(expected))


def test_the_storage_that_leaves_is_the_one_whose_size_fits_best(
    device: torch.device, engine: core.SwapSession
) -> None:
    sizes = [8, 1, 5, 2]
    tensors = [torch.full((size * MIB // 4,), 1.0, device=device) for size in sizes]
    for each in tensors:
        each.mul_(2)
    for _ in range(10):  # nobody is recent any more
        tensors[1][:2048].add_(0)
    in_use = torch.accelerator.memory_allocated()
    with limited_memory(device, in_use):
        made = torch.zeros(2 * MIB // 4, device=device)
        assert [core.is_out(each) for each in tensors] == [False, False, False, True]
    assert float(made.sum() + tensors[3].sum()) == 2 * 2 * MIB / 4


def test_arguments_of_a_running_operator_never_leave(device: torch.device, engine: core.SwapSession) -> None:
    left = torch.full((512, 512), 2.0, device=device)
    right = torch.full((512, 512), 3.0, device=device)
    (left * 1, right * 1)
    with limited_memory(device, torch.accelerator.memory_allocated()), pytest.raises(torch.OutOfMemoryError):
        left @ right
    assert not core.is_out(left)
    assert not core.is_out(right)
    assert engine.end_iteration().counts.failed > 0
    assert float((left @ right)[0, 0]) == 512 * 6


def test_tensors_of_another_thread_stay(device: torch.device, engine: core.SwapSession) -> None:
    theirs = torch.ones(MIB // 4, device=device)

    def load_data() -> None:
        theirs.add_(1)

    thread = threading.Thread(target=load_data)
    thread.start()
    thread.join()
    torch.accelerator.synchronize()
    mine = torch.ones(MIB // 4, device=device)
    mine.add_(1)
    for _ in range(10):
        torch.ones(4, device=device).add_(1)
    with limited_memory(device, torch.accelerator.memory_allocated()):
        torch.zeros(MIB // 4, device=device)
        assert core.is_out(mine)
        assert not core.is_out(theirs)


def test_parameters_leave_last(device: torch.device, engine: core.SwapSession) -> None:
    parameter, activation = (torch.ones(MIB // 4, device=device) for _ in range(2))
    engine.add_resident([parameter])
    for _ in range(10):
        parameter.mul_(1)
        activation.mul_(1)
    with limited_memory(device, torch.accelerator.memory_allocated()):
        torch.zeros(MIB // 4, device=device)
        assert core.is_out(activation)
        assert not core.is_out(parameter)


def test_a_short_host_is_an_error_of_its_own(device: torch.device, engine: core.SwapSession) -> None:
    tensors = [torch.ones(MIB // 4, device=device).add_(1) for _ in range(4)]
    core.set_host_limit(MIB // 2)
    with limited_memory(device, torch.accelerator.memory_allocated()), pytest.raises(torch.OutOfMemoryError):
        torch.zeros(MIB // 4, device=device)
    core.set_host_limit(None)
    with pytest.raises(core.HostMemoryShort, match="raise the limit"):
        engine.raise_error()
    engine.raise_error()  # told once
    assert all(float(each.sum()) == MIB / 2 for each in tensors)


def test_sessions_nest(device: torch.device, engine: core.SwapSession) -> None:
    inner = core.SwapSession(device)
    inner.start()
    assert (inner.active, engine.active) == (True, False)
    (torch.ones(4096, device=device) + 1).sum()
    assert len(inner.end_iteration().operators) >= 2
    inner.stop()
    assert engine.active
    assert not engine.end_iteration().operators
    with pytest.raises(RuntimeError, match="runs already"):
        engine.start()


def test_an_idle_session_follows_nothing(device: torch.device, engine: core.SwapSession) -> None:
    engine.set_watching(False)
    assert not core.swap_guard_is_on()
    torch.ones(4096, device=device).add_(1)
    engine.set_watching(True)
    assert core.swap_guard_is_on()
    assert not engine.end_iteration().operators
