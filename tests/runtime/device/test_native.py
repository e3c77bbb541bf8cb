"""Native extensions are there where they were promised, and one that does not fit the running torch is refused."""

import importlib
import os
import re
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from runtime.device import native

ROOT = Path(__file__).resolve().parents[3]
ON_SIM_TORCH = native.release(torch.__version__) == native.SIM_TORCH


@pytest.mark.skipif(os.environ.get("BAYPLAN_NATIVE") != "require", reason="BAYPLAN_NATIVE=require is not set")
@pytest.mark.parametrize("name", ["runtime._C", "runtime._sim"])
def test_extensions_load_where_they_were_promised(name: str) -> None:
    if name == "runtime._sim" and not ON_SIM_TORCH:
        pytest.skip(f"the simulated accelerator is for torch {native.SIM_TORCH}")
    assert native.why_missing(name) is None


def pretend_built(monkeypatch: pytest.MonkeyPatch, torch_version: str | None) -> ModuleType:
    """Puts a module in the place of runtime._C, as its compiler would have left it."""
    module = module_from_spec(ModuleSpec("runtime._C", None))
    if torch_version is not None:
        module.__dict__["torch_version"] = torch_version
    monkeypatch.setitem(sys.modules, "runtime._C", module)
    return module


def test_an_extension_of_this_torch_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    built = pretend_built(monkeypatch, torch.__version__)
    assert native.core is built
    assert native.why_missing("runtime._C") is None


def test_an_extension_of_another_patch_release_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    built = pretend_built(monkeypatch, f"{native.release(torch.__version__)}.99")
    assert native.load("runtime._C") is built


@pytest.mark.parametrize(("built_for", "told"), [("2.9.1+cu128", "torch 2.9.1\\+cu128"), (None, "torch unknown")])
def test_an_extension_of_another_torch_is_refused(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, told: str
) -> None:
    pretend_built(monkeypatch, built_for)
    running = re.escape(str(torch.__version__))
    with pytest.raises(native.NativeMissing, match=f"built for {told}, this is torch {running}: rebuild .*make build"):
        _ = native.core


def test_an_extension_that_was_not_built_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert native.why_missing("runtime._C") == ("runtime._C is not built: install a C++ compiler and run `make build`")


def test_the_simulated_accelerator_names_the_torch_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torch, "__version__", "2.15.0+cu130")
    assert native.why_missing("runtime._sim") == (
        "runtime._sim, the simulated accelerator, needs torch 2.13, this is torch 2.15.0+cu130: "
        "install torch 2.13 and run `make build`"
    )


def test_an_extension_with_foreign_symbols_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def undefined_symbol(name: str) -> ModuleType:
        raise ImportError("_C.so: undefined symbol: _ZN3c105ErrorC2E\nmore")

    pretend_built(monkeypatch, None)
    monkeypatch.setattr(importlib, "import_module", undefined_symbol)
    reason = native.why_missing("runtime._C")
    assert reason is not None
    assert "undefined symbol" in reason
    assert "\n" not in reason


def test_setup_builds_the_simulator_for_the_torch_that_the_loader_expects() -> None:
    declared = re.search(r'^SIM_TORCH = "(.+?)"', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert declared is not None
    assert declared.group(1) == native.SIM_TORCH
