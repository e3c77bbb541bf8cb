"""`bayplan train experiment=lynx_tp2`: recomputation plans executed on several devices, beside what was predicted."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from rich.console import Console

from experiments.compose import keep_hydra
from experiments.progress import stages
from experiments.ranks.carriers import Carried, Where, carried
from experiments.recompute.figures import Executed, digest, equalities, executed
from experiments.recompute.outcomes import PLAIN, Facts, broken, row_of, tables_of
from experiments.recompute.planning import Planned, alike, plan_blocks, with_wrong_times
from experiments.recompute.prediction import predict
from experiments.recompute.programs import Job, Trained, train
from experiments.recompute.settings import ROOT, ComposedRecompute, read_recompute_settings
from experiments.recompute.step_log import StepLog, with_forwards
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import CONFIG, RunDirectory, open_run
from experiments.tables import to_markdown, to_text
from experiments.training.compare import print_rows
from experiments.worlds import load_hardware
from runtime.recompute.policy import BlockPolicy, store_everything, store_nothing
from solvers.ir import Hardware, Row
from solvers.ir.codec import document_to_raw

USAGE = """bayplan train experiment=lynx_tp2 [key=value …]

Trains a byte-level GPT on real text, cut over simulated devices by tensor parallelism: as it is, and under each policy,
which recomputes on the critical path and inside collectives. Losses, gradients, parameters, buffers and random states
are compared bit for bit; step and peak with what was predicted. Settings (experiments/recompute/settings.py):
  ranks=2 steps=20 microbatches=1 inflight=1 precision=float32|bfloat16 budget_share=0.75 policies.NAME='heu groups=2'
  carrier=threads|processes noise=0.1 wrong=0.5 wrong_draws=5 disturbed_steps=4 hardware=sim-cluster model.layers=4
  run_dir=PATH plots=false
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: a bit differs, accesses raced, or no policy had a plan."""
    composed = read_recompute_settings(argv)
    directory = open_run(composed.settings, composed.yaml)
    try:
        keep_hydra(directory, ROOT, argv)
        rows = run(composed, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    keep_page(directory)
    print_rows(Console(), rows, tables_of(rows), directory)
    return 1 if any(map(broken, rows)) or all(row.outcome != "ok" for row in rows[1:]) else 0


@dataclass(frozen=True)
class Runner:
    """Runs jobs of one experiment, and knows what training without a tape gave."""

    composed: ComposedRecompute
    hardware: Hardware

    def job(self) -> Job:
        """What ranks train without a tape."""
        settings = self.composed.settings
        return Job(
            self.composed.shape, settings.ranks, settings.steps, settings.microbatches, settings.inflight,
            settings.precision,
        )  # fmt: skip

    def run(self, job: Job, noise: float = 0.0) -> Carried[Trained]:
        """The job on all ranks."""
        gc.collect()  # what an earlier run left in circles would count in this one's peak
        return carried(self.composed.settings.carrier, train, job, Where("sim", self.hardware, noise))

    def measured(self) -> list[StepLog]:
        """A log of each rank, of a step that stored everything and of one that stored nothing."""
        blocks = self.composed.shape.layers
        measured = tuple(store_everything(blocks)), tuple(store_nothing(blocks))
        done = self.run(replace(self.job(), steps=1, measured=measured))
        return [with_forwards(*one.logs) for one in done.trained]

    def disturbed(self, planned: Planned | None, noise: float) -> Carried[Trained]:
        """Fewer steps, in another world."""
        steps = min(self.composed.settings.disturbed_steps, self.composed.settings.steps)
        policies = None if planned is None else planned.policies
        return self.run(replace(self.job(), steps=steps, policies=policies), noise)


def run(composed: ComposedRecompute, directory: RunDirectory) -> list[Row]:
    """Training without a tape, the measured step, and each policy; the files of all."""
    torch.set_num_threads(1)  # sums in parallel come in another order
    settings = composed.settings
    runner = Runner(composed, load_hardware(settings.hardware))
    directory.text(CONFIG, composed.yaml)
    rows: list[Row] = []
    with stages(2 + len(settings.policies)) as shown:
        with shown.stage("without a tape"):
            plain = runner.run(runner.job())
            noisy = runner.disturbed(None, settings.noise) if settings.noise else None
        with shown.stage("a measured step"):
            logs = runner.measured()
        facts = Facts(executed(plain), None if noisy is None else executed(noisy), logs)
        told = {"digest": digest(plain.trained)}
        rows.append(row_of(composed, PLAIN, "no tape at all", Planned(None), facts, facts.plain, told))
        for name, spec in settings.policies.items():
            with shown.stage(name):
                row, done = _policy(runner, name, spec, facts, plain)
            rows.append(row)
            directory.rows(rows)
            if done is not None:
                _write_run(directory, composed, name, done)
    directory.text("table.txt", to_text(tables_of(rows)))
    directory.text("table.md", to_markdown(tables_of(rows)))
    return rows


def _policy(
    runner: Runner, name: str, spec: str, facts: Facts, plain: Carried[Trained]
) -> tuple[Row, Carried[Trained] | None]:
    """Planned, predicted, executed, and executed again where the world or the profile is another one."""
    composed = runner.composed
    settings, log = composed.settings, facts.logs[0]
    planned = plan_blocks(spec, alike(log), log, settings, facts.plain.peak_bytes)
    if planned.policies is None:
        return row_of(composed, name, spec, planned, facts, None, {}), None
    done = runner.run(replace(runner.job(), policies=planned.policies))
    equal: dict[str, object] = dict(equalities(done.trained, plain.trained))
    more: dict[str, object] = {"counts": [vars(one.counts) for one in done.trained], "digest": digest(done.trained)}
    if settings.noise:
        noisy = runner.disturbed(planned, settings.noise)
        more["noise_step_us"] = executed(noisy).step_us
        more["noise_equal"] = all(equalities(noisy.trained, plain.trained).values())
    if settings.wrong:
        more |= _misled(runner, spec, facts, plain, [(planned.policies, executed(done), True)])
    return row_of(composed, name, spec, planned, facts, executed(done), equal | more), done


Known = list[tuple[tuple[BlockPolicy, ...], Executed, bool]]
"""Policies that ran, what they took, and whether every bit was that of training without a tape."""


def _misled(runner: Runner, spec: str, facts: Facts, plain: Carried[Trained], known: Known) -> dict[str, object]:
    """Plans from several wrong profiles, executed; one that is the right plan, or an earlier one's, ran already."""
    composed, log = runner.composed, facts.logs[0]
    settings, right = composed.settings, len(known)
    drawn: list[tuple[Executed, float]] = []
    equal = True
    for draw in range(settings.wrong_draws):
        layer = with_wrong_times(alike(log), settings.wrong, composed.shape.seed + draw)
        wrong = plan_blocks(spec, layer, log, settings, facts.plain.peak_bytes)
        if wrong.policies is None:
            continue
        done = next((one for one in known if one[0] == wrong.policies), None)
        if done is None:
            other = runner.disturbed(wrong, 0.0)
            done = wrong.policies, executed(other), all(equalities(other.trained, plain.trained).values())
            known = [*known, done]
        drawn.append((done[1], max(predict(one, wrong.policies).step_us for one in facts.logs)))
        equal = equal and done[2]
    if not drawn:
        return {}
    return {
        "wrong_steps_us": [one.step_us for one, _ in drawn],
        "wrong_predicted_steps_us": [predicted for _, predicted in drawn],
        "wrong_peaks_bytes": [one.peak_bytes for one, _ in drawn],
        "wrong_other_plans": len(known) - right,
        "wrong_equal": equal,
    }


def _write_run(directory: RunDirectory, composed: ComposedRecompute, name: str, done: Carried[Trained]) -> None:
    settings = composed.settings
    report = done.reports[0]
    directory.json(f"reports/{name}-rank-0.json", document_to_raw(report))
    if settings.plots:
        from experiments.plots import png_bytes, svg_text  # half a second
        from experiments.recompute.pictures import windows_figure

        title = f"{name}: the last step of rank 0 of {settings.ranks}, and what runs beside its collectives"
        figure = windows_figure(report, title, done.trained[0].step_us[-1])
        directory.text(f"lanes-{name}.svg", svg_text(figure))
        directory.binary(f"lanes-{name}.png", png_bytes(figure))
