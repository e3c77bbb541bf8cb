"""`runtime._C` on a machine: as it is, carried, or built; each once, and said."""

import sysconfig
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from experiments.gpu import native
from experiments.gpu.native import carried, main

SUFFIX = f"_C.{sysconfig.get_config_var('SOABI')}.so"


class Machine:
    """An extension that loads once `needed` has happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, needed: str | None) -> None:
        (root / "runtime").mkdir()
        self.needed, self.done = needed, list[str]()
        monkeypatch.setattr(native, "ROOT", root)
        monkeypatch.setattr(native, "said", self._said)
        monkeypatch.setattr(native, "build", self._build)
        monkeypatch.setattr(native, "version", lambda name: "84.2.0")
        self._root = root

    def _said(self) -> str | None:
        there = (self._root / "runtime" / SUFFIX).exists() and self.needed == "carried"
        return "it loads" if self.needed is None or there or self.needed in self.done else None

    def _build(self) -> int:
        self.done.append("built")
        return 0 if self.needed == "built" else 1


@pytest.mark.parametrize(("needed", "code"), [(None, 0), ("carried", 0), ("built", 0), ("luck", 1)])
def test_the_cheapest_way_that_works_is_taken(
    needed: str | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / SUFFIX).write_text("a library")
    machine = Machine(monkeypatch, tmp_path, needed)
    assert main(wheels) == code
    assert ("built" in machine.done) == (needed in ("built", "luck"))
    assert ("it loads" in capsys.readouterr().out) == (code == 0)


@pytest.mark.parametrize(("found", "says"), [("65.5.0", "setuptools 65.5.0 is too old"), (None, "is not installed")])
def test_what_builds_is_too_old_or_missing(
    found: str | None,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def version(name: str) -> str:
        if found is None:
            raise PackageNotFoundError(name)
        return found

    machine = Machine(monkeypatch, tmp_path, "built")
    monkeypatch.setattr(native, "version", version)
    assert main(tmp_path) == 1 and not machine.done
    assert f"{says}: install 77 or newer, or carry a build" in capsys.readouterr().out


def test_a_build_for_another_python_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "_C.cpython-27-x86_64-linux-gnu.so").write_text("a library")
    assert carried(tmp_path) is None
    (tmp_path / SUFFIX).write_text("a library")
    assert carried(tmp_path) == tmp_path / SUFFIX
