"""What a machine lacks is said in sentences, whatever Python finds or fails at."""

import os
import sys
from pathlib import Path

import pytest

from experiments.gpu.facts import Facts, facts
from experiments.gpu.steps import ROOT

FULL = Facts("3.12.3", frozenset({"torch", "msgspec", "click"}), "2.11.0+cu130", "13.0", "a GPU")


def test_nothing_is_lacking_where_everything_is() -> None:
    assert FULL.lacking(("torch", "msgspec", "native", "cuda", "click")) == []


@pytest.mark.parametrize(
    ("found", "needs", "sentence"),
    [
        (Facts("3.12.3", frozenset()), ("torch", "cuda"), "torch (too large to be carried: install 2.11 or newer"),
        (FULL, ("hydra", "torch", "ortools"), "hydra, ortools (not installed; what `make gpu-wheels` gathers"),
        (FULL, ("scipy", "networkx"), "scipy, networkx (not installed, and `make gpu-wheels` does not gather it"),
        (FULL, ("pytest", "hypothesis"), "pytest, hypothesis (not installed; what `make gpu-wheels` gathers"),
        (
            Facts("3", frozenset({"torch"}), "2.13.0+cpu", None, None),
            ("torch", "cuda"),
            "a CUDA device (torch 2.13.0+cpu is a build without CUDA)",
        ),
        (
            Facts("3", frozenset({"torch"}), "2.11.0+cu130", "13.0", None),
            ("torch", "cuda"),
            "a CUDA device (torch 2.11.0+cu130 finds none)",
        ),
        (
            Facts("3", frozenset({"torch"}), "2.9.1+cu128", "12.8", "a GPU"),
            ("torch", "cuda"),
            "torch 2.11 or newer (this is 2.9.1+cu128)",
        ),
        (
            Facts("3", frozenset({"torch"}), "2.11.0", "13.0", "a GPU", native="runtime._C is not built: make it"),
            ("native",),
            "runtime._C (runtime._C is not built: make it)",
        ),
        (
            Facts("3", frozenset({"torch"}), "2.11.0", "13.0", "a GPU", sim="needs torch 2.13"),
            ("sim",),
            "runtime._sim (needs torch 2.13)",
        ),
    ],
)
def test_each_need_has_its_sentence(found: Facts, needs: tuple[str, ...], sentence: str) -> None:
    (said,) = found.lacking(needs)
    assert said.startswith(sentence)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def test_this_machine_is_asked() -> None:
    import torch

    found = facts(environment())
    assert found.torch == torch.__version__
    assert {"torch", "msgspec", "pytest"} <= found.modules
    assert (found.device is not None) == torch.cuda.is_available()
    assert found.python == sys.version.split()[0]


def test_a_torch_that_does_not_import_is_a_fact(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: no such file')")
    found = facts(environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"))
    assert found.torch is None
    assert found.lacking(("torch",)) == ["OSError: libcudart.so.13: no such file"]


def test_a_python_that_hangs_is_a_fact(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(60)")
    found = facts(environment(PYTHONPATH=str(tmp_path)), limit_s=2.0)
    assert found.lacking(("torch",)) == ["an answer from torch within 2 s"]
