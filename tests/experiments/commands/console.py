"""The command line as tests use it: in this process, or in one of its own; and a problem small enough to do by hand."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.cli import main
from solvers.ir import OpGraph, SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.ir.codec import document_to_raw, problem_to_raw, write_json
from solvers.ir.graph import Op, Phase, Tensor

ROOT = Path(__file__).resolve().parents[3]
LLAMA = ROOT / "experiments" / "instances" / "swap-llama2-32l.json"


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def figure(self, name: str) -> str:
        """The value printed beside a name."""
        found = [
            line.strip().removeprefix(name).strip() for line in self.out.splitlines() if line.strip().startswith(name)
        ]
        assert len(found) == 1, (name, self.out)
        return found[0]


def call(*arguments: object) -> Outcome:
    """One command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def start(*arguments: object, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """One command in a process and a terminal group of its own, with the tests' fake solvers."""
    script = "import sys; from tests.experiments.commands.fakes import run; sys.exit(run(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "150"}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, env=environment, text=True, process_group=0, **piped)


def refused(outcome: Outcome, code: int = 2) -> str:
    """The one sentence of a refusal: on one line of stderr, with nothing on stdout."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert outcome.err.startswith("bayplan: ")
    return lines[0].removeprefix("bayplan: ")


def tiny_problem(budget_bytes: int = 150) -> SwapProblem:
    """Six ops of 10 us; tensor A (60 bytes, 20 us a transfer) is used at ops 0 and 5.

    By hand, at 150 bytes: out 10-30, so op 2 waits until 30; memory lets A back at op 4 (start 50), in 50-70, so op 5
    runs 70-80. Base 60. The least budget is 140: ops 2 and 3 need 200, less A.
    """
    memory = (100, 150, 200, 200, 150, 100)
    phases: tuple[Phase, ...] = ("forward", "forward", "forward", "backward", "backward", "backward")
    return SwapProblem(
        name="tiny",
        budget_bytes=budget_bytes,
        ops=tuple(SwapOp(name=f"op{number}", time_us=10, phase=phase) for number, phase in enumerate(phases)),
        memory_bytes=memory,
        tensors=(SwapTensor(id="A", bytes=60, last_forward_use=0, first_backward_use=5),),
        link=SwapLink(out_bytes_per_s=3_000_000, in_bytes_per_s=3_000_000, latency_us=0),
    )


def write_problem(path: Path, budget_bytes: int = 150) -> Path:
    """The tiny problem as a file."""
    write_json(path, problem_to_raw(tiny_problem(budget_bytes)))
    return path


def write_graph(path: Path) -> Path:
    """The tiny problem's step as a graph, with megabytes for bytes: one activation waits from op 0 to op 5."""
    problem = tiny_problem()
    tensors = (Tensor(id="A", bytes=60_000_000, born=0, uses=(5,), saved=True, kind="activation"),)
    inputs = {0: ((), ("A",)), 5: (("A",), ())}
    ops = tuple(
        Op(name=op.name, phase=op.phase, time_us=op.time_us * 1000, inputs=reads, outputs=writes)
        for op, (reads, writes) in ((op, inputs.get(number, ((), ()))) for number, op in enumerate(problem.ops))
    )
    memory = tuple(size * 1_000_000 for size in problem.memory_bytes)
    write_json(path, document_to_raw(OpGraph(name="tiny step", ops=ops, tensors=tensors, memory_bytes=memory)))
    return path
