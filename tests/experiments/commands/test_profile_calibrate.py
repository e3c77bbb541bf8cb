"""`bayplan profile` and `calibrate`: the user's model, the user's mistakes, and the whole way to a timeline."""

import gc
import json
import math
import sys
from pathlib import Path

import pytest
import torch

from experiments.hardware import read_hardware
from runtime.device import use_sim
from solvers.ir import Hardware, OpGraph
from solvers.ir.codec import read_document
from tests.experiments.commands.console import Outcome, call, refused, start

OWN = """
import torch


def build(device):
    torch.manual_seed(0)
    wide = lambda: [torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64)]
    model = torch.nn.Sequential(*(layer for _ in range(6) for layer in wide())).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(2048, 64).to(device)

    def step():
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def talking(device):
    print("building …")
    return build(device)


def sized_by_data(device):
    model, optimizer, _ = build(device)
    data = torch.randn(64, 64, device=device)

    def step():
        out = model(data)
        loss = out[out > 0].sum() + out[(out < 0).nonzero()[:, 0]].sum() + out[torch.arange(3, device=device)].sum()
        loss.backward()
        return loss.detach()

    return model, optimizer, step


def number(device):
    return 3


def unlucky(device):
    raise ValueError("no\\nluck")


def stumbling(device):
    model, optimizer, _ = build(device)

    def step():
        return model(torch.zeros(1, 3, device=device))

    return model, optimizer, step


def chosen_by_data(device):
    model, optimizer, _ = build(device)
    return model, optimizer, lambda: model(torch.ones(1, 64, device=device))[torch.ones(1, 64, device=device) > 0]


def growing(device):
    model, optimizer, _ = build(device)
    rows = iter(range(64, 1024, 64))

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(next(rows), 64, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def yielding(device):
    model, optimizer, step = build(device)

    def steps():
        while True:
            yield step()

    return model, optimizer, steps


def counting_threads(device):
    raise ValueError(f"computed by {torch.get_num_threads()}")


def huge_in_half_precision(device):
    model = torch.nn.Linear(60000, 60000, device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters())
    data = torch.ones(100, 60000, device=device, dtype=torch.bfloat16)

    def step():
        loss = model(data).sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_model.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["own_model:bild"], "module 'own_model' has no 'bild': did you mean 'build'?"),
        (["no_model:build"], "there is no module 'no_model'"),
        (["own_model"], "'own_model' names no factory: write MODULE:FACTORY"),
        (["own_model:number", "--device", "cpu"], "it must return (model, optimizer, step)"),
        (["own_model:unlucky", "--device", "cpu"], "own_model:unlucky raised ValueError at own_model.py:45 (no luck)"),
        (
            ["own_model:stumbling", "--device", "cpu"],
            "the step of own_model:stumbling raised RuntimeError at own_model.py:",
        ),
        (["own_model:yielding", "--device", "sim"], "returned a step that yields or awaits, so that a call of it"),
        (["own_model:build", "--device", "gpu"], "there is no device 'gpu': did you mean 'cuda'?"),
        (["own_model:build", "--device", "tpu"], "there is no device 'tpu'"),
        (["own_model:build", "--device", "cpu", "--hardware", "sim-small"], "leave one of them out"),
        (["own_model:build", "--device", "sim", "--hardware", "sim-smal"], "did you mean 'sim-small'?"),
    ],
)
def test_the_users_mistakes_are_told_in_the_users_words(folder: Path, arguments: list[str], sentence: str) -> None:
    assert sentence in refused(call("profile", *arguments, "--out", "g.json"))
    assert not Path("g.json").exists()


def test_a_place_that_cannot_be_written_is_told_before_the_model_is_built(folder: Path) -> None:
    said = refused(call("profile", "own_model:unlucky", "--out", "no/g.json"))
    assert "which is no folder: create it first" in said
    assert "which is no folder" in refused(call("calibrate", "--out", "no/h.json"))


def test_a_dash_is_stdout_which_holds_the_graph_alone(folder: Path) -> None:
    """Other commands read it from there, so that what the factory prints goes elsewhere."""
    outcome = call("profile", "own_model:talking", "--device", "cpu", "--out", "-")
    assert (outcome.code, outcome.err) == (0, "building …\n")
    assert json.loads(outcome.out)["name"] == "own_model:talking"
    assert not Path("-").exists()


def test_sizes_that_depend_on_data_are_told_before_a_plan_is_refused(folder: Path) -> None:
    outcome = call("profile", "own_model:sized_by_data", "--device", "cpu", "--out", "g.json")
    said = "sizes in own_model:sized_by_data depend on data (nonzero, a boolean index), and a plan is of one step's"
    assert outcome.code == 0
    assert outcome.err.startswith(f"bayplan: warning: {said}")
    assert "runtime.swap.session" in outcome.err
    making = call("make", "swap", "--graph", "g.json", "--hardware", "sim-small", "--budget", "90%", "--out", "p.json")
    assert said in making.err


def test_a_plan_is_of_one_steps_sizes_and_every_command_says_so(folder: Path) -> None:
    said = "in own_model:growing tensors have other sizes than in the step before (aten::ones, operator "
    outcome = call("profile", "own_model:growing", "--device", "sim", "--out", "g.json")
    assert outcome.code == 0
    assert outcome.err.startswith(f"bayplan: warning: {said}")
    making = ("make", "swap", "--graph", "g.json", "--budget", "99%", "--out", "p.json")
    for arguments in (making, ("pareto", "own_model:growing", *FEW)):
        assert said in call(*arguments, "--hardware", "sim-small").err
    answer = call("fit", "own_model:growing", "--hardware", "sim-small", *TECHNIQUES, "--json")
    known = {row["technique"]: row for row in json.loads(answer.out)["rows"]}
    assert [known[name]["fits"] for name in ("plain", "swap", "joint")] == [True, None, None]
    assert "and a plan is of one step" in known["swap"]["reason"]


FEW = ("--budgets", 2, "--work", 0.001)
TECHNIQUES = ("--technique", "plain", "--technique", "swap", "--technique", "joint")


@pytest.mark.parametrize("command", ["profile", "fit", "pareto"])
def test_what_a_step_takes_does_not_depend_on_the_threads_of_who_asks(folder: Path, command: str) -> None:
    """Convolutions take more on the simulated device where more threads compute; `compare` has always had one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        outcome = call(command, "own_model:counting_threads", "--hardware", "sim-small")
        assert "(computed by 1)" in refused(outcome)
    finally:
        torch.set_num_threads(threads)


