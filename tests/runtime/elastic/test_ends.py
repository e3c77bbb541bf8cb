"""A training that is ended from outside, or runs out of disk: nothing is left running, no state is lost silently."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli import main
from runtime.elastic.checkpoint import steps_in
from solvers.ir import InvalidInput
from tests.readmes import ROOT
from tests.runtime.elastic.test_train import alive, live, same, wait_for, workers

PROGRAM = """
import resource, sys
from pathlib import Path
from runtime.elastic import Options, train
from tests.runtime.elastic.jobs import costs

if __name__ == "__main__":
    folder, steps, resume, most_bytes = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume", int(sys.argv[4])
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    options = Options(
        canonical=True, timeout_s=60, hang_s=60, problem=costs(4), run_dir=folder, checkpoint_dir=folder / "kept",
        checkpoint_every=0 if steps > 100 else 2, save_on_exit=steps > 100, resume=resume,
    )
    outcome = train("tests.runtime.elastic.jobs:small", nodes=4, steps=steps, pipeline=2, options=options)
    print("losses", *outcome.losses)
"""


def program(folder: Path, steps: int, how: str = "begin", most_bytes: int = 0) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), str(folder), str(steps), how, str(most_bytes)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended_by(number: signal.Signals, folder: Path, how: str) -> str:
    """A training of a million steps, ended within one of the first; what was said on the terminal."""
    events = folder / "events.jsonl"
    events.unlink(missing_ok=True)
    running = program(folder, 10**6, how)
    try:
        wait_for(lambda: (events.exists() and '"event": "step"' in events.read_text()) or running.poll() is not None)
        pids = [int(pid) for pid in re.findall(r'"pid": (\d+)', events.read_text())]
        assert len(pids) == 4
        assert all(map(alive, pids))
        assert [os.getsid(pid) for pid in pids] == pids  # a share of the cores for each, as torchrun has it
        running.send_signal(number)
        _, said = running.communicate(timeout=120)  # which the nursery holds open until all are gone
        wait_for(lambda: not any(map(alive, pids)))
    finally:
        running.kill()
        running.wait()
    return said


def test_state_is_saved_when_the_supervisor_is_killed_or_interrupted(tmp_path: Path) -> None:
    """SIGKILL, then a resumed training is interrupted, then it is resumed by others: every bit as in one process."""
    saved = []
    for number, how in ((signal.SIGKILL, "begin"), (signal.SIGINT, "resume")):
        said = ended_by(number, tmp_path, how)
        word = re.search(
            r"bayplan: the training was ended from outside, and all of its processes with it; its state after (\d+) "
            r"steps is in .*: resume goes on with it\n",
            said,
        )
        assert word, said
        saved.append(int(word[1]))
        assert [step for step, _ in steps_in(tmp_path / "kept")] == saved[::-1]
    assert saved[0] < saved[1]
    steps = saved[1] + 2
    outcome = live(2, steps, checkpoint_dir=tmp_path / "kept", resume=True)
    same(outcome, steps)
    assert outcome.resumed == saved[1]


@pytest.mark.soak
def test_a_full_disk_costs_checkpoints_and_log_but_not_the_training(tmp_path: Path) -> None:
    """No file may grow beyond 2500 bytes, which is less than a node's part, and than all events."""
    running = program(tmp_path, 14, most_bytes=2500)
    out, said = running.communicate(timeout=250)
    assert running.returncode == 0, said
    lines = said.splitlines()
    kept = [line for line in lines if line.startswith("the checkpoint of step")]
    assert kept and all("was not written (File too large on node" in line for line in kept), said
    log = [line for line in lines if line.startswith("the event log could not be written any more (File too large)")]
    assert len(log) == 1, said
    assert steps_in(tmp_path / "kept") == []
    assert list((tmp_path / "kept").iterdir()) == []
    assert len(out.split()) == 15


def test_a_port_in_use_is_told_and_nothing_is_left_running() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"^port {port} of 127.0.0.1 cannot be opened .*: choose another, or"):
            live(2, 3, port=port)
    assert not workers()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nodes=3", "pipeline=2"], "nodes is 3, which pipelines of 2 do not divide: choose a multiple of 2"),
        (["resume=true"], "resume is True, but there is no checkpoint_dir: name a folder"),
    ],
)
def test_the_command_ends_with_2_and_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "experiment=elastic", f"run_dir={tmp_path / 'run'}", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not workers()
