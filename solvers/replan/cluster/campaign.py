"""Many seeds, every policy on each, in parallel processes; it goes on where it was interrupted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from solvers.ir import InvalidInput
from solvers.ir.errors import require_at_least
from solvers.replan.cluster.failures import Failures
from solvers.replan.cluster.parallel import Progress, Task, run_all
from solvers.replan.cluster.policy import Policy
from solvers.replan.cluster.result import RunResult
from solvers.replan.cluster.runs_file import RunsFile, asked, named
from solvers.replan.cluster.setting import ClusterSetting
from solvers.replan.cluster.spread import Spread, ratio


@dataclass(frozen=True)
class Campaign:
    """The results by policy name and seed."""

    runs: Mapping[tuple[str, int], RunResult]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]

    def of(self, policy: str) -> list[RunResult]:
        """The policy's runs in order of seeds."""
        if policy not in self.policies:
            raise InvalidInput(f"policy {policy!r} was not run: choose one of {', '.join(self.policies)}")
        return [self.runs[policy, seed] for seed in self.seeds]

    def throughputs(self, policy: str) -> list[float]:
        """Microbatches a second, in order of seeds."""
        return [result.throughput for result in self.of(policy)]

    def ratio(self, over: str, under: str) -> Spread:
        """The spread of throughput over throughput, seed by seed on the same failures."""
        return ratio(self.throughputs(over), self.throughputs(under))


def campaign(
    setting: ClusterSetting,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    *,
    file: Path | None = None,
    workers: int = 2,
    progress: Callable[[Progress], None] | None = None,
    failures: Mapping[int, Failures] | None = None,
) -> Campaign:
    """Every policy on every seed's failures.

    `file`: finished runs are kept there, one JSON line each, and not run again (another setting or parameter is another
    run). On Ctrl-C runs under way are finished and kept. `workers` processes (1: this one); results do not depend on
    their number. `failures`: what to replay for each seed instead of random ones (traces).
    """
    require_at_least(1, workers=workers)
    if len(set(seeds)) < len(seeds):
        raise InvalidInput("a seed is listed twice: list each once")
    tasks = _tasks(setting, policies, seeds, failures)
    kept = None if file is None else RunsFile(file)
    try:
        runs = run_all(tasks, kept, workers, progress)
    finally:
        if kept is not None:
            kept.close()
    return Campaign(runs, tuple(policies), tuple(seeds))


def _tasks(
    setting: ClusterSetting,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    failures: Mapping[int, Failures] | None,
) -> list[Task]:
    """Seed by seed, so that what an interrupted campaign has done can be compared."""
    asks = {name: asked(setting, policy) for name, policy in policies.items()}
    tasks = []
    for seed in seeds:
        replayed, suffix = None, ""
        if failures is not None:
            if seed not in failures:
                raise InvalidInput(f"seed {seed} has no failures to replay: give failures[{seed}], or leave it out")
            replayed, suffix = failures[seed], named(failures[seed])
        tasks += [Task(setting, name, policy, seed, replayed, asks[name] + suffix) for name, policy in policies.items()]
    return tasks
