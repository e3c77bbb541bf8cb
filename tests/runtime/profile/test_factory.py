import sys
from pathlib import Path

import pytest
import torch

from runtime.profile.factory import call_theirs, load_factory
from solvers.ir.errors import InvalidInput

SOURCE = """
import torch

def _parts(device):
    model = torch.nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        loss = model(torch.ones(1, 2, device=device)).sum()
        loss.backward()
        optimizer.step()
        return loss
    return model, optimizer, step

def by_position(place): return _parts(place)
def by_keyword(*, device): return _parts(device)
def no_device(): return _parts("cpu")
def too_little(device): return _parts(device)[:2]
def no_step(device): return (*_parts(device)[:2], 3)
def no_model(device): return (1, 2, 3)
def broken(device): raise ValueError("my own fault")
def leaving(device): raise SystemExit(3)
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made_model.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "made_model", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["by_position", "by_keyword"])
@pytest.mark.usefixtures("folder")
def test_a_factory_in_the_working_directory_is_called_with_the_device(name: str) -> None:
    training = load_factory(f"made_model:{name}")(torch.device("cpu"))
    assert training.step().requires_grad
    assert isinstance(training.model, torch.nn.Linear)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("made_model", "write MODULE:FACTORY"),
        (":by_keyword", "write MODULE:FACTORY"),
        ("no_such_module:build", "there is no module 'no_such_module'"),
        ("made_model.deeper:build", "there is no module 'made_model.deeper'"),
        ("made_model:by_keywort", "did you mean 'by_keyword'?"),
        ("made_model:number", "is a int, not a function"),
        ("made_model:no_device", "takes ()"),
        ("made_model:too_little", "returned a tuple of 2"),
        ("made_model:no_step", "returned a int as step"),
        ("made_model:no_model", "returned a int as model"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_every_mistake_is_told_in_one_sentence(spec: str, told: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        load_factory(spec)(torch.device("cpu"))
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("made_model:by_positon", "did you mean 'by_position'?"),
        ("made_model:zzz", "choose of by_position, by_keyword, no_device,"),
        ("made_model.py:by_position", "leave out .py, as in made_model:FACTORY"),
    ],
)
def test_a_near_name_is_offered_and_a_far_one_is_not(folder: Path, spec: str, told: str) -> None:
    with pytest.raises(InvalidInput) as error:
        load_factory(spec)
    assert told in str(error.value)


def test_a_module_that_needs_another_names_it(folder: Path) -> None:
    (folder / "needy.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(InvalidInput, match="needs 'not_installed_anywhere', which is not installed"):
        load_factory("needy:build")


def test_a_module_that_fails_says_how(folder: Path) -> None:
    (folder / "failing.py").write_text("1 / 0\n")
    with pytest.raises(InvalidInput, match="cannot be imported: ZeroDivisionError: division by zero"):
        load_factory("failing:build")


def test_code_that_ends_python_ends_no_command_without_a_word(folder: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"made_model:leaving raised SystemExit at made_model.py:\d+ \(3\): correct it"
    ):
        call_theirs(lambda: load_factory("made_model:leaving")(torch.device("cpu")), "made_model:leaving")
    (folder / "leaving.py").write_text("import sys\nsys.exit()\n")
    with pytest.raises(InvalidInput, match="'leaving' cannot be imported: SystemExit"):
        load_factory("leaving:build")


class Own(BaseException):
    """No `Exception`, as asyncio's CancelledError is none."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "told"),
    [(Own("boo"), r"Own .*\(boo\)"), (GeneratorExit(), "GeneratorExit"), (Mute(), "Mute .*cannot be shown")],
)
def test_whatever_their_code_raises_is_told_in_one_sentence(error: BaseException, told: str) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(InvalidInput, match=f"the step raised {told}"):
        call_theirs(fails, "the step")


def test_ctrl_c_in_their_code_interrupts(folder: Path) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_theirs(interrupted, "the step")
    (folder / "stopped.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_factory("stopped:build")


@pytest.mark.usefixtures("folder")
def test_what_the_factory_itself_raises_passes_through() -> None:
    with pytest.raises(ValueError, match="my own fault"):
        load_factory("made_model:broken")(torch.device("cpu"))
