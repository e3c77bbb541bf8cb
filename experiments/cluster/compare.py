"""`bayplan compare` for a cluster: its lives under every policy, and the planners' answers after failures."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from experiments.cluster.lives import Lives, figures_of, live, live_through, make_setting, require_trained, traced
from experiments.cluster.planning import PLANNERS, Answer, DrawnFailure, answers, failed_problem
from experiments.cluster.planning import figures_of as plan_figures
from experiments.cluster.policies import make_policies
from experiments.cluster.remarks import remarks
from experiments.cluster.settings import ROOT, ClusterSettings, ComposedCluster, make_grid, read_cluster_settings
from experiments.cluster.tables import LIVES, PLANS, cell_tables, lives_table, plans_table, remark_lines
from experiments.cluster.words import about, asked_of, failures_of, provenance
from experiments.grid import Cell
from experiments.grid import Grid as SweptGrid
from experiments.progress import Stages, stages
from experiments.reporting.keep import keep_page
from experiments.rows import commit
from experiments.run_directory import CONFIG, RunDirectory, same_settings
from experiments.study import Ran, Study, error_lines
from experiments.tables import Table, to_markdown, to_text
from solvers.ir import InvalidInput, Limits, Row
from solvers.ir.codec import problem_to_raw, read_text
from solvers.ir.replan import ReplanProblem
from solvers.replan.cluster import Cluster, ClusterSetting, Failures, Progress

RUNS = "runs.jsonl"
HOUR_US = 3600 * 10**6
USAGE = """bayplan compare experiment=ft_32 [key=value …] [-m]

Trains a model on a failing cluster, on paper: every policy meets the same failures, life by life, and the planners
plan after failures. Settings (conf/experiment):
  shape=NAME cluster=NAME          names in conf/model/shapes and conf/hardware, or paths
  grid=8x4 grid=128x16x80          pipelines x stages, and the layers if not the shape's; microbatches=N of a pipeline
  tensor=N                         devices that share each layer, and fail as one
  gb_per_s=X restart_s=X           what a device sends to another node; the time of a transition, transfers included
  seeds=100 first_seed=0           lives; hours=9 rate_per_h=0.1 of a device, repair_h=X for failed ones to return
  trace=PATH start=empty           one life, from a file of lines MILLISECONDS,add|remove,NODE; public traces of spot
                                   instances begin with no node (without start: with all, numbered from 0)
  spares=N                         nodes beyond the grid
  policies.NAME.KEY=VALUE          as in policies.oobleck.restart_s=60; ~policies.NAME removes one (policies.py)
  lost=N draws=M                   plan after N failures, for M choices of the failed nodes
  head=false sequence=N flash=false workers=N plots=false
  run_dir=PATH                     of an interrupted run with the same settings goes on where that ended
  -m, --multirun   sweep over key=value,value lists, ranges, globs, and the grid that the experiment file names; a sweep
                   that is given an earlier one's folder (run_dir=…) goes on where that ended
  hydra/launcher=processes hydra.launcher.workers=2   cells in so many processes; others, and sweepers: conf/README.md
  force=true       overwrite a folder that holds another run or sweep
