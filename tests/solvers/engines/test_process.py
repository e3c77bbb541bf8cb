"""The child that holds HiGHS: kept, replaced when it dies, gone when we go."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from solvers.engines import LinearModel, ModelBuilder, process, solve
from solvers.engines.process import POOL, HighsPool, HighsProcess
from solvers.ir.errors import BayplanError, EngineMissing
from solvers.ir.solution import Limits, Status
from tests.solvers.engines.models import HARD, knapsack, run_python


def idle_pid() -> int:
    """The child that the next solve will use."""
    child = POOL.borrow()
    POOL.give_back(child)
    return child.pid


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def test_one_child_serves_many_solves() -> None:
    solve(knapsack(), engine="highs")
    first = idle_pid()
    solve(knapsack(), Limits(threads=2), engine="highs")
    assert idle_pid() == first


def test_a_child_that_died_idle_is_replaced() -> None:
    solve(knapsack(), engine="highs")
    os.kill(idle_pid(), signal.SIGKILL)
    assert solve(knapsack(), engine="highs").objective == -355


class Lent:
    """Remembers the child that a solve uses, and sends it a signal once it has told a solution and a bound."""

    def __init__(self, patch: pytest.MonkeyPatch, number: signal.Signals) -> None:
        self.children: list[HighsProcess] = []
        self.number = number
        self.hit: int | None = None
        self.borrow = POOL.borrow
        patch.setattr(POOL, "borrow", self.lend)

    def lend(self) -> HighsProcess:
        self.children.append(self.borrow())
        return self.children[-1]

    def watch(self, incumbent: float | None, bound: float | None, _elapsed_s: float) -> bool:
        if incumbent is not None and bound is not None and is_running(self.children[-1].pid):
            os.kill(self.children[-1].pid, self.number)
            self.hit = self.children[-1].pid
        return False


def test_a_child_that_dies_at_work_leaves_its_best_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may kill it for memory: what it had told is kept, what happened is said, the next solve works."""
    lent = Lent(monkeypatch, signal.SIGKILL)
    answer = solve(HARD, Limits(time_s=60), engine="highs", watch=lent.watch)
    assert answer.status is Status.FEASIBLE
    assert answer.x is not None
    assert answer.bound is not None
    assert answer.reason is not None
    assert "killed by signal 9" in answer.reason
    assert not os.path.exists(f"/proc/{lent.hit}")
    assert solve(knapsack(), engine="highs").objective == -355


def test_a_child_that_overruns_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A halted child (SIGSTOP) does not look at its clock; we do, and what it had told is kept."""
    monkeypatch.setattr("solvers.engines.highs.GRACE_S", 0.5)
    lent = Lent(monkeypatch, signal.SIGSTOP)
    for time_s in (1.5, 10, 100):  # a busy machine takes longer to have something to tell
        answer = solve(HARD, Limits(time_s=time_s), engine="highs", watch=lent.watch)
        if lent.hit is not None:
            break
    assert answer.status is Status.FEASIBLE
    assert answer.reason is not None
    assert "overran its time limit" in answer.reason
    assert not os.path.exists(f"/proc/{lent.hit}")


def test_an_idle_child_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PING_S", 0.2)
    pid = idle_pid()
    os.kill(pid, signal.SIGSTOP)
    assert solve(knapsack(), engine="highs").objective == -355
    assert not os.path.exists(f"/proc/{pid}")


def test_a_refused_model_is_an_error_and_the_next_solve_works() -> None:
    builder = ModelBuilder("huge")
    builder.column(0, 1, integer=True, cost=1)
    builder.row([0], [1e300], lower=1)
    with pytest.raises(BayplanError, match="HiGHS refused the model"):
        solve(builder.build(), engine="highs")
    assert solve(knapsack(), engine="highs").objective == -355


def test_no_child_outlives_its_program() -> None:
    code = """
