"""The house stands as drawn: names resolve here, rooms keep to their contracts, no file names this machine."""

import importlib
import logging
import re
import subprocess
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[1]
# Home folders, workplaces, hosts of package registries; grouped so that this file does not match itself.
FOREIGN = re.compile(
    r"/(?:ro)ot/|/(?:ho)me/|/(?:wo)rk/|bash_(?:jo)bs|py(?:pi)\.org|python(?:host)ed|registry\.(?:np)mjs"
)


def committed_files() -> list[Path]:
    """Files that git tracks and that are still there; a source tree without git has none to show."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("package", ["solvers", "runtime", "conf", "experiments"])
def test_the_top_level_names_are_ours(package: str) -> None:
    location = importlib.import_module(package).__file__
    assert location is not None
    assert Path(location) == ROOT / package / "__init__.py"


@pytest.mark.parametrize("package", ["solvers", "runtime", "experiments"])
def test_the_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_every_folder_of_python_files_is_a_package() -> None:
    """Without tests/**/__init__.py the folder tests/solvers would shadow the package solvers."""
    folders = {file.parent for file in committed_files() if file.suffix == ".py" and file.parent != ROOT}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_the_rooms_keep_to_their_contracts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    known = [logger for logger in logging.Logger.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    silent = [logger.disabled for logger in known]
    failed = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    for logger, disabled in zip(known, silent, strict=True):  # its own settings of logging silence all others
        logger.disabled = disabled
    assert failed == 0, capsys.readouterr().out


def test_no_file_names_the_machine_it_was_written_on() -> None:
    named = []
    for file in committed_files():
        try:
            lines = file.read_text().splitlines()
        except UnicodeDecodeError:
            continue  # pictures
        named += [f"{file.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if FOREIGN.search(line)]
    assert named == []
