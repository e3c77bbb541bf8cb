"""A planned run judged: it keeps its word, or is refused in a sentence, or is broken."""

import gc
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import torch

from runtime.device import RaceMode, SimDevice, use_sim
from runtime.device.native import core
from runtime.execute.outcome import SwapCounts
from runtime.profile import profile_step
from runtime.swap import Executed, SwapExecutor, ensure_in
from solvers.ir.errors import BayplanError, EngineMissing
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import HOST, Device, Hardware, Link
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.planner import planner, solver_names
from solvers.swap.evaluate import least_budget
from solvers.swap.make import make_swap_problem
from solvers.timeline import simulate
from tests.runtime.execute.planned.programs import program
from tests.runtime.execute.planned.training import Snapshot, Trained

WARMUP, STEPS = 2, 3
TOLERANCE = 2e-4
"""How far the executed peak may be from the predicted one, as a share of it."""
HIGHEST = 0.95
"""Budgets end at this share of the peak without swapping."""
SOLVERS = solver_names("swap")
LIMITS = Limits(work=0.05, threads=1)
"""`work` is deterministic; there is no limit of time."""
Judgement = Literal["kept", "refused", "broken"]


def _machine(bytes_per_s: int, latency_us: float) -> Hardware:
    """A small accelerator with a link of that rate and latency."""
    speeds = {"float32": 2_000_000_000_000, "bfloat16": 4_000_000_000_000}
    device = Device(name="0", memory_bytes=1 << 30, flops_per_s=speeds, bytes_per_s=200_000_000_000, launch_us=4.0)
    link = Link(a="0", b=HOST, bytes_per_s=bytes_per_s, latency_us=latency_us)
    return Hardware(name=f"link of {bytes_per_s} B/s", source="invented", devices=(device,), links=(link,))


MACHINES = {"quick": _machine(64_000_000_000, 1.0), "usual": _machine(16_000_000_000, 10.0)}
MACHINES["slow"] = _machine(2_000_000_000, 30.0)


@dataclass(frozen=True)
class Run:
    """One planned run; `share` of the way from the least feasible budget (0) to 0.95 of the profiled peak (1).

    Planned for one machine, it may run on `another`, whose times differ by up to `noise`, a share of them, besides.
    """

    program: str
    solver: str
    share: float
    seed: int = 0
    machine: str = "usual"
    another: str | None = None
    noise: float = 0.0
    races: RaceMode = "raise"


@dataclass(frozen=True)
class Verdict:
    """What became of a run and why, with the figures that were judged, as far as it came."""

    run: Run
    judged: Judgement = "kept"
    why: str = ""
    budget_bytes: int = 0
    predicted_bytes: int = 0
    peaks: tuple[int, ...] = ()
    kept_bytes: tuple[int, ...] = ()
    """What earlier steps had returned and the loop still held during each step: on the device where there was room."""
    counts: tuple[SwapCounts, ...] = ()

    @property
    def deviation(self) -> float:
        """The farthest executed peak from the predicted one, as a share of that, with its sign.

        What the loop itself keeps may come on top.
        """
        least = self.predicted_bytes
        beyond = [
            peak - min(max(peak, least), least + kept) for peak, kept in zip(self.peaks, self.kept_bytes, strict=True)
        ]
        return max((extra / least for extra in beyond), key=abs, default=0.0)


class Broken(Exception):
    """What a run did that it must not do."""


@dataclass(frozen=True)
class Reference:
    """What each step of the same program left without a plan, from the first planned one on."""

    losses: tuple[torch.Tensor, ...]
    snapshots: tuple[Snapshot, ...]


@cache
def reference(name: str, seed: int) -> Reference:
    """The run without a plan."""
    trained = program(name).on(fresh("usual").device, seed)
    losses, snapshots = [], []
    for number in range(WARMUP + 1 + STEPS):
        loss = trained.step().cpu()
        if number > WARMUP:
            losses.append(loss)
            snapshots.append(trained.snapshot())
    return Reference(tuple(losses), tuple(snapshots))


def fresh(machine: str, races: RaceMode = "raise", noise: float = 0.0) -> SimDevice:
    """The simulated device with all its memory, and nothing on it."""
    gc.collect()
    return use_sim(MACHINES[machine], races=races, noise=noise)


def judge(run: Run) -> Verdict:
    """Profile, plan, execute, compare; never raises for what the run does."""
    known = reference(run.program, run.seed)
    sim = fresh(run.machine, run.races)
    judged = _Judged(run, known, sim)
    try:
        verdict = judged.verdict()
    except Broken as broken:
        verdict = replace(judged.facts(), judged="broken", why=str(broken))
    except Exception as error:
        first = str(error).split("\n", 1)[0]
        verdict = replace(judged.facts(), judged="broken", why=f"{type(error).__name__}: {first}")
    del judged
    gc.collect()
    return verdict


