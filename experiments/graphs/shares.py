"""Which claims the judge proves: about the shipped instances of all kinds, and about some drawn at random."""

import random
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from experiments.graphs.names import SHIPPED, by_name
from solvers.check import check_plan, prove
from solvers.ir.codec import plan_file, read_problem
from solvers.ir.problem import Problem
from solvers.ir.solution import Limits
from solvers.planner import build_solver

SOLVERS = {
    "swap": "milp-swap", "recompute-graph": "opt", "recompute-layer": "heu", "partition": "dp", "pipeline": "bayplan",
    "replan": "exact-replan", "layout": "exact-layout",
}  # fmt: skip
"""The solver of each kind that bounds its plans."""
WORK = 0.2
DRAWN, SEED = 10, 0
"""Random instances of each kind."""
SHAPES = ("gpt-1.3b", "gpt-7b", "gpt-13b", "llama-2-7b", "llama-3-8b", "mistral-7b", "gpt2-10b", "gpt2-15b")
DEVICES = ("a100-sxm-80", "a100-pcie-40", "h200", "lynx-nvlink", "protrain-a100")
GRAPHS = ("layered", "wide", "tree", "series-parallel", "dense", "nested", "recurrent", "transformer")
"""Families of whole graphs; the other kinds are of shapes."""


def shares(known: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """A row for each instance that is not `known`: what is claimed of it, and whether it is proven."""
    for path in sorted(SHIPPED.glob("*.json")):
        if path.stem not in known:
            problem, sha256 = read_problem(path)
            yield {"instance": path.stem, "drawn": False, **_judged(problem, sha256)}
    for kind in SOLVERS:
        yield from _drawn(kind, known)


def _judged(problem: Problem, sha256: str | None) -> dict[str, Any]:
    """What its solver answers, and what of that is proven."""
    found = build_solver(SOLVERS[problem.KIND], {}).solve(problem, Limits(work=WORK))
    file = plan_file(found, problem.KIND, sha256)
    proof = prove(problem, file, check_plan(problem, file, sha256))
    return {
        "kind": problem.KIND, "solver": found.solver, "status": found.status.value, "claim": proof.sentence,
        "proven": proof.is_proven, "spent_s": round(found.solve_time_s, 2),
    }  # fmt: skip


def _drawn(kind: str, known: Collection[str]) -> Iterator[dict[str, Any]]:
    """Random instances of a kind, the same ones each time."""
    source = random.Random(f"{kind} {SEED}")
    for number in range(DRAWN):
        name, problem = f"{kind} {number}", None
        while problem is None:  # `make` refuses what cannot be cut or does not fit
            problem = _graph(source) if kind == "recompute-graph" else _made(kind, source)
        if name not in known:
            yield {"instance": name, "drawn": True, **_judged(problem, None)}


def _graph(source: random.Random) -> Problem:
    family, ops, seed = source.choice(GRAPHS), source.randrange(20, 200), source.randrange(100)
    return by_name(f"{family}-{ops}-s{seed}@{source.uniform(0.05, 0.9):.2f}")


def _made(kind: str, source: random.Random) -> Problem | None:
    """What `bayplan make` makes of a shape, cut somehow; None where it refuses."""
    stages = 1 if kind in ("swap", "layout") else source.choice((2, 4, 8))
    asked = ["--shape", source.choice(SHAPES), "--hardware", source.choice(DEVICES)]
    asked += ["--microbatch", str(source.choice((1, 2, 4, 8))), "--budget", f"{source.randrange(30, 95)}%"]
    if kind != "layout":
        asked += ["--tensor", str(source.choice((1, 2, 4))), "--pipeline", str(stages)]
    if kind == "swap":
        asked += ["--layers", str(source.randrange(2, 12))]
    if kind == "replan":
        parallel = source.randrange(2, 5)
        failed = sorted(source.sample(range(parallel * stages), source.randrange(1, parallel)))
        asked += ["--data-parallel", str(parallel), "--microbatches", str(8 * parallel), "--restart", "60"]
        asked += ["--failed", ",".join(map(str, failed)), "--interval", "3600"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "problem.json"
        command = [sys.executable, "-m", "experiments.cli", "make", kind, *asked, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return read_problem(out)[0] if done.returncode == 0 else None