def test_a_step_on_the_cpu(folder: Path) -> None:
    outcome = call("profile", "own_model:build", "--device", "cpu", "--out", "g.json")
    assert (outcome.code, outcome.err) == (0, "")
    graph = read_document(Path("g.json"), OpGraph)
    assert graph.name == "own_model:build"
    assert outcome.figure("operators") == str(len(graph.ops))
    assert outcome.figure("peak").startswith(f"{max(graph.memory_bytes)} bytes")
    assert {op.phase for op in graph.ops} == {"forward", "backward", "optimizer"}


def _ran(folder: Path, *arguments: object) -> Outcome:
    """In a process of its own: the simulated device takes PyTorch's slot for good."""
    process = start(*arguments, cwd=folder)
    out, err = process.communicate(timeout=120)
    return Outcome(process.returncode, out, err)


def test_from_ones_own_model_to_a_timeline_on_the_simulated_device(folder: Path) -> None:
    profiled = _ran(folder, "profile", "own_model:build", "--device", "sim", "--out", "g.json")
    assert (profiled.code, profiled.err) == (0, "")
    assert profiled.figure("device") == "sim:0"
    made = call("make", "swap", "--graph", "g.json", "--hardware", "sim-small", "--budget", "60%", "--out", "p.json")
    assert made.code == 0
    solved = call("solve", "p.json", "--solver", "milp-swap", "--work", "0.1", "--out", "plan.json")
    assert solved.code == 0, solved
    assert json.loads(Path("plan.json").read_text())["decision"]["swaps"]
    assert call("check", "p.json", "plan.json").code == 0
    makespan = float(call("simulate", "p.json", "plan.json").figure("makespan").split()[0])
    assert math.ceil(makespan) == int(solved.figure("objective").split()[0])


def test_calibrating_the_simulation_finds_its_hardware_file(folder: Path) -> None:
    outcome = _ran(folder, "calibrate", "--device", "sim", "--hardware", "sim-other", "--out", "h.json")
    assert (outcome.code, outcome.err) == (0, "")
    measured, modelled = read_document(Path("h.json"), Hardware), read_hardware("sim-other")
    found, true = (machine.link(machine.device().name, "host").bytes_per_s for machine in (measured, modelled))
    assert found == pytest.approx(true, rel=0.01)


def test_shapes_only_writes_the_same_graph(folder: Path) -> None:
    """Every operator, tensor, microsecond and byte; only its source says that nothing was computed."""
    for options in ((), ("--shapes-only",)):
        done = call("profile", "own_model:build", "--device", "sim", "--out", f"{len(options)}.json", *options)
        assert done.code == 0, done.err
        gc.collect()
    real, seen = (json.loads((folder / f"{which}.json").read_text()) for which in (0, 1))
    assert seen.pop("source").startswith(f"sim-shapes: {real.pop('source')}")
    assert seen == real
    wrong = call("profile", "own_model:build", "--device", "cpu", "--shapes-only")
    assert refused(wrong).startswith("--shapes-only is a mode of device sim, but --device is cpu: leave one")
    gc.collect()
    use_sim()


def test_shapes_only_has_memory_without_end_and_tells_what_is_estimated(folder: Path) -> None:
    """Twice 6.7 GiB of weights and gradients on a device of 4; products of such sizes were never measured."""
    done = call("profile", "own_model:huge_in_half_precision", "--shapes-only", "--out", "huge.json")
    assert done.code == 0, done.err
    assert "warning: kernels whose temporaries were not measured: 3 calls (addmm, mm, sum), so that" in done.err
    source = json.loads((folder / "huge.json").read_text())["source"]
    assert "kernels whose temporaries were not measured: 3 calls" in source
    gc.collect()
    use_sim()


def test_what_needs_numbers_is_refused_in_the_device_s_own_words(folder: Path) -> None:
    sentence = refused(call("profile", "own_model:chosen_by_data", "--shapes-only"))
    assert ":chosen_by_data: the size of what the operator index returns depends on data" in sentence
    assert "correct it" not in sentence and sentence.endswith("or leave shapes_only out")
    gc.collect()
    use_sim()
