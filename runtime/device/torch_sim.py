"""The module `torch.sim`: what PyTorch expects to find under the name of a device type."""

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType, TracebackType

import torch


def _check(device: object) -> None:
    """Raises PyTorch's error for a device of type sim other than the one there is; None and -1 mean that one."""
    if isinstance(device, str):
        device = torch.device(device)
    index = device.index if isinstance(device, torch.device) else device
    if isinstance(index, int) and index > 0:
        torch.accelerator.set_device_index(index)


class device:  # the name that torch.save, torch.load and the autograd engine look for
    """Context that selects a device of type sim; there is one, so that it selects nothing. Another one is refused."""

    def __init__(self, index: object = None) -> None:
        _check(index)
        self.index = index

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _generator() -> torch.Generator:
    """The CPU's default generator, which is sim's too: the same seed gives the same numbers on both."""
    return torch.default_generator


def _same_generator(seed: int) -> None:
    """Seeds nothing again: `torch.manual_seed` has just seeded the generator that both devices share."""


def _manual_seed(seed: int) -> None:
    _generator().manual_seed(seed)


def _get_rng_state(device: object = "sim") -> torch.Tensor:
    _check(device)
    return _generator().get_state()


def _set_rng_state(state: torch.Tensor, device: object = "sim") -> None:
    _check(device)
    _generator().set_state(state)


def _current_stream(device: object = None) -> torch.Stream:
    _check(device)
    return torch.accelerator.current_stream()


def _synchronize(device: object = None) -> None:
    _check(device)
    torch.accelerator.synchronize()


def _stream(stream: torch.Stream | None) -> AbstractContextManager[object]:
    """A stream is the context that makes it current; without one nothing changes."""
    return nullcontext() if stream is None else stream


def build() -> ModuleType:
    """The module, to be registered under the device type's name."""
    module = ModuleType("torch.sim", __doc__)
    module.__dict__.update(
        device=device,
        is_available=lambda: True,
        is_initialized=lambda: True,
        is_bf16_supported=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=_check,
        Stream=torch.Stream,
        Event=torch.Event,
        stream=_stream,
        current_stream=_current_stream,
        synchronize=_synchronize,
        manual_seed=_manual_seed,
        manual_seed_all=_same_generator,
        get_rng_state=_get_rng_state,
        set_rng_state=_set_rng_state,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        _is_in_bad_fork=lambda: False,
    )
    return module
