"""The steps of `make gpu`: what each runs, how long it may take, and what it needs; standard library only."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from experiments.gpu.facts import BASIC

ROOT = Path(__file__).resolve().parents[2]
MARKS = ("mark.gpu", "ON_EACH")
"""What the text of a test file holds whose tests may be marked gpu; the whole tree takes a minute to collect."""
TEST_S = 60
"""Seconds for one test."""
TESTING = 4
"""Processes that share the tests, where pytest-xdist is there: most of a test's time passes on the host."""
SECONDS_LEFT = "{seconds}"
"""A word that stands for the whole seconds that the step may begin something new in."""
EXPANDABLE = "expandable_segments:True"
LARGER = tuple(f"model.{name}" for name in ("width=1024", "heads=16", "context=512", "batch=16"))
"""A model beside which 20-MiB segments and a matrix product's workspace are small."""
ALLOCATOR = tuple(
    ROOT / "tests" / name
    for name in (
        "csrc/sim/caching/test_rules.py",
        "csrc/sim/caching/test_sequences.py",
        "experiments/gpu/test_traces.py",
    )
)
"""Tests that count every segment, so that they want a process in which nobody has had any."""


@dataclass(frozen=True)
class Step:
    """One step: its words, its share of the nine minutes, and what it cannot do without."""

    name: str
    words: tuple[str, ...]
    limit_s: float
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    result: str = ""
    """The file that it writes into the results' folder, or adds to there."""


@dataclass(frozen=True)
class Places:
    """Where results go, where the carried wheels are, and where they are unpacked."""

    out: Path
    wheels: Path
    site: Path


def steps_on(device: str, places: Places) -> list[Step]:
    """All steps in order, on `cuda`, or on `sim` as a rehearsal; the limits add up to less than nine minutes."""
    out, python = places.out, sys.executable
    ours = (*BASIC, "native", device)
    hardware = str(out / "hardware.json")
    race = (python, "-m", "experiments.gpu.race", str(out / "race.json"), "--device", device, "--seconds")
    traces = (python, "-m", "experiments.gpu.traces", str(out / "traces.json"), "--device", device)
    expandable = {"PYTORCH_ALLOC_CONF": EXPANDABLE}
    larger = LARGER if device == "cuda" else ()
    compare = (
        f"device={device}",
        f"hardware.file={hardware}",
        "model=gpt",
        *larger,
        "steps=4",
        "plots=false",
        "limits.time_s=3",
        "problem.budget_fraction=0.7",
    )
    solver = "solver=[greedy-swap,milp-swap]"
    others = [path for path in marked_files() if path not in ALLOCATOR]
    return [
        Step("versions", (python, "-m", "experiments.gpu.versions"), 10),
        Step("wheels", (python, "-m", "experiments.gpu.wheels", "install", str(places.wheels), str(places.site)), 20),
        Step("native", (python, "-m", "experiments.gpu.native", str(places.wheels)), 105, BASIC),
        Step(
            "probes",
            (python, "-m", "experiments.gpu.probes", str(out / "probes.json"), "--device", device),
            45,
            ours,
            result="probes.json",
        ),
        Step("allocator", _pytest(ALLOCATOR), 15, (*ours, "pytest", "hypothesis")),
        Step(
            "tests",
            _pytest(others, *_shared(), f"--junitxml={out / 'tests.xml'}"),
            85,
            (*ours, "pytest", "hypothesis"),
            result="tests.xml",
        ),
        Step(
            "calibrate",
            (python, "-m", "experiments.cli", "calibrate", "--device", device, "--out", hardware),
            40,
            (*ours, "click", "rich"),
            result="hardware.json",
        ),
        Step("traces", traces, 25, ours, result="traces.json"),
        Step("traces expandable", traces, 15, ours, expandable, "traces.json"),
        Step(
            "compare",
            (python, "-m", "experiments.cli", "compare", *compare, solver, f"run_dir={places.site.parent / 'compare'}"),
            35,
            (*ours, "click", "rich", "hydra", "omegaconf", "scipy", "highspy"),
        ),
        Step("race expandable", (*race, SECONDS_LEFT, "--few"), 60, ours, expandable, "race.json"),
        Step("race", (*race, SECONDS_LEFT), 75, ours, result="race.json"),  # last: it fills what all others leave
    ]


def _pytest(paths: Sequence[Path], *more: str) -> tuple[str, ...]:
    """The tests marked gpu of these files, each failure told at once."""
    files = [str(path.relative_to(ROOT)) for path in paths]
    # The project's own options name plugins that such a machine may lack; a timeout counts where its plugin is.
    plain = ("-o", "addopts=-ra --strict-markers", "-o", f"timeout={TEST_S}", "-o", "junit_logging=system-out")
    options = (
        "-v",
        "--durations=25",
        "-p",
        "no:cacheprovider",
        "-p",
        "experiments.gpu.told",
        "-m",
        "gpu",
        *plain,
        *more,
    )
    return (sys.executable, "-m", "pytest", *options, *files)


def _shared() -> tuple[str, ...]:
    """The option by which several processes share the tests, where there is such."""
    return ("-n", str(TESTING)) if find_spec("xdist") is not None else ()


def marked_files() -> list[Path]:
    """The test files with tests marked gpu."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in found if any(mark in path.read_text(encoding="utf-8") for mark in MARKS)]
