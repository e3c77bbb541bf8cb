"""Runs the steps of `make gpu` one after the other, each within its time, none stopping the next; standard library."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO

from experiments.gpu.facts import BASIC, Facts, facts
from experiments.gpu.steps import ROOT, SECONDS_LEFT, Places, Step, steps_on

SECONDS = 530.0
"""For all steps: nine minutes, what a lent machine's ten leave for its start, less what ending the last may take."""
PATIENCE_S = 3.0
"""From asking a step to end to killing it."""
LAST_S = 45.0
"""A step that begins one thing after the other begins nothing in its last seconds, as far as it has more."""
SHORTEST_S = 1.0
"""Less than this is no time for a step."""
BRINGING = ("wheels", "native")
"""Steps after which nothing that was lacking need be lacking still."""
MOST_LOG_BYTES = 8 << 20
MOST_FILE_BYTES = 16 << 20
"""A larger result may not come back from a lent machine."""
LOG, SUMMARY = "log.txt", "summary.json"
Ended = Literal["ok", "failed", "too long", "lacks", "no time"]


@dataclass(frozen=True)
class Outcome:
    """How a step ended, after how long, and a sentence: what it lacks, or the last that it said."""

    step: str
    ended: Ended
    seconds: float
    said: str

    def line(self) -> str:
        """As it is shown."""
        return f"  {self.step:<16} {self.ended:<9} {self.seconds:6.1f} s  {self.said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; the exit code is 0 unless a step failed or took too long: what a machine lacks is no failure."""
    given = _given(arguments)
    out: Path = given.out
    with tempfile.TemporaryDirectory(prefix="bayplan-gpu-") as folder:
        places = Places(out, Path(given.wheels).resolve(), Path(folder) / "site")
        steps = [step for step in steps_on(given.device, places) if not given.only or step.name in given.only]
        _forget(out, steps)
        outcomes, found = run_steps(steps, places, given.seconds)
        rows = _rows(Path(folder) / "compare" / "rows.jsonl")
    large = _write(out, given.device, found, outcomes, rows)
    if large:
        print(f"over {MOST_FILE_BYTES >> 20} MiB, which may be too large to be carried back: {', '.join(large)}")
    print(f"results are in {out}: {', '.join(sorted(path.name for path in out.iterdir()))}", flush=True)
    return 1 if any(one.ended in ("failed", "too long") for one in outcomes) else 0


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make gpu", usage="%(prog)s ARGS=…", description="The first nine minutes on a machine with a GPU."
    )
    parser.add_argument("--out", default=os.environ.get("OUT", "runs/gpu"), help="a folder for at most 7 files")
    parser.add_argument(
        "--wheels", default="gpu-wheels", help="what `make gpu-wheels` gathered, if it was carried here"
    )
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda", help="sim: a rehearsal without a GPU")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all steps together")
    parser.add_argument("--only", action="append", default=[], help="only this step; repeatable")
    given = parser.parse_args(arguments)
    known = [step.name for step in steps_on(given.device, Places(Path(), Path(), Path()))]
    strange = [name for name in given.only if name not in known]
    if strange:
        parser.error(f"--only {strange[0]!r} is no step: choose of {', '.join(known)}")
    if not 0 < given.seconds < float("inf"):
        parser.error(f"--seconds is {given.seconds}: give more than 0, as in --seconds 530")
    given.out = Path(given.out).resolve()
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=given.out):
            pass
    except OSError as error:
        parser.error(f"--out {given.out} is no folder to write into ({error.strerror}): choose another place")
    return given


def _forget(out: Path, steps: Sequence[Step]) -> None:
    """Remove what an earlier run left of the files that these steps write or add to, so that none is taken for new."""
    for name in {LOG, SUMMARY, *(step.result for step in steps if step.result)}:
        (out / name).unlink(missing_ok=True)


