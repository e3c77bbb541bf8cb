"""HiGHS (open source, LP and MILP) in a child process."""

import contextlib
import itertools
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from solvers.engines.answer import Answer
from solvers.engines.claim import Claim, Verdict, judge
from solvers.engines.model import Basis, FloatArray, LinearModel
from solvers.engines.process import POOL, HighsProcess, ProcessDied
from solvers.engines.search import Progress, Report, follow
from solvers.ir.errors import BayplanError
from solvers.ir.solution import Limits, Watch

GRACE_S = 10.0
"""Seconds after the time limit, or a stop, at which its process is ended: HiGHS checks its clock between steps."""

_WHY = {
    "kTimeLimit": "the time limit was reached",
    "kSolutionLimit": "the work limit (nodes) was reached",
    "kIterationLimit": "the work limit was reached",
    "kInterrupt": "it was interrupted",
    "kMemoryLimit": "it ran out of memory",
}
_VERDICTS = {"kOptimal": Verdict.PROVEN, "kInfeasible": Verdict.INFEASIBLE, "kUnbounded": Verdict.UNBOUNDED}
_numbers = itertools.count(1)


def solve(
    model: LinearModel,
    limits: Limits,
    watch: Watch | None = None,
    start: FloatArray | None = None,
    basis: Basis | None = None,
) -> Answer:
    """Solve on HiGHS; `limits.work` counts branch-and-bound nodes (an LP has none)."""
    process = POOL.borrow()
    run = _Run(process, limits, _job(model, limits, start) | {"basis": basis})
    try:
        finished = follow(run, run.stop, watch, process.terminate)
    except BaseException:
        process.kill()  # it may still search: a fresh child is cheaper than a confused one
        raise
    POOL.give_back(process)
    claim = finished.result
    if finished.stopped is not None and claim.verdict is Verdict.STOPPED:
        claim = replace(claim, why=f"{claim.engine}: {finished.stopped}")
    answer = judge(model, claim, start, lambda x: _with_integers_fixed(model, limits, x))
    return replace(answer, interrupted=finished.interrupted)


def _with_integers_fixed(model: LinearModel, limits: Limits, x: FloatArray) -> Claim:
    """The LP that is left when the integer columns stand."""
    process = POOL.borrow()
    job = _job(model, limits, None)
    fixed = {
        "lower": np.where(model.integer, x, model.lower),
        "upper": np.where(model.integer, x, model.upper),
        "integer": np.zeros_like(model.integer),
    }
    run = _Run(process, limits, job | fixed)
    try:
        return run(lambda _: None)
    finally:
        POOL.give_back(process)


def _job(model: LinearModel, limits: Limits, start: FloatArray | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "output_flag": False,
        "time_limit": float(limits.time_s),
        "mip_rel_gap": float(limits.gap),
        "threads": limits.threads,
        "parallel": "off" if limits.threads == 1 else "on",
        "random_seed": limits.seed,
    }
    if limits.work is not None:
        options["mip_max_nodes"] = int(min(limits.work, 2**31 - 1))
    arrays = ("cost", "lower", "upper", "integer", "row_start", "row_index", "row_value", "row_lower", "row_upper")
    return {"options": options, "offset": model.offset, "start": start, "basis": None} | {
        name: getattr(model, name) for name in arrays
    }


@dataclass(slots=True)
class _Best:
    """What the child has told so far: it survives the child."""

    x: FloatArray | None = None
    bound: float | None = None


class _Run:
    """One job on one child: sends it, passes its news on, and ends the child when it no longer listens."""

    def __init__(
        self,
        process: HighsProcess,
        limits: Limits,
        job: dict[str, Any],
    ) -> None:
        self._process, self._number, self._job = process, next(_numbers), job
        self._deadline = time.monotonic() + limits.time_s + GRACE_S
        self._best = _Best()
        self._engine = f"HiGHS {process.version}"

    def stop(self) -> None:
        """Ask the child to end its search; it is killed if it has not by `GRACE_S`."""
        self._deadline = min(self._deadline, time.monotonic() + GRACE_S)
        with contextlib.suppress(ProcessDied):  # the running receive sees it too
            self._process.send("stop", self._number)

    def __call__(self, report: Report) -> Claim:
        try:
            self._process.send("solve", self._number, self._job)
            return self._claimed(self._listen(report))
        except ProcessDied as error:
            return self._remains(str(error))

    def _listen(self, report: Report) -> dict[str, Any]:
        while True:
            message = self._process.receive(0.5)
            if message is None:
                if time.monotonic() > self._deadline:
                    self._process.terminate()
                    raise ProcessDied("HiGHS overran its time limit and its process was ended")
                continue
            kind, number, *rest = message
            if number != self._number:
                continue  # news of an earlier job
            if kind == "done":
                result: dict[str, Any] = rest[0]
                return result
            if kind == "failed":
                raise BayplanError(f"HiGHS could not take the model: {rest[0].strip().splitlines()[-1]}")
            self._note(report, *rest)

    def _note(self, report: Report, incumbent: float, bound: float, x: FloatArray | None) -> None:
        if x is not None:
            self._best.x = x
        if np.isfinite(bound):
            self._best.bound = bound if self._best.bound is None else max(bound, self._best.bound)
        report(Progress(incumbent, bound))

    def _claimed(self, result: dict[str, Any]) -> Claim:
        verdict = _VERDICTS.get(result["status"], Verdict.STOPPED)
        is_lp_optimum = verdict is Verdict.PROVEN and result["bound"] is None
        return Claim(
            engine=self._engine,
            verdict=verdict,
            x=result["x"],
            bound=result["objective"] if is_lp_optimum else result["bound"],
            row_duals=result["row_duals"],
            basis=result["basis"],
            why=None
            if verdict is Verdict.PROVEN
            else f"{self._engine}: {_WHY.get(result['status'], result['status'])}",
        )

    def _remains(self, why: str) -> Claim:
        return Claim(engine=self._engine, verdict=Verdict.STOPPED, x=self._best.x, bound=self._best.bound, why=why)
