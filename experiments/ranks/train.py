"""`bayplan train experiment=ranks`: a training over several simulated devices, compared with one process bit by bit."""

from collections.abc import Sequence

import torch
from rich.console import Console

from experiments.commands.interrupts import Interrupts
from experiments.compose import keep_hydra
from experiments.progress import stages
from experiments.ranks.carriers import Carried, Where, carried, part_of_torchrun
from experiments.ranks.outcomes import equal_in_all, row_of, table_of
from experiments.ranks.programs import Job, Trained, train
from experiments.ranks.record import figures_of_rank
from experiments.ranks.reference import reference
from experiments.ranks.settings import ROOT, Carrier, ComposedRanks, RanksSettings, read_ranks_settings
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import CONFIG, RunDirectory, open_run
from experiments.tables import to_markdown, to_text
from experiments.training.compare import print_rows
from experiments.worlds import load_hardware
from runtime.ranks.torchrun import started
from solvers.ir import Row
from solvers.ir.codec import document_to_raw

USAGE = """bayplan train experiment=ranks [key=value …]

Trains a byte-level GPT on real text over several simulated devices, as ordinary torch.distributed programs do, and
compares losses, gradients and parameters with one process on the CPU. Settings (experiments/ranks/settings.py):
  style=ddp|fsdp2|tp|1f1b ranks=4 steps=4 microbatches=8 noise=0.1 check=false
  carrier=threads|processes|torchrun device=sim|cuda|cpu
  hardware=sim-cluster model=gpt-micro model.layers=4 run_dir=PATH plots=false

Real devices, CUDA by NCCL or CPUs by gloo, want a process a rank:
  torchrun --nproc-per-node 4 --no-python bayplan train experiment=ranks ranks=4 carrier=torchrun device=cuda
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: a rank's numbers are not the reference's, or accesses raced."""
    composed = read_ranks_settings(argv)
    if composed.settings.carrier is Carrier.torchrun and started().rank:
        torch.set_num_threads(1)
        part_of_torchrun(train, _job(composed), _where(composed.settings))
        return 0  # Rank 0 has the row.
    directory = open_run(composed.settings, composed.yaml)
    try:
        with Interrupts(patient=False):  # SIGTERM is as Ctrl-C: no process is left behind
            keep_hydra(directory, ROOT, argv)
            row = run(composed, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    keep_page(directory)
    print_rows(Console(), [row], [table_of(row)], directory)
    return 0 if equal_in_all(row) else 1


def run(composed: ComposedRanks, directory: RunDirectory) -> Row:
    """The training, the reference, and the files of both."""
    torch.set_num_threads(1)  # sums in parallel come in another order
    settings, job = composed.settings, _job(composed)
    with stages(1 + settings.check) as shown:
        with shown.stage(f"{settings.style} on {settings.ranks} ranks"):
            done = carried(settings.carrier, train, job, _where(settings))
        wanted = None
        if settings.check:
            with shown.stage("the same in one process"):
                wanted = reference(job)
    figures = [figures_of_rank(report) for report in done.reports]
    row = row_of(composed, done, wanted, figures)
    _write(composed, directory, done, row)
    return row


def _job(composed: ComposedRanks) -> Job:
    settings = composed.settings
    return Job(settings.style, composed.shape, settings.ranks, settings.steps, settings.microbatches)


def _where(settings: RanksSettings) -> Where:
    return Where(settings.device.value, load_hardware(settings.hardware), settings.noise)


def _write(composed: ComposedRanks, directory: RunDirectory, done: Carried[Trained], row: Row) -> None:
    settings = composed.settings
    directory.text(CONFIG, composed.yaml)
    directory.rows([row])
    directory.text("table.txt", to_text([table_of(row)]))
    directory.text("table.md", to_markdown([table_of(row)]))
    for rank, report in enumerate(done.reports):
        directory.json(f"reports/rank-{rank}.json", document_to_raw(report))
    if settings.plots and any(report.spans for report in done.reports):
        from experiments.plots import png_bytes, svg_text  # half a second
        from experiments.ranks.pictures import ranks_figure

        end_us = max(report.makespan_us for report in done.reports)
        title = f"The last step of {settings.style} on {settings.ranks} simulated devices"
        figure = ranks_figure(done.reports, title, end_us * (1 - 1 / settings.steps))
        directory.text("lanes.svg", svg_text(figure))
        directory.binary("lanes.png", png_bytes(figure))
