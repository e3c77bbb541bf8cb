"""What a session cannot work with says so in a sentence, where it happens, and is as before afterwards."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.loop.refusals import refuse_at_start, watch_refusals
from solvers.ir.errors import InvalidInput

CPU = torch.device("cpu")
ONES = torch.ones(3)


def compiled_function(*, before: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    function: Callable[[torch.Tensor], torch.Tensor] = torch.compile(lambda x: x.sin() + 1, backend="eager")
    if before:
        function(ONES)
    return function


def compiled_in_place() -> nn.Module:
    module = nn.Linear(3, 3)
    module.compile(backend="eager")
    return module


@pytest.mark.parametrize("model", [torch.compile(nn.Linear(3, 3), backend="eager"), nn.Sequential(compiled_in_place())])
def test_a_compiled_model_is_refused_at_the_start(model: nn.Module) -> None:
    with pytest.raises(InvalidInput, match=r"model given .* is compiled.*run it uncompiled"):
        refuse_at_start(CPU, model)
    with torch.compiler.set_stance("force_eager"):  # the remedy
        refuse_at_start(CPU, model)


def test_a_plain_model_is_not() -> None:
    refuse_at_start(CPU, nn.Sequential(nn.Linear(3, 3)))
    refuse_at_start(CPU)


@pytest.mark.parametrize("before", [False, True], ids=["compiled-inside", "compiled-before"])
def test_compiled_code_is_refused_while_a_session_runs(before: bool) -> None:
    function = compiled_function(before=before)
    with watch_refusals():
        with pytest.raises(InvalidInput, match=r"past PyTorch's operators.*run it uncompiled"):
            function(ONES)
        with torch.compiler.set_stance("force_eager"):
            assert torch.equal(function(ONES), ONES.sin() + 1)
    assert torch.equal(function(ONES), ONES.sin() + 1)


def test_cached_code_is_refused_too_where_nothing_would_be_compiled_anew() -> None:
    function = compiled_function(before=True)
    with watch_refusals(), torch.compiler.set_stance("eager_on_recompile"), pytest.raises(InvalidInput):
        function(ONES)


def test_code_that_must_not_be_compiled_runs() -> None:
    """Optimizers and FSDP wrap their functions so."""
    undisturbed = torch.compiler.disable(lambda x: x + 1)  # type: ignore[no-untyped-call]
    with watch_refusals():
        assert torch.equal(undisturbed(ONES), ONES + 1)
        torch.optim.AdamW([nn.Parameter(ONES.clone())]).step()


@pytest.mark.parametrize("graph", ["torch.cuda.CUDAGraph", "torch.accelerator.Graph"])
@pytest.mark.parametrize(("name", "told"), [("capture_begin", "would be captured now"), ("replay", "captured before")])
def test_graphs_are_neither_captured_nor_replayed(graph: str, name: str, told: str) -> None:
    owner = torch.cuda.CUDAGraph if "cuda" in graph else getattr(torch.accelerator, "Graph", None)
    if owner is None:
        pytest.skip("this torch has no such graphs")
    before = getattr(owner, name)
    refused = pytest.raises(InvalidInput, match=rf"CUDA graph that .*{told}.*train without graphs")
    with watch_refusals(), watch_refusals(), refused:
        getattr(owner, name)(None)
    assert getattr(owner, name) is before


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What CUDA would say, on machines without it."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    return monkeypatch


def test_a_session_does_not_begin_inside_a_capture(cuda: pytest.MonkeyPatch) -> None:
    refuse_at_start(torch.device("cuda"))
    cuda.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(InvalidInput, match="is being captured"):
        refuse_at_start(torch.device("cuda"))


def test_an_allocator_that_never_asks_is_refused(cuda: pytest.MonkeyPatch) -> None:
    cuda.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    with pytest.raises(InvalidInput, match=r"'cudaMallocAsync'.*PYTORCH_ALLOC_CONF=backend:native"):
        refuse_at_start(torch.device("cuda"))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_must_not_fuse_on_cuda(cuda: pytest.MonkeyPatch) -> None:
    scripted = torch.jit.trace(nn.Linear(3, 3), ONES)  # type: ignore[no-untyped-call]
    refuse_at_start(CPU, scripted)
    fuses = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(True)
    try:
        with pytest.raises(InvalidInput, match="switch its fuser off"):
            refuse_at_start(torch.device("cuda"), nn.Sequential(scripted))
        torch._C._jit_set_texpr_fuser_enabled(False)
        refuse_at_start(torch.device("cuda"), nn.Sequential(scripted))
    finally:
        torch._C._jit_set_texpr_fuser_enabled(fuses)