"""


@dataclass(frozen=True)
class Found:
    """What an experiment came to: its lives and its plans, where they were asked for, and its rows."""

    lives: Lives | None
    rows: list[Row]


def require_answerable(settings: ClusterSettings) -> None:
    """Raise `InvalidInput` for settings that cannot be answered, before anything is written.

    That is: settings that contradict each other, a trace with a line that means nothing, and a grid that trains through
    failures but does not fit a device.
    """
    setting = make_setting(settings)
    if not settings.lives:
        return
    if not settings.policies:
        raise InvalidInput("policies is empty: leave at least one of them in")
    make_policies(settings.policies)
    failures = traced(settings, setting)
    if failures is not None:
        _require_within(settings, failures)
    Cluster(setting).initial(frozenset(range(setting.problem.nodes)))


def _require_within(settings: ClusterSettings, failures: Failures) -> None:
    """Raise `InvalidInput` for a trace that begins when the run has ended: nothing of it would be seen."""
    first_h = failures.events[0].at_us / HOUR_US
    if first_h >= settings.hours:
        raise InvalidInput(
            f"{settings.trace} begins {first_h:.3g} h into the run, which ends after {settings.hours:g} h: raise hours"
        )


def start_anew(composed: ComposedCluster, directory: RunDirectory) -> None:
    """Write the settings; lives of a run with other settings, which `force` overwrites, do not go on."""
    path = directory.path / CONFIG
    if path.exists() and not same_settings(read_text(path), composed.yaml):
        (directory.path / RUNS).unlink(missing_ok=True)
    directory.text(CONFIG, composed.yaml)


def run_experiment(composed: ComposedCluster, directory: RunDirectory, shown: Stages | None) -> Found:
    """Live, plan, and write everything; lives that the folder holds already are not lived again."""
    settings, setting = composed.settings, make_setting(composed.settings)
    lives, rows = None, []
    if settings.lives:
        failures = traced(settings, setting)
        lives = _lives(settings, setting, failures, directory, shown)
        require_trained(settings, lives)
        told = remarks(settings, setting, failures)
        rows += [_life_row(settings, lives, name, told.get(name)) for name in lives.runs]
    if settings.lost:
        rows += _plan_rows(settings, setting.problem, directory)
    tables = tables_of(settings, rows)
    directory.rows(rows)
    directory.text("table.txt", to_text(tables))
    directory.text("table.md", to_markdown(tables))
    if lives is not None and settings.plots:
        _write_pictures(settings, lives, directory)
    return Found(lives, rows)


def _lives(
    settings: ClusterSettings,
    setting: ClusterSetting,
    failures: Failures | None,
    directory: RunDirectory,
    shown: Stages | None,
) -> Lives:
    policies = make_policies(settings.policies)
    if failures is not None:
        return live_through(setting, policies, failures)
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    if shown is not None:
        shown.expect(len(seeds) * len(policies))

    def tell(progress: Progress) -> None:
        if shown is not None:
            one = progress.result
            shown.say("lives" if one is None else f"{one.policy}, life {one.seed}")
            shown.reach(progress.done)

    return live(setting, policies, seeds, file=directory.path / RUNS, workers=settings.workers, tell=tell)


def _life_row(settings: ClusterSettings, lives: Lives, policy: str, remark: str | None) -> Row:
    conf = settings.policies[policy]
    given = {name: value for name, value in vars(conf).items() if value is not None and name != "policy"}
    asked = {
        "what": LIVES,
        "policy": policy,
        "kind": conf.policy.value,
        **given,
        **asked_of(settings),
        **failures_of(settings),
    }
    seed = settings.first_seed if settings.trace is None else 0
    row = _row(settings, asked, figures_of(lives, policy), None, seed)
    return row if remark is None else msgspec.structs.replace(row, reason=remark)


def _plan_rows(settings: ClusterSettings, problem: ReplanProblem, directory: RunDirectory) -> list[Row]:
    """One row for each planner; the draws' problems are written, so that anyone can solve and check them."""
    grid, found = make_grid(settings), dict[str, list[Answer]]()
    interval_us = round(HOUR_US / (settings.rate_per_h * settings.tensor))
    for draw in range(settings.draws):
        failed = failed_problem(
            problem,
            grid.depth,
            grid.data,
            DrawnFailure(
                lost=settings.lost,
                draw=settings.first_seed + draw,
                restart_us=round(settings.restart_s * 10**6),
                interval_us=interval_us,
                bytes_per_s=round(settings.gb_per_s * 10**9),
            ),
        )
        directory.json(f"problems/draw-{draw}.json", problem_to_raw(failed))
        for one in answers(failed, Limits(threads=1)):
            found.setdefault(one.solver, []).append(one)
    return [_plan_row(settings, name, found[name]) for name in PLANNERS]


def _plan_row(settings: ClusterSettings, planner: str, found: Sequence[Answer]) -> Row:
    asked = {
        "what": PLANS,
        "policy": planner,
        **asked_of(settings),
        **{name: getattr(settings, name) for name in ("lost", "draws", "rate_per_h")},
    }
    without = [one.solution.reason for one in found if one.solution.plan is None]
    reason = without[0] if len(without) == len(found) else None
    return _row(settings, asked, plan_figures(found), reason, settings.first_seed)


