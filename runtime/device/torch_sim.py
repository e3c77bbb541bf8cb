"""The module `torch.sim`: what PyTorch expects to find under the name of a device type."""

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType, TracebackType
from typing import Any

import torch


def _index(device: object = None) -> int | None:
    """The index that a device of type sim is named by; None and -1 mean the current one, PyTorch refuses others."""
    if isinstance(device, str):
        device = torch.device(device)
    index = device.index if isinstance(device, torch.device) else device
    if not isinstance(index, int) or index < 0:
        return None
    torch.accelerator.current_stream(index)  # raises where there is no such device
    return index


class device:  # the name that torch.save, torch.load and the autograd engine look for
    """Context that selects a device of type sim."""

    def __init__(self, index: object = None) -> None:
        self.index = _index(index)
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(torch.accelerator.current_device_index())
        _set_device(self.index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_device(self._before.pop())


def _set_device(device: object) -> None:
    index = _index(device)
    if index is not None:
        torch.accelerator.set_device_index(index)


class Generators:
    """Each device's default generator: the first one's is the CPU's, so that one seed gives both the same numbers."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def of(self, device: object = None) -> torch.Generator:
        """The generator that a device's operators draw from."""
        index = _index(device)
        index = torch.accelerator.current_device_index() if index is None else index
        return torch.default_generator if index == 0 else self._native.default_generator(index)

    def seed_all(self, seed: int) -> None:
        """Seeds all of them alike, as `torch.manual_seed` asks for."""
        for index in range(self._native.device_count()):
            self.of(index).manual_seed(seed)

    def seed(self, seed: int) -> None:
        """Seeds the current device's."""
        self.of().manual_seed(seed)

    def state(self, device: object = "sim") -> torch.Tensor:
        """The state of a device's generator."""
        return self.of(device).get_state()

    def set_state(self, state: torch.Tensor, device: object = "sim") -> None:
        """Puts a device's generator back to a state."""
        self.of(device).set_state(state)


def _current_stream(device: object = None) -> torch.Stream:
    return torch.accelerator.current_stream(_index(device))


def _synchronize(device: object = None) -> None:
    torch.accelerator.synchronize(_index(device))


def _stream(stream: torch.Stream | None) -> AbstractContextManager[object]:
    """A stream is the context that makes it current; without one nothing changes."""
    return nullcontext() if stream is None else stream


def build(native: Any) -> ModuleType:
    """The module, to be registered under the device type's name."""
    module, generators = ModuleType("torch.sim", __doc__), Generators(native)
    module.__dict__.update(
        device=device,
        is_available=lambda: True,
        is_initialized=lambda: True,
        is_bf16_supported=lambda: True,
        device_count=native.device_count,
        current_device=torch.accelerator.current_device_index,
        set_device=_set_device,
        Stream=torch.Stream,
        Event=torch.Event,
        stream=_stream,
        current_stream=_current_stream,
        synchronize=_synchronize,
        manual_seed=generators.seed,
        manual_seed_all=generators.seed_all,
        get_rng_state=generators.state,
        set_rng_state=generators.set_state,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        _is_in_bad_fork=lambda: False,
        _initialized=True,  # checkpoint saves the random numbers of a device only where this says so
    )
    return module
