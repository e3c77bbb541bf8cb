"""The driver ends on any machine and by its limits, says how each step ended, and leaves seven files at most."""

import json
import sys
import time
from pathlib import Path

import pytest

from experiments.gpu import driver
from experiments.gpu.driver import LOG, SUMMARY, main, run_steps
from experiments.gpu.facts import Facts
from experiments.gpu.steps import EXPANDABLE, ROOT, SECONDS_LEFT, Places, Step, marked_files, steps_on

BARE = Facts("3.12", frozenset({"torch", "msgspec"}), "2.13.0+cpu")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(driver, "facts", lambda environment: BARE)
    (tmp_path / "out").mkdir()
    return Places(tmp_path / "out", tmp_path / "wheels", tmp_path / "unpacked" / "site")


def python(program: str, *, limit_s: float = 20.0, name: str = "step", needs: tuple[str, ...] = ()) -> Step:
    return Step(name, (sys.executable, "-c", program), limit_s, needs)


def test_each_step_ends_in_its_own_way_and_none_stops_the_next(places: Places) -> None:
    steps = [
        python("print('one'); print('all is well')", name="good"),
        python("raise SystemExit('something broke')", name="bad"),
        python("", name="lacking", needs=("cuda",)),
        python("import os; os.kill(os.getpid(), 9)", name="killed"),
        python("print('after all')", name="last"),
    ]
    outcomes, _ = run_steps(steps, places, 60.0)
    assert [one.ended for one in outcomes] == ["ok", "failed", "lacks", "failed", "ok"]
    assert [one.said for one in outcomes] == [
        "all is well",
        "something broke",
        "a CUDA device (torch 2.13.0+cpu is a build without CUDA)",
        "no word",
        "after all",
    ]
    log = (places.out / LOG).read_text()
    assert "one\nall is well\n" in log
    assert log.index("all is well") < log.index("something broke") < log.index("after all")


IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize(
    ("own", "ended"),
    [
        (f"{IGNORE}; print('waiting', flush=True); time.sleep(60)", "too long"),
        ("print('waiting', flush=True); time.sleep(60)", "too long"),
        ("print('waiting')", "ok"),
    ],
    ids=["ignores the request to end", "obeys it", "ends by itself"],
)
def test_a_step_ends_with_all_that_it_started(places: Places, tmp_path: Path, own: str, ended: str) -> None:
    """Its child ignores the request to end, whatever the step itself does, and would write a file each moment."""
    alive = tmp_path / "alive"
    child = (
        f"import pathlib, signal, time; {IGNORE}; alive = pathlib.Path({str(alive)!r})\n"
        "for turn in range(2000):\n    alive.write_text(str(turn)); time.sleep(0.01)\n"
    )
    program = (
        "import pathlib, signal, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"while not pathlib.Path({str(alive)!r}).exists(): time.sleep(0.01)\n"
        f"{own}\n"
    )
    began = time.monotonic()
    (outcome,), _ = run_steps([python(program, limit_s=1.5)], places, 1.5)
    assert time.monotonic() - began < 60, "it was left to sleep"
    assert outcome.ended == ended
    assert outcome.said.removeprefix("ended after 2 s; last: ").removeprefix("ended after 1 s; last: ") == "waiting"
    written = alive.read_text()
    time.sleep(0.3)
    assert alive.read_text() == written


def test_time_that_is_left_is_the_next_steps(places: Places) -> None:
    """Of 12 s the first step has 3 and takes hardly any: the second, which has 3, may take nearly 6."""
    steps = [python("", limit_s=3.0), python("import time; time.sleep(3.3); print('done')", limit_s=3.0)]
    steps.append(python("", limit_s=6.0))
    outcomes, _ = run_steps(steps, places, 12.0)
    assert [one.ended for one in outcomes] == ["ok", "ok", "ok"]


def test_a_step_is_told_how_long_it_may_begin_something(places: Places) -> None:
    """The last seconds are for what it began before; of few seconds half."""
    for limit_s, told in ((100.0, "55"), (10.0, "5")):
        step = Step("race", (sys.executable, "-c", "import sys; print(sys.argv[1])", SECONDS_LEFT), limit_s)
        (outcome,), _ = run_steps([step], places, limit_s)
        assert outcome.said == told


def test_a_step_without_time_is_not_begun(places: Places) -> None:
    outcomes, _ = run_steps([python("print('x')"), python("print('y')")], places, 0.5)
    assert [one.ended for one in outcomes] == ["no time", "no time"]


