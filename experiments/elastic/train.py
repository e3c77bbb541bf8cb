"""`bayplan train experiment=elastic`: a training whose processes fail, compared with one process bit by bit."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from experiments.commands.interrupts import Interrupts
from experiments.compose import keep_hydra
from experiments.elastic.live import Live
from experiments.elastic.log import episodes_of
from experiments.elastic.outcomes import Compared, is_as_promised, row_of, tables_of
from experiments.elastic.settings import ROOT, ComposedElastic, ElasticSettings, read_elastic_settings
from experiments.progress import stages
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import CONFIG, RunDirectory, open_run
from experiments.tables import to_markdown, to_text
from experiments.training.compare import print_rows
from runtime.elastic import Options, Outcome, load_job, parse_kills, train, train_alone
from runtime.elastic.room import require_room
from solvers.ir import InvalidInput, Row

USAGE = """bayplan train experiment=elastic [key=value …]

Trains a small Llama on real text on several processes of this machine, ends some of them, and goes on with the others:
new plans, layers from peers, the same microbatches. Settings (experiments/elastic/settings.py):
  nodes=8 pipeline=2 steps=40 solver=exact-replan policy=auto|dynamic|reroute canonical=true check=true
  kills=2@3.forward+5@8.backward.stop+return@14+fresh@22   NODE@STEP.MOMENT[.stop]: killed, or stopped, there;
      moments: forward backward send recv all-reduce vote update unheard regroup transfer
      return@STEP: a stopped process goes on; fresh@STEP: a new one joins
  checkpoint_dir=PATH checkpoint_every=10 keep_checkpoints=3 resume=false
  save_on_exit=false   true: Ctrl-C, SIGTERM, or the end of this process make a checkpoint, too
  job=MODULE:FACTORY timeout_s=20 hang_s=5 port=0 run_dir=PATH plots=false
A picture of an earlier run: python -m experiments.elastic.pictures RUN_DIR
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: losses or states are not those of one process."""
    composed = read_elastic_settings(argv)
    going_on = replace(composed.settings, force=composed.settings.force or composed.settings.resume)
    directory = open_run(going_on, composed.yaml)
    try:
        with Interrupts(patient=False):  # SIGTERM is as Ctrl-C: no process is left behind
            require_room(directory.path, "what the run leaves", "run_dir")
            keep_hydra(directory, ROOT, argv)
            row = run(composed, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    keep_page(directory)
    print_rows(Console(), [row], tables_of(row), directory)  # what went wrong on the way was said at once, as a warning
    return 0 if is_as_promised(row) else 1


def run(composed: ComposedElastic, directory: RunDirectory) -> Row:
    """The training, the same in one process, and the files of both."""
    settings = composed.settings
    with stages(settings.steps) as shown:
        outcome = _trained(settings, directory, Live(shown, settings.nodes, settings.steps))
        compared = None
        if settings.check:
            shown.expect(None)
            shown.say(f"{settings.steps} steps of the same in one process")
            compared = _compared(settings)
    row = row_of(composed, outcome, compared)
    directory.text(CONFIG, composed.yaml)
    directory.rows([row])
    directory.text("table.txt", to_text(tables_of(row)))
    directory.text("table.md", to_markdown(tables_of(row)))
    if settings.plots:
        from experiments.elastic.pictures import draw, title  # half a second

        draw(directory, episodes_of(outcome.events), title(settings.nodes))
    return row


def _require_in_time(settings: ElasticSettings, steps: Sequence[int]) -> None:
    """Refuse what would never happen, before anything is trained."""
    late = [step for step in steps if step >= settings.steps]
    if late:
        raise InvalidInput(
            f"kills names step {max(late)}, but there are {settings.steps} steps, numbered from 0: train more of them"
        )


def _trained(settings: ElasticSettings, directory: RunDirectory, live: Live) -> Outcome:
    injections, joins = parse_kills(settings.kills)
    _require_in_time(settings, [*(one.step for one in injections), *joins])
    options = Options(
        timeout_s=settings.timeout_s, hang_s=settings.hang_s, canonical=settings.canonical, port=settings.port,
        policy=settings.policy.value, run_dir=directory.path, watch=live.see, injections=injections, joins=joins,
        checkpoint_dir=None if settings.checkpoint_dir is None else Path(settings.checkpoint_dir),
        checkpoint_every=settings.checkpoint_every, keep_checkpoints=settings.keep_checkpoints,
        resume=settings.resume, save_on_exit=settings.save_on_exit,
    )  # fmt: skip
    return train(
        settings.job, nodes=settings.nodes, steps=settings.steps, pipeline=settings.pipeline, solver=settings.solver,
        options=options,
    )  # fmt: skip


def _compared(settings: ElasticSettings) -> Compared:
    made = load_job(settings.job, torch.device("cpu"))
    began = time.perf_counter()
    alone = train_alone(made, settings.steps, canonical=settings.canonical)
    return Compared(alone, (time.perf_counter() - began) * 1e6 / settings.steps)