def run_steps(steps: Sequence[Step], places: Places, seconds: float) -> tuple[list[Outcome], Facts]:
    """Run each step that has what it needs; time that one leaves is the next ones', none's own is taken away."""
    environment = _environment(places)
    began, granted = time.monotonic(), 0.0
    share = seconds / sum(step.limit_s for step in steps) if steps else 0.0
    outcomes: list[Outcome] = []
    found: Facts | None = None
    (places.out / LOG).write_text("")
    with (places.out / LOG).open("a", encoding="utf-8") as log:
        for step in steps:
            granted += step.limit_s * share
            if outcomes and outcomes[-1].step in BRINGING:
                found = None
            if step.needs and found is None:
                found = facts(environment)
            left = began + granted - time.monotonic()
            lacking = [] if found is None else found.lacking(step.needs)
            outcomes.append(_run(step, lacking, {**environment, **step.environment}, left, log))
            print(outcomes[-1].line(), flush=True)
    _cut(places.out / LOG)
    return outcomes, found or facts(environment)


def _environment(places: Places) -> dict[str, str]:
    """Carried modules and programs first; deterministic cuBLAS, as losses are compared bit by bit."""
    paths = [str(places.site), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PATH": os.pathsep.join([str(places.site / "bin"), os.environ.get("PATH", "")]),
        "PYTHONUNBUFFERED": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }


def _run(step: Step, lacking: list[str], environment: Mapping[str, str], limit_s: float, log: TextIO) -> Outcome:
    if lacking:
        return _logged(log, Outcome(step.name, "lacks", 0.0, "; ".join(lacking)))
    if limit_s < SHORTEST_S:
        return _logged(log, Outcome(step.name, "no time", 0.0, "the steps before it took all of theirs"))
    words = [word.replace(SECONDS_LEFT, f"{max(limit_s - LAST_S, limit_s / 2):.0f}") for word in step.words]
    print(f"== {step.name}: {' '.join(words)} (at most {limit_s:.0f} s)", file=log, flush=True)
    place, began = Path(log.name).stat().st_size, time.monotonic()
    with subprocess.Popen(
        words, cwd=ROOT, env=dict(environment), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    seconds = time.monotonic() - began
    said = _last_line(Path(log.name), place)
    if code is None:
        return _logged(log, Outcome(step.name, "too long", seconds, f"ended after {limit_s:.0f} s; last: {said}"))
    return _logged(log, Outcome(step.name, "ok" if code == 0 else "failed", seconds, said))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the step with all that it started, also where it has ended by itself: what it left would disturb the next."""
    if process.poll() is None:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _logged(log: TextIO, outcome: Outcome) -> Outcome:
    print(f"== {outcome.line().strip()}", file=log, flush=True)
    return outcome


def _last_line(path: Path, place: int) -> str:
    with path.open("rb") as file:
        file.seek(place)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else "no word"


def _cut(path: Path) -> None:
    """A log that grew too large keeps its end."""
    if path.stat().st_size > MOST_LOG_BYTES:
        path.write_bytes(path.read_bytes()[-MOST_LOG_BYTES:])


def _rows(path: Path) -> list[object]:
    """What `compare` found, if it did."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _write(out: Path, device: str, found: Facts, outcomes: Sequence[Outcome], rows: Sequence[object]) -> list[str]:
    """The summary; returns the results that are too large."""
    large = sorted(path.name for path in out.iterdir() if path.is_file() and path.stat().st_size > MOST_FILE_BYTES)
    told = {
        "device": device,
        "name": found.device,
        "python": found.python,
        "torch": found.torch,
        "lacking": found.lacking((*BASIC, "native", device)),
        "cores": os.cpu_count(),
        "compiler": shutil.which("c++") is not None,
        "steps": [asdict(one) for one in outcomes],
        "compare": rows,
        "too_large": large,
    }
    (out / SUMMARY).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return large


if __name__ == "__main__":
    sys.exit(main())