from solvers.engines import solve
from solvers.engines.process import POOL
from tests.solvers.engines.models import knapsack
solve(knapsack(), engine="highs")
child = POOL.borrow()
print(child.pid, flush=True)
LEAK or POOL.give_back(child)
import sys; sys.stdin.read()
"""
    ended = run_python(f"LEAK = False\n{code}", stdin=subprocess.DEVNULL)
    output, errors = ended.communicate(timeout=60)
    assert ended.returncode == 0, errors
    assert wait_for_end(int(output))
    killed = run_python(f"LEAK = True\n{code}", stdin=subprocess.PIPE)
    assert killed.stdout is not None
    pid = int(killed.stdout.readline())
    assert is_running(pid)
    killed.kill()
    killed.communicate(timeout=60)
    assert wait_for_end(pid)


def test_a_forked_copy_starts_its_own_child() -> None:
    pool = HighsPool()
    kept = pool.borrow()
    pool.give_back(kept)
    pool._owner = -1  # as if this were the copy
    other = pool.borrow()
    assert other.pid != kept.pid
    assert kept.alive()
    for child in (kept, other):
        child.kill()
    pool.close()


def test_a_child_that_cannot_start_is_a_missing_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    script = tmp_path / "worker.py"  # type: ignore[operator]
    monkeypatch.setattr(process, "SCRIPT", script)
    script.write_text("raise SystemExit('libhighs.so.1 is broken')")
    with pytest.raises(EngineMissing, match=r"engine highs did not start: .* \(libhighs\.so\.1 is broken\); reinstall"):
        HighsPool().borrow()
    script.write_text(
        "import sys; from multiprocessing.connection import Connection\n"
        "Connection(int(sys.argv[1])).send(('unusable', 'undefined symbol'))"
    )
    with pytest.raises(EngineMissing, match=r"cannot import highspy \(undefined symbol\): reinstall highspy"):
        HighsPool().borrow()


def test_importing_the_room_imports_no_engine() -> None:
    code = """
import sys, time
import numpy, solvers.ir
started = time.process_time()
import solvers.engines
heavy = ("ortools", "highspy", "gurobipy", "scipy", "pandas")
print(time.process_time() - started, [name for name in heavy if name in sys.modules])
"""
    results = [run_python(code).communicate(timeout=60)[0].split(maxsplit=1) for _ in range(3)]
    assert all(modules.strip() == "[]" for _, modules in results)
    assert min(float(seconds) for seconds, _ in results) < 0.1


def test_a_solver_is_let_go_with_its_model() -> None:
    """Each once stayed in the child, held by its own callback: 700 KiB of this model each time."""
    source = np.random.default_rng(0)
    builder = ModelBuilder("many rows")
    builder.columns(400, 0, 1, cost=source.random(400) - 0.5)
    for _ in range(300):
        places = sorted(source.choice(400, 8, replace=False).tolist())
        builder.row(places, source.random(8).tolist(), upper=2.0)
    model = builder.build()
    held = []
    for _ in range(2):
        for _ in range(25):
            assert solve(model, Limits(), "highs").status is Status.OPTIMAL
        child = POOL.borrow()
        held.append(int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]))
        POOL.give_back(child)
    assert held[1] - held[0] < 5 * 2**20 // os.sysconf("SC_PAGE_SIZE")


def flow(upper: float = 9.0, rows: int = 30) -> LinearModel:
    """A linear program whose optimum rises as its first column may be less."""
    random = np.random.default_rng(4)
    builder = ModelBuilder("flow")
    columns = builder.columns(rows, 0, np.where(np.arange(rows) == 0, upper, 40.0), cost=random.integers(1, 9, rows))
    for row in range(rows):
        near = [columns[row], columns[row - 1], columns[0]]
        builder.row(near, random.integers(1, 5, 3), lower=float(random.integers(5, 60)))
    return builder.build()


def test_a_basis_of_other_limits_changes_the_way_not_the_optimum() -> None:
    first = solve(flow(), engine="highs")
    assert first.basis is not None and [len(part) for part in first.basis] == [30, 30]
    for upper in (9.0, 3.0, 0.0):
        plain, again = solve(flow(upper), engine="highs"), solve(flow(upper), engine="highs", basis=first.basis)
        assert again.status is plain.status is Status.OPTIMAL
        assert again.objective == pytest.approx(plain.objective) and again.row_duals is not None
    assert plain.objective is not None and first.objective is not None and plain.objective > first.objective + 1


def test_a_basis_of_another_model_is_refused() -> None:
    basis = solve(flow(), engine="highs").basis
    with pytest.raises(BayplanError, match="other rows or columns"):
        solve(flow(rows=20), engine="highs", basis=basis)
    assert solve(knapsack(), engine="highs", basis=basis).objective == -355  # whole columns: no basis is looked at
