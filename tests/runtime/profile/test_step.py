"""A profiled step against the device's own clock and memory, and against the same step without a profiler."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

from runtime.device import SimDevice, use_sim
from runtime.profile.recording import light_recording
from runtime.profile.step import profile_step
from solvers.ir.codec import document_to_raw, read_document, write_json
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from tests.csrc.sim.conftest import ROUND
from tests.csrc.sim.gpt import Trainer

FOREACH = {"foreach": True}
OPTIMIZERS = [FOREACH, {"foreach": False}, {"fused": True}]


def profiled(trainer: Trainer, device: str) -> OpGraph:
    return profile_step(trainer.step, device, model=trainer.model, optimizer=trainer.optimizer)


def without_dropout(device: str, optimizer: dict[str, bool]) -> Trainer:
    """PyTorch itself runs dropout by other operators on a CPU than on an accelerator."""
    trainer = Trainer(device, optimizer=optimizer)
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return trainer


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.usefixtures("sim")
def test_the_sequence_is_the_same_on_cpu_and_sim(optimizer: dict[str, bool]) -> None:
    there = profiled(without_dropout("sim", optimizer), "sim")
    here = profiled(without_dropout("cpu", optimizer), "cpu")
    assert [(op.name, op.phase, op.flops) for op in here.ops] == [(op.name, op.phase, op.flops) for op in there.ops]
    phases = [op.phase for op in here.ops]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    saved_here, saved_there = (
        [(tensor.bytes, tensor.kind, tensor.born) for tensor in graph.tensors if tensor.saved]
        for graph in (here, there)
    )
    assert saved_here == saved_there


@pytest.mark.parametrize("recompute", [False, True])
def test_sequence_and_peak_are_the_same_with_the_profiler_on_and_off(sim: SimDevice, recompute: bool) -> None:
    trainer = Trainer("sim", optimizer=FOREACH, recompute=recompute)
    trainer.step()
    with light_recording() as light:
        trainer.step()
    torch.accelerator.reset_peak_memory_stats()
    trainer.step()
    peak = torch.accelerator.max_memory_allocated()
    begin = sim.now_ns()
    trainer.step()
    sim.synchronize()
    alone_ns = sim.now_ns() - begin
    begin = sim.now_ns()
    graph = profile_step(trainer.step, "sim", warmup=0)
    assert list(light.names()) == [op.name for op in graph.ops]
    assert peak == max(graph.memory_bytes) == torch.accelerator.max_memory_allocated()
    assert sim.now_ns() - begin == pytest.approx(alone_ns, abs=10_000)  # a wait of the host more or less


def test_memory_is_everything_on_the_device(sim: SimDevice) -> None:
    ballast = torch.zeros(1 << 20, device="sim")
    before = torch.accelerator.memory_allocated()
    graph = profiled(Trainer("sim", optimizer=FOREACH), "sim")
    assert min(graph.memory_bytes) > before >= ballast.nbytes
    alive = [sum(t.bytes for t in graph.tensors if t.born is not None and t.uses[0] <= op <= t.uses[-1] and t.saved)
             for op in range(len(graph.ops))]  # fmt: skip
    assert all(saved <= memory for saved, memory in zip(alive, graph.memory_bytes, strict=True))


def test_operator_times_add_up_to_the_compute_streams_clock(sim: SimDevice) -> None:
    trainer = Trainer("sim", optimizer=FOREACH, width=128, time=64, batch=4)
    trainer.step()
    moments: list[int] = []

    def step() -> None:
        sim.synchronize()
        moments.append(sim.now_ns())
        trainer.step()
        sim.synchronize()
        moments.append(sim.now_ns())

    graph = profile_step(step, "sim", warmup=0)
    begin, end = moments
    assert abs(sum(op.time_us for op in graph.ops) - (end - begin) / 1000) <= 1


def test_each_operator_takes_what_the_device_says(sim: SimDevice) -> None:
    # Square products of size n: n³·2 operations at 0.5·10¹² a second, launches hidden behind the one before.
    left = torch.ones(512, 512, device="sim")
    sim.synchronize()

    def step() -> None:
        for _ in range(4):
            torch.mm(left, left)

    graph = profile_step(step, "sim")
    expected = 2 * 512**3 / 0.5e12 * 1e6
    assert [op.time_us for op in graph.ops][1:] == [pytest.approx(expected, abs=1)] * 3
    assert [op.flops for op in graph.ops] == [2 * 512**3] * 4
    assert [op.bytes for op in graph.ops] == [3 * 4 * 512**2] * 4


def test_the_step_is_called_once_after_the_warm_up() -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(len(calls))
        torch.ones(2) + 1

    profile_step(step, "cpu", warmup=3)
    assert len(calls) == 4
    profile_step(step, "cpu", warmup=0)
    assert len(calls) == 5


def test_a_step_that_changes_its_operators_is_remarked() -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(0)
        torch.ones(2) + len(calls) if len(calls) % 2 else torch.ones(2)

    assert "sequence differs from the step before" in profile_step(step, "cpu").source
    assert "differs" not in profile_step(lambda: torch.ones(2), "cpu").source


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_step_that_changes_its_sizes_is_remarked(device: str) -> None:
    """A plan was made for whatever batch came third, with no word about it."""
    calls: list[int] = []

    def step() -> None:
        calls.append(0)
        torch.ones(16 * (1 + len(calls) % 2), device=device)

    if device == "sim":
        use_sim()
    source = profile_step(step, device).source
    assert "other sizes than in the step before (aten::ones, operator 0: 128 bytes, then 64 bytes)" in source
    assert "sizes" not in profile_step(lambda: torch.ones(16, device=device), device).source


def test_a_failing_step_passes_its_exception_on_and_removes_the_profiler() -> None:
    def out_of_luck() -> None:
        torch.ones(2)
        raise LookupError("out of luck")

    for warmup in (0, 1, 2):
        with pytest.raises(LookupError, match="out of luck"):
            profile_step(out_of_luck, "cpu", warmup=warmup)
    assert len(profile_step(lambda: torch.ones(2), "cpu").ops) == 1


def test_out_of_memory_arrives_as_such(sim: SimDevice) -> None:
    trainer = Trainer("sim", optimizer=FOREACH)
    peak = max(profiled(trainer, "sim").memory_bytes)
    use_sim(ROUND, capacity_bytes=peak - 512)
    with pytest.raises(torch.OutOfMemoryError):
        profiled(trainer, "sim")
    del trainer
    use_sim(ROUND, capacity_bytes=peak)
    assert max(profiled(Trainer("sim", optimizer=FOREACH), "sim").memory_bytes) == peak


def test_compiled_code_is_refused_in_one_sentence() -> None:
    def step() -> None:
        with torch._C._profiler._RecordFunctionFast("Torch-Compiled Region: 0/0"):
            torch.ones(2)

    with pytest.raises(InvalidInput, match="profile the eager model"):
        profile_step(step, "cpu")


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.usefixtures("sim")
def test_the_innermost_of_optimizer_and_backward_counts(device: str) -> None:
    model = torch.nn.Linear(4, 4, bias=False).to(device)
    batch = torch.ones(2, 4).to(device)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    hooked: Any = model.weight
    hook = hooked.register_post_accumulate_grad_hook(lambda _: inner.step())
    searching: Any = torch.optim.LBFGS([torch.zeros(1, requires_grad=True)], max_iter=1)

    def evaluate() -> float:
        torch.autograd.backward(model(batch).sum())
        return 0.0

    graph = profile_step(lambda: searching.step(evaluate), device)
    phases = {op.name.removeprefix("aten::"): op.phase for op in graph.ops}
    assert phases["linear"] == "optimizer"  # inside the search
    assert phases["mm"] == "backward"  # inside the backward pass inside the search
    assert phases["_foreach_add_.List"] == "optimizer"  # inside that again
    hook.remove()  # it holds the weight that holds it, which Python's collector does not see


@pytest.mark.parametrize("device", ["nowhere", "meta:x", "xpu"])
def test_a_device_that_is_not_there_is_told_in_one_sentence(device: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be used in this process") as raised:
        profile_step(lambda: None, device)
    assert "\n" not in str(raised.value)


def test_a_step_that_does_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="profile a step that does some work"):
        profile_step(lambda: None, "cpu")


def test_live_bytes_on_a_cpu_follow_the_tensors() -> None:
    def step() -> None:
        first = torch.ones(1000)
        second = first.neg()
        del first
        second.neg_()

    graph = profile_step(step, "cpu")
    base = graph.memory_bytes[0] - 4000
    assert [level - base for level in graph.memory_bytes] == [4000, 8000, 4000]


GOLDEN = """
forward aten::linear 0 1 2 > 3 : 192
forward aten::gelu 3 > 4 : None
forward aten::linear 4 5 > 6 : 96
forward aten::sum 6 > 7 : None
forward aten::ones_like 7 > 8 : None
backward aten::mm 8 4 > 9 : 96
backward aten::mm 8 5 > 10 : 96
backward aten::gelu_backward 10 3 > 11 : None
backward aten::mm 11 0 > 12 : 192
backward aten::sum.dim_IntList 11 > 13 : None
optimizer aten::_foreach_add_.List 1 2 5 12 13 9 > 1 2 5 : None
"""

GOLDEN_TENSORS = """
0 input 48 None [0, 8] saved
1 parameter 128 None [0, 10]
2 parameter 32 None [0, 10]
3 activation 96 0 [0, 1, 7] saved
4 activation 96 1 [1, 2, 5] saved
5 parameter 64 None [2, 6, 10] saved
"""


def two_layers(device: str) -> Callable[[], None]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2, bias=False)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    batch = torch.randn(3, 4).to(device)

    def step() -> None:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.usefixtures("sim")
def test_golden_graph_of_two_layers(device: str) -> None:
    graph = profile_step(two_layers(device), device)
    ops = [
        f"{op.phase} {op.name} {' '.join(map(str, op.inputs))} > {' '.join(map(str, op.outputs))} : {op.flops}"
        for op in graph.ops
    ]
    assert "\n".join(ops) == GOLDEN.strip()
    tensors = [
        f"{t.id} {t.kind} {t.bytes} {t.born} {list(t.uses)}{' saved' if t.saved else ''}" for t in graph.tensors[:6]
    ]
    assert "\n".join(tensors) == GOLDEN_TENSORS.strip()
    assert all(one >= 1 for one in (op.time_us for op in graph.ops))


def test_a_graph_is_written_and_read_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    graph = profile_step(two_layers("cpu"), "cpu", name="two-layers")
    path = tmp_path_factory.mktemp("graph") / "g.json"
    write_json(path, document_to_raw(graph))
    assert read_document(path, OpGraph) == graph
    assert "cpu" in graph.source
    assert torch.__version__ in graph.source


def test_ids_and_uses_are_consistent() -> None:
    graph = profiled(Trainer("cpu", optimizer=FOREACH), "cpu")
    assert [tensor.id for tensor in graph.tensors] == list(range(len(graph.tensors)))
    for number, op in enumerate(graph.ops):
        assert all(number in graph.tensors[tensor].uses for tensor in (*op.inputs, *op.outputs))  # type: ignore[index]
    for tensor in graph.tensors:
        assert tensor.born is None or tensor.born == tensor.uses[0]
        assert all(earlier < later for earlier, later in pairwise(tensor.uses))


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_what_the_step_does_not_touch_is_listed_by_name_without_uses(device: str) -> None:
    """Each storage once, tied or not; what lies elsewhere, or is empty, is not on the device."""
    trainer = Trainer(device, optimizer=FOREACH)
    before = profiled(trainer, device)
    model = trainer.model
    model.dead = torch.nn.Linear(8, 4).to(device)
    model.again = model.dead
    model.register_buffer("mask", torch.ones(16, device=device))
    model.register_buffer("none", torch.ones(0, device=device))
    model.register_buffer("away", torch.ones(3, device="cpu" if device == "sim" else "meta"))
    idle = [tensor for tensor in profiled(trainer, device).tensors if tensor not in before.tensors]
    assert [(tensor.id, tensor.bytes) for tensor in idle] == [("dead.weight", 128), ("dead.bias", 16), ("mask", 64)]
    assert all((tensor.kind, tensor.born, tensor.uses) == ("parameter", None, ()) for tensor in idle)
