"""A chunk: parameters that travel together, as views of one storage that is made and given back in place.

The storage object stays the same for ever and only its bytes come and go (`resize_`), so that what autograd saved of a
parameter finds it again after the chunk was away.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

ALIGNMENT_BYTES = 64
"""Where a parameter begins in its chunk: what vectorised kernels of the CPU and the GPU ask for."""


@dataclass(eq=False)
class Slot:
    """One parameter of a chunk: where it lies, and every place of the model that holds it (several: it is tied).

    `master` is the parameter that the optimizer and the program know; `working` is what forward and backward compute
    with, a view of the chunk on the device, of type `dtype`. Of a persistent chunk both are one, unless their types
    differ. `home_start` is where the master lies among masters. `plain` says whether the parameter came as one of
    PyTorch's own class.
    """

    name: str
    places: tuple[tuple[nn.Module, str], ...]
    start: int
    home_start: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    trainable: bool
    plain: bool
    master: nn.Parameter
    working: nn.Parameter

    def view(self, flat: Tensor) -> Tensor:
        """This parameter among flat bytes as they travel."""
        return self._typed(flat, self.start, self.dtype)

    def home(self, flat: Tensor) -> Tensor:
        """This parameter among flat bytes of masters."""
        return self._typed(flat, self.home_start, self.master.dtype)

    def _typed(self, flat: Tensor, start: int, dtype: torch.dtype) -> Tensor:
        size = self.numel * dtype.itemsize
        return flat[start : start + size].view(dtype).as_strided(self.shape, self.stride)

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return self.shape.numel()


def aligned(size_bytes: int) -> int:
    """What a parameter of so many bytes takes in a chunk."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(eq=False)
class Chunk:
    """Parameters on their way: `flat` on the device, `host` and `gradients` in page-locked memory.

    A persistent chunk has no `host`: it stays on the device, where `gradients` lie beside it. `bytes` is what of it is
    used; on the device it takes a whole buffer. `homes` and `home_gradients` are the masters' own bytes where their
    type is another one than what travels (`mixed`), on the host or, of a persistent chunk, on the device.
    """

    number: int
    bytes: int
    trainable: bool
    persistent: bool
    room_bytes: int
    flat: Tensor
    host: Tensor | None
    gradients: Tensor | None
    homes: Tensor | None = None
    home_gradients: Tensor | None = None
    slots: list[Slot] = field(default_factory=list)
    here: bool = False
    loaded: torch.Event | None = None
    """When its bytes are there, on the lane that brings them."""
    used: torch.Event | None = None
    """When the last pass that read it had been launched."""
    overwritten: set[int] = field(default_factory=set)
    """Slots, by place, whose bytes on the device are gradients now: nobody may read them as parameters any more."""
    waiting: set[int] = field(default_factory=set)
    """Slots, by place, whose gradients this backward has not brought yet."""
    own: dict[int, Tensor] = field(default_factory=dict)
    """Gradients that could not take their parameters' place."""
    came: set[int] = field(default_factory=set)
    """Slots, by place, whose gradients have come and have not left."""
    ready: bool = False
    """Compute has waited for `loaded`."""
    left: torch.Event | None = None
    """When its gradients are on the host, if they have left since it was loaded."""
    left_whole: bool = False
    """In this backward all its gradients left together, and there were none from before; of what stays: all came, and
    its graph is not kept."""
    versions: int = 0
    """Of the masters whose numbers the travelling bytes have."""
    updated: bool = False
    """Its masters are being updated, and the optimizer's step has not come yet."""

    @property
    def storage(self) -> torch.UntypedStorage:
        """Its bytes on the device."""
        return self.flat.untyped_storage()

    @property
    def mixed(self) -> bool:
        """Whether masters are of another type than what is computed with."""
        return self.homes is not None

    def gradient_home(self, slot: Slot) -> Tensor:
        """Where the gradient of a master lies."""
        flat = self.home_gradients if self.mixed else self.gradients
        assert flat is not None
        return slot.home(flat)

    def version(self) -> int:
        """Grows with every change of a master that PyTorch counts."""
        return sum(slot.master._version for slot in self.slots)

    def narrow(self) -> None:
        """Let what travels, or stays beside the masters, have the masters' numbers."""
        if self.mixed:
            with torch.no_grad():
                for slot in self.slots:
                    (slot.working.data if self.host is None else slot.view(self.host)).copy_(slot.master)
            self.versions = self.version()

    def place_of(self, tensor: Tensor) -> int:
        """The slot that a view of the chunk lies in."""
        start = tensor.storage_offset() * tensor.element_size()
        return bisect_right([slot.start for slot in self.slots], start) - 1

    def replace(self) -> None:
        """Its masters are elsewhere now: graphs that are left may hold it, but no memory by it."""
        self.storage.resize_(0)
        self.host = self.gradients = self.homes = self.home_gradients = None

    def give_back(self) -> None:
        """Nobody uses it any more: its memory on the device goes, without the garbage collector's help."""
        for flat in (self.flat, self.gradients, self.homes, self.home_gradients):
            if flat is not None and not flat.is_cpu:
                flat.untyped_storage().resize_(0)

    def begin(self) -> None:
        """A backward begins: all gradients are yet to come."""
        self.waiting = {place for place, slot in enumerate(self.slots) if slot.trainable}
        self.own.clear()
        self.came.clear()


def pinned(size_bytes: int, *, untouched: bool = False) -> Tensor:
    """Page-locked memory, zeros: gaps between parameters travel, too. Untouched, it is reserved and no more."""
    make = torch.empty if untouched else torch.zeros
    return make(size_bytes, dtype=torch.uint8, pin_memory=True)


def working_view(slot_view: Tensor, trainable: bool) -> nn.Parameter:
    """A parameter on these bytes whose version autograd counts by itself: a load is no change of a parameter."""
    return nn.Parameter(slot_view.data, requires_grad=trainable)
