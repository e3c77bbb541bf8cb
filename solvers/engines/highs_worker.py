"""The child process that holds HiGHS: highspy and ortools ship clashing libraries and cannot live in one process.

Run as a script with the number of an inherited socket. It imports nothing of Bayplan, so that ortools never gets in.
Messages, both ways pickled tuples. In: ("solve", id, job), ("stop", id), ("ping",). Out: ("ready", version) or
("unusable", text) once, then ("pong",), ("progress", id, incumbent, bound, x or None), ("done", id, result) and
("failed", id, text). End of file ends the process.
"""

import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

DEVEX = 1
"""Weights of the dual simplex that cost nothing to begin with at a basis; the usual ones cost more than a few steps."""
NEWS_S = 0.1
"""Least time between two reports of bounds."""


class Solving:
    """One model on HiGHS, from its arrays to plain results."""

    def __init__(self, highspy: Any, job: dict[str, Any], send: Any) -> None:
        self._highspy, self._job, self._send = highspy, job, send
        self._stop = threading.Event()
        self._reported = 0.0
        self._solver = highspy.Highs()
        self._is_mip = bool(job["integer"].any())

    def stop(self) -> None:
        """Ask the search to end; it looks at its next callback."""
        self._stop.set()

    def forget(self) -> None:
        """Let the solver go: it holds the callback, which holds this object, in a circle that no collector sees."""
        del self._solver, self._job

    def solve(self) -> dict[str, Any]:
        """Run, and tell an unbounded model from an infeasible one."""
        self._set_options()
        self._pass_model()
        self._watch()
        result = self._run()
        if result["status"] == "kUnboundedOrInfeasible" or (result["status"] == "kUnbounded" and self._is_mip):
            result["status"] = "kUnbounded" if self._feasible() else "kInfeasible"
        elif result["status"] == "kInfeasible":
            result = self._without_presolve()
        return result

    def _without_presolve(self) -> dict[str, Any]:
        """A second opinion: HiGHS 1.15.1's presolve was seen to call a feasible model infeasible."""
        self._solver.setOptionValue("presolve", "off")
        self._solver.clearSolver()
        return self._run()

    def _set_options(self) -> None:
        for name, value in self._job["options"].items():
            if self._solver.setOptionValue(name, value) == self._highspy.HighsStatus.kError:
                raise ValueError(f"HiGHS refused the option {name} = {value}")

    def _pass_model(self) -> None:
        job, highspy = self._job, self._highspy
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(job["cost"]), len(job["row_lower"])
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = job["cost"], job["lower"], job["upper"]
        lp.row_lower_, lp.row_upper_, lp.offset_ = job["row_lower"], job["row_upper"], job["offset"]
        matrix = lp.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.num_col_, matrix.num_row_ = lp.num_col_, lp.num_row_
        matrix.start_ = job["row_start"].astype(np.int32)
        matrix.index_, matrix.value_ = job["row_index"].astype(np.int32), job["row_value"]
        if self._is_mip:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[int(whole)] for whole in job["integer"]]
        if self._solver.passModel(lp) == highspy.HighsStatus.kError:
            raise ValueError("HiGHS refused the model: a coefficient is too large or too small for it")
        start = job["start"]
        if start is not None and self._is_mip:
            known = np.flatnonzero(np.isfinite(start)).astype(np.int32)
            self._solver.setSolution(len(known), known, start[known])
        if job["basis"] is not None and not self._is_mip:
            self._solver.setOptionValue("simplex_dual_edge_weight_strategy", DEVEX)
            basis = self._from_numbers(*job["basis"])
            if self._solver.setBasis(basis) == highspy.HighsStatus.kError:
                raise ValueError("HiGHS refused the basis: it is of a model of other rows or columns")

    def _from_numbers(self, columns: Any, rows: Any) -> Any:
        basis, status = self._highspy.HighsBasis(), self._highspy.HighsBasisStatus
        kinds = [status(number) for number in range(5)]
        basis.col_status = [kinds[number] for number in columns.tolist()]
        basis.row_status = [kinds[number] for number in rows.tolist()]
        basis.valid, basis.alien = True, False
        return basis

    def _numbers(self) -> Any:
        basis = self._solver.getBasis()
        lists = (basis.col_status, basis.row_status)
        return tuple(np.array([int(status) for status in each], dtype=np.int8) for each in lists)

    def _watch(self) -> None:
        kinds = self._highspy.cb.HighsCallbackType
        base = self._highspy._core._Highs  # the wrapper's own callbacks cannot read progress in an interrupt callback
        base.setCallback(self._solver, self._called, None)
        wanted = [kinds.kCallbackSimplexInterrupt, kinds.kCallbackIpmInterrupt]
        if self._is_mip:
            wanted += [kinds.kCallbackMipInterrupt, kinds.kCallbackMipImprovingSolution]
        for kind in wanted:
            base.startCallback(self._solver, kind)

    def _called(self, kind: Any, _message: str, out: Any, back: Any, _data: Any) -> None:
        kinds = self._highspy.cb.HighsCallbackType
        if kind == kinds.kCallbackMipImprovingSolution:
            self._send("progress", out.objective_function_value, out.mip_dual_bound, np.array(out.mip_solution))
            return
        if self._stop.is_set() and back is not None:
            back.user_interrupt = True
        if kind == kinds.kCallbackMipInterrupt and time.monotonic() - self._reported >= NEWS_S:
            self._reported = time.monotonic()
            self._send("progress", out.mip_primal_bound, out.mip_dual_bound, None)

    def _run(self) -> dict[str, Any]:
        solver = self._solver
        self._highspy._core._Highs.run(solver)
        info, status = solver.getInfo(), solver.getModelStatus()
        solution = solver.getSolution()
        proven = status == self._highspy.HighsModelStatus.kOptimal
        has_x = info.primal_solution_status == 2
        has_duals = proven and not self._is_mip and solution.dual_valid
        return {
            "status": str(status).rpartition(".")[2],
            "x": np.array(solution.col_value) if has_x else None,
            "bound": float(info.mip_dual_bound) if self._is_mip else None,
            "objective": float(info.objective_function_value) if has_x else None,
            "row_duals": np.array(solution.row_dual) if has_duals else None,
            "basis": self._numbers() if has_duals and info.basis_validity else None,
        }

    def _feasible(self) -> bool:
        columns = len(self._job["cost"])
        self._solver.changeColsCost(columns, np.arange(columns, dtype=np.int32), np.zeros(columns))
        return bool(self._run()["x"] is not None)


