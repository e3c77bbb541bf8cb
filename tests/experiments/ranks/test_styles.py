"""Each style trains what one process trains, bit for bit; by shapes alone it takes the same time and memory."""

import gc
from dataclasses import replace

import pytest

from experiments.hardware import read_hardware
from experiments.models import GptShape
from experiments.ranks import carriers
from experiments.ranks.carriers import Where, carried
from experiments.ranks.outcomes import equalities
from experiments.ranks.programs import Job, program, train
from experiments.ranks.reference import reference
from experiments.ranks.settings import STYLES, Carrier
from runtime.ranks import RankRun, run_ranks
from solvers.ir.report import Report
from tests.forked import run_ranks_forked
from tests.soaking import in_soak

SHAPE = GptShape(layers=4, width=32, heads=4, context=16, batch=2, dropout=0.1)
CLUSTER = read_hardware("sim-cluster")


def job(style: str, ranks: int) -> Job:
    return Job(style, SHAPE, ranks, steps=2, microbatches=ranks + 1)


@pytest.mark.parametrize(
    ("style", "ranks"), [(style, ranks) for style in STYLES for ranks in (2, 3, 4) if (style, ranks) != ("tp", 3)]
)
def test_a_style_has_the_bits_of_one_process(style: str, ranks: int) -> None:
    told = job(style, ranks)
    done = carried(Carrier.threads, train, told, Where("sim", CLUSTER))
    compared = [equalities(one, other) for one, other in zip(done.trained, reference(told), strict=True)]
    assert all(all(found.values()) for found in compared), compared
    assert any(one.losses for one in done.trained) and done.races == 0


def test_noise_moves_clocks_and_no_bit() -> None:
    told = job("fsdp2", 2)
    plain, noisy = (carried(Carrier.threads, train, told, Where("sim", CLUSTER, noise)) for noise in (0.0, 0.3))
    for one, other in zip(plain.trained, noisy.trained, strict=True):
        assert all(equalities(one, other).values())
    assert [one.makespan_us for one in plain.reports] != [one.makespan_us for one in noisy.reports]


@pytest.mark.parametrize(("style", "ranks"), [("ddp", 2), in_soak("1f1b", 3)])
def test_processes_have_the_bits_the_time_and_the_memory_of_threads(
    style: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "run_children", run_ranks_forked)
    told = job(style, ranks)
    apart, together = (
        carried(carrier, train, told, Where("sim", CLUSTER)) for carrier in (Carrier.processes, Carrier.threads)
    )
    for one, other in zip(apart.trained, reference(told), strict=True):
        assert all(equalities(one, other).values())
    assert apart.races is None
    for process, thread in zip(apart.reports, together.reports, strict=True):
        assert (process.peak_bytes, process.makespan_us) == (thread.peak_bytes, thread.makespan_us)


def ran(style: str, *, shapes_only: bool) -> RankRun[list[float]]:
    gc.collect()
    ranked = program(train, Job(style, replace(SHAPE, layers=2), ranks=2, steps=2, microbatches=2))

    def losses(rank: int) -> list[float]:
        return ranked(rank).losses

    return run_ranks(losses, 2, hardware=CLUSTER, shapes_only=shapes_only)


def facts(report: Report) -> list[object]:
    """A rank's peak and all that its lanes did; streams have other numbers in each run of a process."""
    spans = [(span.lane.split()[0], span.label, span.start_us, span.end_us) for span in report.spans]
    return [report.peak_bytes, report.makespan_us, *spans]


@pytest.mark.parametrize("style", STYLES)
def test_shapes_alone_take_the_time_and_memory_of_numbers(style: str) -> None:
    real, seen = (ran(style, shapes_only=mode) for mode in (False, True))
    assert [facts(one) for one in seen.reports] == [facts(one) for one in real.reports]
    assert all(loss == 1 for losses in seen.values for loss in losses)
    assert seen.races == []
