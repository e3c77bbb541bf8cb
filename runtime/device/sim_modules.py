"""Modules that move to device sim keep their parameters, as they do on CUDA.

`Module.to` sets a parameter's data in place where PyTorch counts both devices among its dense ones, and a foreign one
is never among them: it would make a new parameter for each module that holds one, so that tied weights come apart and
an optimizer that was built before keeps the old ones.
"""

import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import Parameter

_moving = threading.local()
"""While a module is being moved: what each of its parameters became, by the old one's address; both are kept alive."""


def keep_parameters_of_moved_modules() -> None:
    """Lets every `Module.to` that changes the device keep the identity of parameters; once per process."""
    plain = nn.Module._apply

    def apply(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        outermost = not hasattr(_moving, "became")
        if outermost:
            _moving.became = {}
        before = dict(self._parameters)
        try:
            plain(self, fn, recurse)  # type: ignore[no-untyped-call]
            if not torch.__future__.get_overwrite_module_params_on_conversion():
                _keep(self, before)
        finally:
            if outermost:
                del _moving.became
        return self

    nn.Module._apply = apply  # type: ignore[method-assign]


def _keep(module: nn.Module, before: dict[str, Parameter | None]) -> None:
    for name, old in before.items():
        new = module._parameters[name]
        if old is None or new is None or new is old:
            continue
        if id(old) not in _moving.became:
            _moving.became[id(old)] = (old, _in_place_of(old, new))
        module._parameters[name] = _moving.became[id(old)][1]


def _in_place_of(old: Parameter, new: Parameter) -> Parameter:
    """The old parameter with the new one's data, or the new parameter where C++ code holds the old one.

    It keeps its attributes and its class, which says of a lazy module's parameter that it has no shape yet.
    """
    attributes, kind = dict(vars(old)), old.__class__
    try:
        torch.utils.swap_tensors(old, new)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return new
    vars(old).update(attributes)
    old.__class__ = kind
    return old