class Worker:
    """Takes jobs from the socket one at a time and listens for a stop while one runs."""

    def __init__(self, connection: Connection, highspy: Any) -> None:
        self._connection, self._highspy = connection, highspy
        self._sending = threading.Lock()
        self._current: tuple[int, Solving] | None = None
        self._threads = 0

    def serve(self) -> None:
        """Until the other end closes."""
        while True:
            message = self._connection.recv()
            if message[0] == "solve":
                threading.Thread(target=self._solve, args=message[1:], daemon=True).start()
            elif message[0] == "ping":
                self._send("pong")
            elif self._current is not None and self._current[0] == message[1]:
                self._current[1].stop()

    def _solve(self, number: int, job: dict[str, Any]) -> None:
        try:
            if job["options"]["threads"] != self._threads:  # HiGHS sizes its thread pool once, unless told to forget it
                self._highspy.Highs.resetGlobalScheduler(True)
                self._threads = job["options"]["threads"]
            solving = Solving(self._highspy, job, lambda kind, *rest: self._send(kind, number, *rest))
            self._current = (number, solving)
            try:
                result = solving.solve()
            finally:
                solving.forget()
            self._send("done", number, result)
        except Exception:
            self._send("failed", number, traceback.format_exc())
        finally:
            self._current = None

    def _send(self, *message: Any) -> None:
        with self._sending:
            try:
                self._connection.send(message)
            except OSError:  # the parent is gone
                os._exit(0)


def main() -> None:
    """Serve the inherited socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    try:
        import highspy
    except ImportError as error:
        connection.send(("unusable", str(error)))
        return
    solver: Any = highspy.Highs
    connection.send(("ready", solver().version()))
    try:
        Worker(connection, highspy).serve()
    except (EOFError, OSError):
        os._exit(0)  # a running solve need not finish: nobody listens


if __name__ == "__main__":
    main()
