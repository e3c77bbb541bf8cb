"""A block that runs again begins with the buffers that its first run began with, and leaves them as it found them.

`torch.utils.checkpoint` runs a forward pass twice: a batch would count twice in running statistics, and the second run
would compute with what the first one wrote (as of a spectral norm's vectors).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

Place = tuple[nn.Module, str]
"""Where a buffer is held."""


class Buffers:
    """The buffers of a block; which of them its forward pass writes is known once it has run in the same modes.

    That is told by their versions, and of PyTorch's batch and instance norms, which count no version, by their class.
    """

    def __init__(self, block: nn.Module) -> None:
        self._block = block
        self._written: dict[tuple[bool, ...], frozenset[Place]] = {}

    def once(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward for one call: its first run is as ever, and all others find what that one found."""
        before: dict[Place, Tensor | None] | None = None

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal before
            if before is not None:
                with _in_place(before):
                    return forward(*args, **kwargs)
            modes = tuple(module.training for module in self._block.modules())
            held, known = self._held(), self._written.get(modes)
            versions = {place: _version(one) for place, one in held.items()}
            looked = {
                id(one): one for place, one in held.items() if one is not None and (known is None or place in known)
            }
            kept = {
                number: one.detach().to("cpu" if known is None else one.device, copy=True)  # a first look: no memory
                for number, one in looked.items()
            }
            before = {}
            result = forward(*args, **kwargs)
            now = self._held()
            written = {place for place, one in held.items() if _writes(place, one, now.get(place), versions[place])}
            numbers = {id(held[place]) for place in written if held[place] is not None}
            written |= {place for place, one in held.items() if id(one) in numbers}  # a tensor in several places
            self._written[modes] = frozenset(written | (known or frozenset()))
            again: dict[int, Tensor | None] = {id(None): None}
            again |= {number: kept[number].to(looked[number].device) for number in numbers & kept.keys()}
            before = {place: again[id(held[place])] for place in written if id(held[place]) in again}
            return result

        return run

    def _held(self) -> dict[Place, Tensor | None]:
        return {(one, name): buffer for one in self._block.modules() for name, buffer in one._buffers.items()}


def _writes(place: Place, before: Tensor | None, after: Tensor | None, version: int) -> bool:
    module, _ = place
    silently = isinstance(module, _NormBase) and module.training and module.track_running_stats
    return silently or after is not before or _version(after) != version


def _version(buffer: Tensor | None) -> int:
    """What PyTorch counts of its changes; one of inference mode cannot change."""
    return 0 if buffer is None or buffer.is_inference() else buffer._version


@contextmanager
def _in_place(before: Mapping[Place, Tensor | None]) -> Iterator[None]:
    """Inside, modules hold copies of these; what they hold now is not touched, since autograd may have saved it."""
    now = {(module, name): module._buffers[name] for module, name in before}
    copies = {
        id(one): one if one is None else one.clone() for one in before.values()
    }  # one in several places stays one
    try:
        for (module, name), one in before.items():
            module._buffers[name] = copies[id(one)]
        yield
    finally:
        for (module, name), held in now.items():
            module._buffers[name] = held
