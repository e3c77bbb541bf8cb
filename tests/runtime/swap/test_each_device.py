"""What users do with sessions and plans, the same bodies on sim here and on CUDA where there is one.

On CUDA the models are larger: its allocator hands out segments of 20 MiB, and budgets are of segments there.
"""

import gc
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.models.gpt import GptShape
from runtime.device import clock, limited_memory, memory_stats, reset_peak_memory
from runtime.device.native import core
from runtime.profile import profile_step
from runtime.profile.links import measure_both_ways
from runtime.profile.machine import by_direction, hardware_of
from runtime.swap import SwapExecutor, session
from solvers.ir.solution import Limits
from solvers.planner import planner
from tests.accelerators import ON_EACH, ON_EACH_AT_LENGTH
from tests.runtime.swap.training import Program, Ran, Trainer, run, steadily

STEPS, SETTLED = 18, 14
STEADY = steadily(STEPS)
ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("repeatable_kernels")


def shape_for(device: torch.device) -> GptShape:
    """Activations of some MiB on sim, of some GiB on CUDA."""
    if device.type == "sim":
        return GptShape(layers=4, width=32, heads=2, context=64, batch=16, seed=3)
    return GptShape(layers=8, width=512, heads=8, context=512, batch=16, seed=3)


def headroom_for(device: torch.device) -> float:
    return 0.0 if device.type == "sim" else 0.1


def emptied(device: torch.device) -> None:
    gc.collect()
    torch.accelerator.synchronize(device)
    torch.accelerator.empty_cache()
    reset_peak_memory(device)


def plain(program: Program, device: torch.device) -> tuple[Ran, int]:
    """The run without a budget, and the most that its segments took."""
    emptied(device)
    ran = run(program, device, shape=shape_for(device))
    return ran, memory_stats(device).reserved_peak_bytes


def within(program: Program, device: torch.device, budget: int) -> Ran:
    emptied(device)
    return run(program, device, budget, shape=shape_for(device), headroom=headroom_for(device))


@ON_EACH
def test_a_budget_holds_without_retries_after_warm_up(device: torch.device) -> None:
    """A refused request makes CUDA's allocator give back its whole cache: planned swap-ins must not cause any."""
    hold_budget(device, 0.6)


@ON_EACH_AT_LENGTH
@pytest.mark.parametrize("share", [0.75, 0.45])
def test_budgets_hold_without_retries_after_warm_up(device: torch.device, share: float) -> None:
    hold_budget(device, share)


def hold_budget(device: torch.device, share: float) -> None:
    expected, peak_bytes = plain(STEADY, device)
    counted: list[int] = []

    def program(trainer: Trainer, _: object) -> list[torch.Tensor]:
        losses = []
        for number in range(STEPS):
            if number == SETTLED:
                counted.append(memory_stats(device).retries)
            losses.append(trainer.step())
        counted.append(memory_stats(device).retries)
        return losses

    budget = int(share * peak_bytes)
    ran = within(program, device, budget)
    assert ran.equals(expected)
    assert memory_stats(device).reserved_peak_bytes <= budget
    assert ran.report is not None and ran.report.counts.swapped_out > 0
    assert counted[0] == counted[1]


def scaled(trainer: Trainer, _: object) -> list[torch.Tensor]:
    """Autocast to half precision (bfloat16 on sim, whose kernels the CPU has) under a loss scaler."""
    kind = trainer.device.type
    half = torch.bfloat16 if kind == "sim" else torch.float16
    scaler = torch.amp.GradScaler(kind, init_scale=2.0**8, growth_interval=3)
    losses = []
    for _ in range(STEPS):
        trainer.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, dtype=half):
            loss = trainer._loss(None)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(trainer.optimizer)
        scaler.update()
        losses.append(loss.detach())
    return losses


def prefetched(trainer: Trainer, _: object) -> list[torch.Tensor]:
    """Each batch comes from page-locked memory on a stream of its own, while the one before trains."""
    side = torch.Stream(trainer.device)

    def fetched(number: int) -> list[torch.Tensor]:
        host = [part.pin_memory() for part in trainer._batches[number]]
        with side:
            return [part.to(trainer.device, non_blocking=True) for part in host]

    waiting, losses = fetched(0), []
    for number in range(STEPS):
        current = torch.accelerator.current_stream()
        inputs, targets = waiting
        current.wait_stream(side)
        for part in (inputs, targets):
            part.record_stream(current)
        trainer.optimizer.zero_grad(set_to_none=True)
        loss = trainer.model(inputs, targets)
        waiting = fetched(number + 1)
        loss.backward()
        trainer.optimizer.step()
        losses.append(loss.detach())
    return losses


