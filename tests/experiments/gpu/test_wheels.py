"""What is carried: wheels that fit, unpacked without an index, within the sizes."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from experiments.gpu import wheels
from experiments.gpu.wheels import fits, install, main, told


@pytest.mark.parametrize(
    ("name", "version", "fitting"),
    [
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.whl", (3, 12), True),
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.whl", (3, 11), False),
        ("simpy-4.1.2-py3-none-any.whl", (3, 13), True),
        ("six-1.0-py2.py3-none-any.whl", (3, 12), True),
        ("old-1.0-py2-none-any.whl", (3, 12), False),
        ("ninja-1.13.2-py3-none-manylinux2014_x86_64.whl", (3, 12), True),
        ("stable-1.0-cp39-abi3-manylinux_2_28_x86_64.whl", (3, 12), True),
        ("stable-1.0-cp313-abi3-manylinux_2_28_x86_64.whl", (3, 12), False),
    ],
)
def test_wheels_fit_by_their_names(name: str, version: tuple[int, int], fitting: bool) -> None:
    assert fits(name, version) is fitting


def wheel(folder: Path, name: str) -> None:
    """A module of one line, as pip wants it."""
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "ANSWER = 42\n")
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_wheels_are_unpacked_without_an_index(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel(tmp_path, "carried")
    (tmp_path / "other-1.0-cp27-cp27m-linux_x86_64.whl").write_text("not for this Python")
    assert install(tmp_path, tmp_path / "site") == 0
    assert "1 wheels unpacked" in capfd.readouterr().out
    program = "import carried; print(carried.ANSWER)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True
    )
    assert done.stdout == "42\n"


def test_without_wheels_nothing_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(tmp_path / "none", tmp_path / "site") == 0
    assert "there are no wheels for this Python" in capsys.readouterr().out


def test_sizes_are_told_and_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "large.whl").write_bytes(bytes(3_000_000))
    assert told(tmp_path, 12_000_000) == 0
    said = capsys.readouterr().out
    assert "  3.00 MB  large.whl" in said and "3.0 MB of at most 45" in said
    assert told(tmp_path, wheels.MOST_TREE_BYTES + 1) == 1
    assert "too large to be carried" in capsys.readouterr().out


def test_what_git_tracks_may_travel() -> None:
    assert 5_000_000 < wheels._tree_bytes() <= wheels.MOST_TREE_BYTES


def test_words_that_mean_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch"]) == 2
    assert "give gather FOLDER, or install FOLDER SITE" in capsys.readouterr().err