def _row(
    settings: ClusterSettings, asked: dict[str, Any], figures: dict[str, Any], reason: str | None, seed: int
) -> Row:
    return Row(
        experiment=settings.name,
        asked=asked,
        outcome="ok" if reason is None else "infeasible",
        figures=figures,
        provenance=provenance(settings),
        commit=commit(),
        seed=seed,
        reason=reason,
    )


def tables_of(settings: ClusterSettings, rows: Sequence[Row]) -> list[Table]:
    """What was asked for."""
    tables = []
    if any(row.asked["what"] == LIVES for row in rows):
        tables.append(lives_table(rows, about(settings)))
    if any(row.asked["what"] == PLANS for row in rows):
        tables.append(plans_table(rows, ["grid", "lost"], about(settings)))
    return tables


def _write_pictures(settings: ClusterSettings, lives: Lives, directory: RunDirectory) -> None:
    from experiments.cluster.pictures import lives_figure
    from experiments.plots import png_bytes, svg_text

    figure = lives_figure(lives, about(settings), settings.paper)
    directory.text("lives.svg", svg_text(figure))
    directory.binary("lives.png", png_bytes(figure))


class ClusterStudy:
    """A cluster's lives under every policy, and plans after failures."""

    usage = USAGE
    root = ROOT

    def read(self, overrides: Sequence[str]) -> ComposedCluster:
        """As `Study`."""
        return read_cluster_settings(overrides)

    def composed(self, settings: object, yaml: str) -> ComposedCluster:
        """As `Study`."""
        return ComposedCluster(cast("ClusterSettings", settings), yaml)

    def require(self, composed: ComposedCluster) -> None:
        """As `require_answerable`."""
        require_answerable(composed.settings)

    def run(self, composed: ComposedCluster, directory: RunDirectory) -> Ran:
        """Live, plan, and write everything; an interrupted run in this folder goes on."""
        began = time.perf_counter()
        start_anew(composed, directory)
        with stages() as shown:
            rows = run_experiment(composed, directory, shown).rows
        tables = tables_of(composed.settings, rows)
        return Ran(rows, tables, remark_lines(rows), f"{time.perf_counter() - began:.1f} s; ")

    def exit_code(self, rows: Sequence[Row]) -> int:
        """0, whatever the rows say."""
        return 0

    def run_cell(self, cell: Cell[ComposedCluster]) -> list[Row]:
        """Lived through and planned, without progress."""
        require_answerable(cell.composed.settings)
        rows = run_experiment(cell.composed, cell.folder, None).rows
        keep_page(cell.folder)
        return rows

    def objective(self, rows: Sequence[Row]) -> float:
        """Microseconds a sample of the policy that trains fastest, or the objective of the best plan."""
        speeds = [row.figures["samples_per_s"]["mean"] for row in rows if "samples_per_s" in row.figures]
        plans = [row.figures["objective_us"] for row in rows if row.figures.get("objective_us") is not None]
        return 1e6 / max(speeds) if any(speeds) else min(plans, default=math.inf)

    def in_order(self, cells: Sequence[Cell[ComposedCluster]]) -> Sequence[Cell[ComposedCluster]]:
        """As given."""
        return cells

    def sweep_tables(self, rows: Sequence[Row], axes: Sequence[str]) -> list[Table]:
        """Plans and lives of all cells."""
        return cell_tables(rows, axes)

    def draw_sweep(self, grid: SweptGrid[ComposedCluster], rows: Sequence[Row]) -> None:
        """Nothing: each cell has its pictures."""

    def sweep_lines(self, rows: Sequence[Row]) -> list[str]:
        """The cells at fault, and what is to be said of others."""
        return [*error_lines(rows), *remark_lines(rows)]

    def sweep_exit_code(self, rows: Sequence[Row]) -> int:
        """0, whatever the cells say."""
        return 0


STUDY: Study[ComposedCluster] = ClusterStudy()