@dataclass
class _Judged:
    """A run under way."""

    run: Run
    known: Reference
    sim: SimDevice
    budget_bytes: int = 0
    predicted_bytes: int = 0
    peaks: list[int] = field(default_factory=list)
    kept_bytes: list[int] = field(default_factory=list)
    counts: list[SwapCounts] = field(default_factory=list)
    held: list[Executed[torch.Tensor]] = field(default_factory=list)
    """What the steps returned, losses on the device among it: as in many loops, it lives on."""

    def facts(self) -> Verdict:
        """What is known so far."""
        return Verdict(
            self.run,
            budget_bytes=self.budget_bytes,
            predicted_bytes=self.predicted_bytes,
            peaks=tuple(self.peaks),
            kept_bytes=tuple(self.kept_bytes),
            counts=tuple(self.counts),
        )

    def verdict(self) -> Verdict:
        """Train to the end, planned as long as nothing is refused."""
        trained = program(self.run.program).on(self.sim.device, self.run.seed)
        refusal, executor = None, None
        try:
            executor = self._planned(trained)
        except EngineMissing as error:  # of the machine, not of the plan
            raise Broken(str(error)) from error
        except BayplanError as error:
            refusal = _sentence(error)
        if self.run.another is not None or self.run.noise:
            self.sim = fresh(self.run.another or self.run.machine, self.run.races, self.run.noise)
        for number in range(STEPS):
            if refusal is None and executor is not None:
                refusal = self._step(executor, trained, number)
            else:
                self._compare(trained, trained.step(), number)
        self._require_no_race()
        if refusal is not None:
            return replace(self.facts(), judged="refused", why=refusal)
        self._require_memory()
        return self.facts()

    def _planned(self, trained: Trained) -> SwapExecutor:
        graph = profile_step(
            trained.step, self.sim.device, model=trained.model, optimizer=trained.optimizers[0], warmup=WARMUP
        )
        hardware = self.sim.hardware
        least = least_budget(make_swap_problem(graph, hardware))
        highest = max(least, int(HIGHEST * max(graph.memory_bytes)))
        self.budget_bytes = int(least + self.run.share * (highest - least))
        schedule = planner(self.run.solver, limits=LIMITS)(graph, hardware, self.budget_bytes).plan
        if schedule is None:
            raise Broken("the planner found no plan though there is one")
        self.predicted_bytes = _predicted(graph, hardware, self.budget_bytes, schedule)
        return SwapExecutor(schedule, graph, self.sim.device)

    def _step(self, executor: SwapExecutor, trained: Trained, number: int) -> str | None:
        """One planned step, compared; the sentence that refused it, if one did."""
        before, steps = trained.snapshot(), trained.steps
        self.sim.set_capacity(self.budget_bytes)
        executed, refusal = _executed(executor, trained)
        self._set_free()
        if executed is None:
            self._repeat(trained, before, steps, number)
            return f"step {number}: {refusal}"
        self.peaks.append(executed.report.peak_bytes)
        self.kept_bytes.append(sum(-(-each.value.untyped_storage().nbytes() // 512) * 512 for each in self.held))
        self.counts.append(executed.counts)
        if executed.counts.left_out:
            raise Broken(f"step {number}: {executed.counts.left_out} storages were left out")
        self._compare(trained, executed.value, number)
        self.held.append(executed)
        return None

    def _set_free(self) -> None:
        """All memory again; what is left of a failed step's graph is dropped, and nothing but losses may be out."""
        self.sim.set_capacity(self.sim.hardware.device().memory_bytes)
        gc.collect()
        ensure_in([each.value for each in self.held])
        if core.swapped_out_storages():
            raise Broken(f"{core.swapped_out_storages()} storages are out after the step")

    def _repeat(self, trained: Trained, before: Snapshot, steps: int, number: int) -> None:
        """The step again, without a plan, from where it began: whoever catches the refusal goes on so."""
        if trained.repeatable:
            trained.restore(before)
            self._compare(trained, trained.step(), number)
            return
        again = program(self.run.program).on(self.sim.device, self.run.seed)
        for _ in range(steps + 1):
            losses = again.step()
        self._compare(again, losses, number)
        vars(trained).update(vars(again))

    def _compare(self, trained: Trained, losses: torch.Tensor, number: int) -> None:
        if not torch.equal(losses.cpu().nan_to_num(), self.known.losses[number].nan_to_num()):
            raise Broken(f"step {number}: the loss differs")
        wrong = trained.snapshot().differences(self.known.snapshots[number])
        if wrong:
            raise Broken(f"step {number}: {len(wrong)} tensors differ, {wrong[0]} first")

    def _require_no_race(self) -> None:
        races = self.sim.races() if self.run.races == "record" else ()
        if races:
            raise Broken(f"{len(races)} races, first {races[0]}")

    def _require_memory(self) -> None:
        facts = self.facts()
        if max(self.peaks) > self.budget_bytes:
            raise Broken(f"the peak {max(self.peaks)} is above the budget {self.budget_bytes}")
        if not program(self.run.program).static:
            return  # the profile says nothing of another step's memory; it has kept the budget
        if abs(facts.deviation) > TOLERANCE:
            raise Broken(f"the peak is {100 * facts.deviation:+.3f} % from the predicted {self.predicted_bytes}")


def _predicted(graph: OpGraph, hardware: Hardware, budget_bytes: int, schedule: Schedule) -> int:
    peak = simulate(make_swap_problem(graph, hardware, budget_bytes), schedule).peak_bytes
    assert peak is not None
    return peak


def _executed(executor: SwapExecutor, trained: Trained) -> tuple[Executed[torch.Tensor] | None, str]:
    """What the step gave, or the sentence that refused it; the error, which holds a graph, is gone by then."""
    try:
        return executor.run(trained.step), ""
    except BayplanError as error:
        return None, _sentence(error)


def _sentence(error: BayplanError) -> str:
    """The text of a refusal, which must be one sentence that says what to do."""
    text = str(error)
    if "\n" in text or ": " not in text or len(text) > 700:
        raise Broken(f"the refusal is no sentence: {text!r}")
    return text