def test_what_a_step_brought_is_seen_by_the_next(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([BARE, Facts("3.12", frozenset({"torch", "msgspec", "hydra"}), "2.13.0+cpu")])
    monkeypatch.setattr(driver, "facts", lambda environment: next(found))
    needy = [python("", needs=("hydra",)) for _ in range(3)]
    outcomes, _ = run_steps([needy[0], python("", name="wheels"), *needy[1:]], places, 60.0)
    assert [one.ended for one in outcomes] == ["lacks", "ok", "ok", "ok"]


def test_a_log_without_end_keeps_its_end(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MOST_LOG_BYTES", 1000)
    run_steps([python("print('x' * 5000); print('the end')")], places, 20.0)
    kept = (places.out / LOG).read_text()
    assert len(kept) <= 1000 and "the end" in kept


def test_everything_ends_on_a_machine_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `make gpu` runs, on this machine's own Python: each step is there, and says what it lacks."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert main(["--out", str(tmp_path / "out"), "--wheels", str(tmp_path / "none")]) == 0
    told = json.loads((tmp_path / "out" / SUMMARY).read_text())
    ended = {step["step"]: (step["ended"], step["said"]) for step in told["steps"]}
    names = [step.name for step in steps_on("cuda", Places(tmp_path, tmp_path, tmp_path))]
    assert list(ended) == names
    assert ended["versions"][0] == ended["wheels"][0] == ended["native"][0] == "ok"
    for name in names[3:]:
        assert ended[name][0] == "lacks" and "a CUDA device (torch " in ended[name][1]
    assert told["lacking"][0].startswith("a CUDA device")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {LOG, SUMMARY}
    assert "results are in" in capsys.readouterr().out


def test_nine_minutes_and_seven_files() -> None:
    out = Path("out")
    steps = steps_on("cuda", Places(out, out, out))
    assert sum(step.limit_s for step in steps) <= driver.SECONDS <= 540
    assert steps[-1].name == "race"
    words = " ".join(word for step in steps for word in step.words)
    results = {name for name in words.replace("=", " ").split() if name.startswith("out/") and "." in name}
    files = {"out/probes.json", "out/tests.xml", "out/hardware.json", "out/traces.json", "out/race.json"}
    assert results == files
    assert len(files | {LOG, SUMMARY}) == 7
    assert {f"out/{step.result}" for step in steps if step.result} == files
    for name in ("race", "traces"):
        twice = [step for step in steps if step.name.startswith(name)]
        assert sorted(len(step.environment) for step in twice) == [0, 1]
        assert {"PYTORCH_ALLOC_CONF": EXPANDABLE} in [dict(step.environment) for step in twice]
        assert {step.result for step in twice} == {f"{name}.json"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "bogus"], "--only 'bogus' is no step: choose of versions, wheels, native, probes"),
        (["--seconds", "-5"], "--seconds is -5.0: give more than 0"),
        (["--seconds", "nan"], "--seconds is nan: give more than 0"),
        (["--out", "FILE"], "is no folder to write into (File exists): choose another place"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    given = [word.replace("FILE", str(tmp_path / "file")) for word in words]
    with pytest.raises(SystemExit) as error:
        main([*(["--out", str(tmp_path / "out")] if "--out" not in words else []), *given])
    assert error.value.code == 2
    assert sentence in capsys.readouterr().err


def test_an_earlier_runs_results_are_not_taken_for_new(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the steps that run go; another step's, and a stranger's, stay. Made-up steps: one writes nothing."""
    monkeypatch.setattr(driver, "MOST_FILE_BYTES", 1000)
    step = python("")
    steps = [Step("race", step.words, 20.0, result="race.json"), Step("probes", step.words, 1.0, result="probes.json")]
    monkeypatch.setattr(driver, "steps_on", lambda device, places: steps)
    for name in ("race.json", "probes.json", "mine.json", LOG, SUMMARY):
        (places.out / name).write_text("old" * 500)
    words = ["--out", str(places.out), "--wheels", str(places.wheels), "--device", "sim", "--seconds", "30"]
    assert main([*words, "--only", "race"]) == 0
    assert {path.name for path in places.out.iterdir()} == {"probes.json", "mine.json", LOG, SUMMARY}
    told = json.loads((places.out / SUMMARY).read_text())
    assert told["too_large"] == ["mine.json", "probes.json"]
    assert told["lacking"] == []
    assert "too large to be carried back: mine.json, probes.json" in capsys.readouterr().out
    assert main(words) == 0
    assert {path.name for path in places.out.iterdir()} == {"mine.json", LOG, SUMMARY}


def test_tests_marked_gpu_are_found_by_what_files_hold() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in marked_files()}
    assert {"tests/runtime/swap/test_each_device.py", "tests/csrc/storage/test_store.py"} <= found
    assert "tests/experiments/test_rows.py" not in found


def test_the_driver_needs_nothing_but_python(tmp_path: Path) -> None:
    """A machine may lack everything: importing the driver imports nothing that is not Python's own."""
    import subprocess

    program = (
        "import sys; import experiments.gpu.driver, experiments.gpu.wheels, experiments.gpu.native\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'experiments'}))\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['__main__']")
