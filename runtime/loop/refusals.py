"""What a session cannot work with, each refused in a sentence: at its start, or when the program comes to it.

Both kinds launch kernels with addresses that were taken earlier, by code that PyTorch's dispatcher does not see: what
they read may be on the host then, and what they write may be somebody else's memory.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from runtime.loop.patches import Function, Patch, Patches
from solvers.ir.errors import InvalidInput

COMPILED = (
    "code of torch.compile launches kernels past PyTorch's operators, which a swap session must see to bring their "
    "operands back: run it uncompiled inside the session (torch.compiler.set_stance('force_eager')), or close the "
    "session first"
)
GRAPHED = (
    "a CUDA graph {action} replays fixed addresses, whose tensors a swap session moves: train without graphs inside "
    "the session, or close the session first"
)


def refuse_at_start(device: torch.device, model: nn.Module | None = None) -> None:
    """Raise `InvalidInput` where a session on the device cannot begin as things stand."""
    modules = [] if model is None else list(model.modules())
    if any(_is_compiled(module) for module in modules) and not _compiled_code_runs_as_written():
        raise InvalidInput(f"the model given to the session is compiled, and {COMPILED}")
    if device.type == "cuda":
        _refuse_on_cuda(modules)


def _refuse_on_cuda(modules: list[nn.Module]) -> None:
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules) and torch._C._jit_texpr_fuser_enabled():
        raise InvalidInput(
            "TorchScript fuses operators of the model given to the session into kernels that a swap session does not "
            "see: switch its fuser off, torch._C._jit_set_texpr_fuser_enabled(False), or train the plain module"
        )
    if torch.cuda.is_current_stream_capturing():
        raise InvalidInput(GRAPHED.format(action="is being captured, which"))
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        raise InvalidInput(
            f"PyTorch's CUDA allocator backend is {backend!r}, which asks nobody to free memory before it gives up: "
            "start the process with PYTORCH_ALLOC_CONF=backend:native"
        )


def watch_refusals() -> AbstractContextManager[None]:
    """While at least one such context is open, calls that a session cannot work with raise `InvalidInput` instead.

    These are calls of compiled functions, also of those that were compiled before, and beginning or replaying a graph.
    """
    return _refusals.standing()


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def _compiled_code_runs_as_written() -> bool:
    from torch._dynamo.eval_frame import _callback_from_stance

    return _callback_from_stance(_refuse_frame) is None  # type: ignore[arg-type]


def _refusing_compiled(callback_of: Function) -> Function:
    """Around what TorchDynamo asks at each call of a compiled function, and of one that must not be compiled.

    `given` is None for the latter; the answer is None where the stance has everything run as it is written.
    """

    def callback(given: Any) -> Any:
        chosen = callback_of(given)
        return chosen if given is None or chosen is None or not _refusals.stand else _refuse_frame

    return callback


def _refuse_frame(*_: object) -> Any:
    """Stands in for the compiler: no compiled code is its own, so it is asked at the function's first frame."""
    raise InvalidInput(COMPILED)


def _refusing_graphs(action: str) -> Callable[[Function], Function]:
    def around(method: Function) -> Function:
        def refused(self: object, *arguments: Any, **keywords: Any) -> Any:
            raise InvalidInput(GRAPHED.format(action=action))

        return refused

    return around


def _patches() -> Iterator[Patch]:
    import torch._dynamo.eval_frame  # optimizers import it anyway

    yield Patch(torch._dynamo.eval_frame, "_callback_from_stance", _refusing_compiled)
    for graph in (torch.cuda.CUDAGraph, getattr(torch.accelerator, "Graph", None)):
        if graph is not None:
            yield Patch(graph, "capture_begin", _refusing_graphs("that would be captured now"))
            yield Patch(graph, "replay", _refusing_graphs("that was captured before"))


_refusals = Patches(_patches)