@ON_EACH_AT_LENGTH
@pytest.mark.parametrize("program", [scaled, prefetched])
def test_loops_of_users_compute_the_same(device: torch.device, program: Program) -> None:
    expected, peak_bytes = plain(program, device)
    ran = within(program, device, int(0.75 * peak_bytes))
    assert ran.equals(expected)
    assert ran.report is not None and ran.report.counts.swapped_out > 0


@ON_EACH_AT_LENGTH
def test_a_stream_that_fetches_batches_costs_a_session_no_time(device: torch.device) -> None:
    """Once an operator has run on another stream, the host must not wait at each swap-in for ever."""

    now_ns = clock(device)

    def settled_ns(*, aside: bool) -> float:
        """The median of a session's settled steps."""
        times = []

        def program(trainer: Trainer, running: object) -> list[torch.Tensor]:
            if aside:
                with torch.Stream(device):
                    torch.ones(8192, device=device).add_(1)
            losses = []
            for _ in range(STEPS):
                began = now_ns()
                losses.append(trainer.step())
                times.append(now_ns() - began)
            return losses

        _, peak_bytes = plain(program, device)
        times.clear()
        within(program, device, int(0.75 * peak_bytes))
        return statistics.median(times[SETTLED:])

    assert settled_ns(aside=True) <= (1.02 if device.type == "sim" else 1.25) * settled_ns(aside=False)


@ON_EACH_AT_LENGTH
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_transformers_train_in_a_session(device: torch.device, name: str) -> None:
    """Whole models of transformers, in its own classes; larger on CUDA."""
    transformers = pytest.importorskip("transformers")
    small = device.type == "sim"
    width, tokens, batch = (64, 64, 8) if small else (768, 512, 16)

    def build() -> torch.nn.Module:
        if name == "gpt2":
            config = transformers.GPT2Config(vocab_size=96, n_embd=width, n_layer=3, n_head=4, n_positions=tokens)
            gpt2: torch.nn.Module = transformers.GPT2LMHeadModel(config)
            return gpt2
        config = transformers.LlamaConfig(
            vocab_size=96,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=tokens,
        )
        llama: torch.nn.Module = transformers.LlamaForCausalLM(config)
        return llama

    def train(budget: int | None) -> tuple[list[torch.Tensor], int]:
        emptied(device)
        torch.manual_seed(0)
        model = build().to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        data = torch.randint(96, (batch, tokens), generator=torch.Generator().manual_seed(1)).to(device)

        def loop() -> list[torch.Tensor]:
            losses = []
            for _ in range(8):
                optimizer.zero_grad(set_to_none=True)
                loss = model(input_ids=data, labels=data, use_cache=False).loss
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            return losses

        if budget is None:
            losses = loop()
        else:
            with session(budget, device=device, headroom=headroom_for(device)) as running:
                losses = loop()
                assert running.report().counts.swapped_out > 0
        return [loss.cpu() for loss in losses], memory_stats(device).reserved_peak_bytes

    expected, peak_bytes = train(None)
    ran, held_bytes = train(int(0.75 * peak_bytes))
    assert all(torch.equal(one, other) for one, other in zip(ran, expected, strict=True))
    assert held_bytes <= int(0.75 * peak_bytes)


@ON_EACH
def test_a_profile_is_of_the_step_that_ran(device: torch.device) -> None:
    """Its time is the clock's, its peak the allocator's, and twice it is the same sequence."""
    trainer = Trainer(device, shape_for(device))
    graphs = []
    for _ in range(2):
        emptied(device)
        graphs.append(
            profile_step(lambda: trainer.step(), device, model=trainer.model, optimizer=trainer.optimizer, warmup=2)
        )
        assert max(graphs[-1].memory_bytes) == memory_stats(device).peak_bytes
    assert [op.name for op in graphs[0].ops] == [op.name for op in graphs[1].ops]
    now_ns = clock(device)
    began = now_ns()
    trainer.step()
    spent_us = (now_ns() - began) / 1e3
    profiled_us = sum(op.time_us for op in graphs[1].ops)
    least, most = (0.97, 1.03) if device.type == "sim" else (0.5, 2.0)  # the recorder's own time shows on a real host
    assert least * spent_us <= profiled_us <= most * spent_us


@ON_EACH
def test_links_have_sensible_figures(device: torch.device) -> None:
    links, slowdown = measure_both_ways(device, "device")
    assert {(link.a, link.b) for link in links} <= {("device", "host"), ("host", "device")}
    assert all(1e9 < link.bytes_per_s < 2e12 and 0 <= link.latency_us < 1000 for link in links)
    assert 1 <= slowdown < 2.5


@ON_EACH_AT_LENGTH
def test_the_host_limit_is_kept(device: torch.device) -> None:
    """Page-locked memory of a session stays within its limit, and all of it is given back when the session ends."""
    expected, peak_bytes = plain(STEADY, device)
    limit = int(0.5 * peak_bytes)
    emptied(device)
    ran = run(
        STEADY,
        device,
        int(0.8 * peak_bytes),
        shape=shape_for(device),
        headroom=headroom_for(device),
        host_limit_bytes=limit,
    )
    assert ran.equals(expected)
    assert ran.report is not None and 0 < ran.report.host_peak_bytes <= limit
    assert core.swapped_out_storages() == 0


@ON_EACH
@pytest.mark.parametrize("share", [0.8, 0.65])
def test_executed_plans_keep_their_budget(device: torch.device, share: float) -> None:
    shape = replace(shape_for(device), dropout=0.0)
    emptied(device)
    trainer = Trainer(device, shape)
    for _ in range(2):
        trainer.step()
    graph = profile_step(trainer.step, device, model=trainer.model, optimizer=trainer.optimizer, warmup=0)
    emptied(device)
    budget = int(share * max(graph.memory_bytes))
    answer = planner("greedy-swap", limits=Limits(time_s=10.0))(graph, by_direction(hardware_of(device)), budget)
    executor = SwapExecutor(answer.plan, graph, device)
    expected = Trainer(device, shape)
    losses = [expected.step().cpu() for _ in range(5)][3:]
    del expected
    emptied(device)
    room = budget if device.type == "sim" else int(1.1 * budget) + (64 << 20)  # segments, and cuBLAS' workspaces
    with limited_memory(device, room):
        done = [executor.run(trainer.step) for _ in range(2)]
    assert [one.value.cpu() for one in done] == losses
    assert all(one.counts.as_planned for one in done)
    assert all(one.report.peak_bytes <= budget for one in done)


PROGRAM = """
import sys, torch
from runtime.device import accelerator, memory_stats
from tests.runtime.swap.test_each_device import STEADY, plain, within
device = accelerator(sys.argv[1])
from tests.accelerators import repeatable
together = repeatable()
together.__enter__()
expected, peak = plain(STEADY, device)
ran = within(STEADY, device, int(0.6 * peak))
assert ran.equals(expected) and ran.report.counts.swapped_out > 0
assert memory_stats(device).reserved_peak_bytes <= int(0.6 * peak)
"""


@pytest.mark.parametrize(
    "name", [pytest.param("sim", marks=pytest.mark.soak), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_expandable_segments(name: str) -> None:
    """The allocator's setting is read when Python begins, hence a process of its own; sim's does not know it."""
    run_alone([sys.executable, "-c", PROGRAM, name], name)


@pytest.mark.parametrize(
    "name", [pytest.param("sim", marks=pytest.mark.soak), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_from_calibration_to_an_executed_plan_on_the_command_line(name: str, tmp_path: Path) -> None:
    def bayplan(*words: str) -> None:
        run_alone([sys.executable, "-m", "experiments.cli", *words], name)

    file = str(tmp_path / "hardware.json")
    bayplan("calibrate", "--device", name, "--out", file)
    settings = (f"hardware.file={file}", "solver=[greedy-swap]", "steps=3", "plots=false")
    larger = [] if name == "sim" else ["model.width=512", "model.heads=8", "model.context=512", "model.batch=16"]
    budget = "problem.budget_fraction=0.8"
    bayplan("compare", f"device={name}", *settings, *larger, f"run_dir={tmp_path / 'run'}", budget)
    assert (tmp_path / "run" / "rows.jsonl").read_text().count("\n") == 3


def run_alone(words: list[str], name: str) -> None:
    """In a process of its own, from the checkout; skips where the device is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr or done.stdout
