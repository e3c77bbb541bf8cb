"""Updates of the masters: by the user's own optimizer, chunk by chunk, on the host's worker or on the device.

An optimizer of PyTorch's that treats every parameter by itself may be given its parameters in any portions: the numbers
are the same. Each chunk has a shadow of the user's optimizer: the same class, states and settings, fewer parameters.
Where nothing between backward and step changes gradients, parameters or settings, a chunk is updated while backward
still runs.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from runtime.device import shapes_only
from runtime.layout.checksums import checksums
from runtime.layout.chunk import Chunk
from runtime.layout.foreach import as_on, is_portioned, stepping_as_on
from runtime.layout.host_lane import Done, HostLane
from runtime.layout.log import Log
from runtime.layout.optimizers import Settings, raw_step, settings_of, why_not
from solvers.ir.errors import InvalidInput

CPU_UPDATES_PER_S = 4_000_000_000
"""Parameters that a host updates in a second, on sim, as plans assume (solvers/layout)."""
CHANGED = "gradients or parameters change between backward and step, as clipping and decay do"
"""Why nothing overlaps where somebody was seen to change them."""
OUTSIDE = "gradients come to parameters from outside the model, as of a penalty on them"
"""Why nothing overlaps where a master had a gradient of its own."""
SCALED = ("grad_scale", "found_inf")
"""What a gradient scaler hangs on a fused optimizer for its step, which then does the scaler's work."""
Seen = tuple[tuple[int, ...], int | None, tuple[int, ...]]
"""Of a chunk: its gradients, its masters' version unless the worker changes it, and all checksums where they count."""


class _Launched:
    """An update on the device, which comes before all that is launched later."""

    def wait(self) -> None:
        """Nobody need wait."""

    def tell(self, log: Log, what: str, number: int) -> None:
        """Its lane has told."""


class Updates:
    """Steps an optimizer over chunks; in place of its own `step`, until `close`."""

    def __init__(
        self,
        optimizer: Optimizer,
        chunks: Sequence[Chunk],
        lane: HostLane,
        settle: Callable[[], None],
        log: Log,
        *,
        overlap: bool,
    ) -> None:
        self._optimizer, self._chunks, self._lane, self._settle = optimizer, tuple(chunks), lane, settle
        self.log = log
        self._others = {id(slot.master) for chunk in chunks for slot in chunk.slots if not slot.plain}
        self.reason = why_not(optimizer, overlap, self._others)
        self.overlapping = False
        self._looked_on = False
        self._backwards = self._ended = 0
        self._settings: Settings = ()
        self._seen: dict[int, Seen] = {}
        self._after: dict[int, int] = {}
        self._updated: set[int] = set()
        self._doing: list[tuple[Chunk, Done]] = []
        self._own_step = optimizer.__dict__.get("step")
        self._raw_step = raw_step(optimizer)
        whole = Optimizer.profile_hook_step(lambda _, closure=None: self.step(closure))
        if hasattr(self._own_step, "_wrapped_by_lr_sched"):  # a scheduler counts steps: `step` tells it itself
            whole.__dict__["_wrapped_by_lr_sched"] = True
        self._our_step = MethodType(whole, optimizer)
        optimizer.step = self._our_step  # type: ignore[method-assign]
        self._guard = optimizer.register_state_dict_pre_hook(lambda _: self.require_unchanged())

    def move_to(self, chunks: Sequence[Chunk], settle: Callable[[], None]) -> None:
        """The masters are in other chunks from now on; none is half updated."""
        self._chunks, self._settle, self._seen, self._after = tuple(chunks), settle, {}, {}

    def close(self) -> None:
        """The optimizer steps by itself again, all updates done; a wrapper around ours stays."""
        self._guard.remove()
        for _, done in self._doing:
            with suppress(Exception):
                done.wait()
        if self._optimizer.__dict__.get("step") is not self._our_step:
            return
        if self._own_step is None:
            self._optimizer.__dict__.pop("step", None)
        else:
            self._optimizer.step = self._own_step  # type: ignore[method-assign]

    def require_whole(self) -> None:
        """A forward that trains begins: raise `InvalidInput` where the last backward's updates came and no step did."""
        self._require_no_failure()
        if self._updated:
            self._refuse("a forward came before the optimizer's step")

    def require_readable(self, numbers: Sequence[int] | None = None) -> None:
        """Something is read that trains nothing: raise `InvalidInput` where some of it is updated already.

        `numbers` are the chunks that it reads, all where nothing is said. Those that travel are refused when they load.
        """
        if any(chunk.persistent and (numbers is None or chunk.number in numbers) for chunk, _ in self._doing):
            self._refuse("a forward came before the optimizer's step")

    def require_unchanged(self) -> None:
        """Somebody asks for states: raise `InvalidInput` where some are of this step and others of the one before."""
        self._require_no_failure()
        if self._updated:
            raise InvalidInput(
                "states are asked for between backward and the optimizer's step, but chunks have been updated beside "
                "backward already: ask after the step, or wrap with overlap_update=False"
            )

    def _require_no_failure(self) -> None:
        if self._updated and self._backwards > self._ended:
            self._refuse("a backward failed after chunks were updated beside it", "")

    def begin_backward(self) -> None:
        """A backward begins: whether its chunks may be updated in it, and by which settings."""
        self._require_no_failure()
        self._backwards = self._ended + 1  # one that failed does not count
        if self._backwards == 1:
            self._settings = settings_of(self._optimizer)
        for chunk in self._chunks:
            chunk.left_whole = False
        self.overlapping = self.reason is None and self._looked_on and self._backwards == 1

    def left(self, chunk: Chunk) -> None:
        """A chunk's gradients are on their way to the host."""
        if self.overlapping and chunk.left_whole:
            self._updated.add(chunk.number)  # also if it fails: nobody knows how much was updated
            self._submit(chunk, chunk.left)

    def outside(self, chunk: Chunk) -> None:
        """A master of this chunk is about to get a gradient that is none of the model's own backward."""
        self.reason = self.reason or OUTSIDE
        self.overlapping = False
        if chunk.number in self._updated:
            self._refuse(OUTSIDE)

    def all_left(self) -> None:
        """All gradients have come or are on their way: the device updates what stays on it before the host waits."""
        for chunk in self._chunks if self.overlapping else ():
            if chunk.persistent and chunk.trainable and chunk.left_whole:
                self._updated.add(chunk.number)
                self._doing.append((chunk, _Launched()))
                self._on_device(chunk)

    def end_backward(self) -> None:
        """Remember what gradients and masters are: a change before the step forbids to overlap."""
        self._ended += 1
        self._seen = {chunk.number: self._see(chunk) for chunk in self._chunks}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """What the optimizer's own step does, its masters up to date when it returns."""
        loss = None
        own = not type(self._optimizer).__module__.startswith("torch.optim")  # it may call a closure several times
        if closure is not None and not own:
            with torch.enable_grad():
                loss = closure()
        self._require_no_failure()
        self._settle()
        self._look()
        self.log.peaks.to("update")
        if is_portioned(self._optimizer):
            self._rest()
        else:
            self._let_loads_end()
            given = () if closure is None or not own else (partial(self._evaluate, closure),)
            with torch.no_grad(), stepping_as_on(self.log.device, self._optimizer, self._others):
                result = self._raw_step(self._optimizer, *given)
            loss = result if given else loss
            for chunk in self._chunks:
                chunk.narrow()
        for chunk, done in self._doing:
            done.wait()
            done.tell(self.log, "cpu-update", chunk.number)
            if self._after.get(chunk.number) != chunk.version():
                self._forbid(CHANGED)
            chunk.updated = False
        self._doing.clear()
        self._updated.clear()
        self._after.clear()
        self._backwards = self._ended = 0
        self._seen = {}
        self.log.end_step()
        if self._own_step is not None:
            self._optimizer.__dict__["_opt_called"] = True  # what a scheduler that wrapped `step` looks at
        return loss

    def _let_loads_end(self) -> None:
        """The host is about to write what a load may still read."""
        for loaded in (chunk.loaded for chunk in self._chunks if chunk.loaded is not None):
            loaded.synchronize()

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        """A closure that an optimizer calls when it likes: its gradients are there, and nothing reads masters."""
        with torch.enable_grad():
            loss = closure()
        self._settle()
        self._let_loads_end()
        return loss

    def _look(self) -> None:
        """Whether somebody has changed gradients, masters or settings since backward, or called it several times."""
        if any(getattr(self._optimizer, name, None) is not None for name in SCALED):
            self._forbid("a gradient scaler divides gradients and may skip the step")
        if any(self._seen.get(chunk.number) not in (None, self._see(chunk)) for chunk in self._chunks):
            self._forbid(CHANGED)
        if self._backwards and settings_of(self._optimizer) != self._settings:
            self._forbid("the optimizer's settings change between backward and step")
        if self._backwards > 1:
            self._forbid("gradients of several backward passes are added before a step")
        self._looked_on = self._looked_on or (self._backwards == 1 and bool(self._seen))

    def _see(self, chunk: Chunk) -> Seen:
        """What a chunk is now. Until a step has shown that nothing changes, also what no version counts (`.data`)."""
        undecided = self.reason is None and not self._looked_on and not shapes_only(self.log.device)
        versions = None if chunk.number in self._updated else chunk.version()
        return _versions(chunk), versions, checksums(chunk) if undecided else ()

    def _forbid(self, reason: str) -> None:
        self.reason = self.reason or reason
        if self._updated:
            self._refuse(reason)

    def _refuse(self, what: str, otherwise: str = ", with overlap_update=False if the loop is meant so") -> None:
        raise InvalidInput(
            f"{what}, so the masters are partly of this step and partly of the one before: unwrap(model), load saved "
            f"states, and wrap again{otherwise}"
        )

    def _rest(self) -> None:
        """All chunks that have not been updated beside backward: the device's own first, which nobody waits for."""
        for chunk in self._chunks:
            if chunk.persistent and chunk.trainable and chunk.number not in self._updated:
                self._on_device(chunk)
        for chunk in self._chunks:
            if not chunk.persistent and chunk.trainable and chunk.number not in self._updated:
                self._submit(chunk, chunk.loaded)  # who read it since backward may not have waited

    def _on_device(self, chunk: Chunk) -> None:
        with self.log.on(None, "compute", "device-update", chunk.number):
            self._portion(chunk)

    def _submit(self, chunk: Chunk, after: torch.Event | None) -> None:
        numbers = sum(slot.numel for slot in chunk.slots if slot.master.grad is not None)
        if not numbers:
            return
        duration_ns = numbers * 1_000_000_000 // CPU_UPDATES_PER_S
        name = f"update chunk {chunk.number}"
        work = _nothing if shapes_only(self.log.device) else lambda: self._portion(chunk)
        self._doing.append((chunk, self._lane.submit(work, duration_ns, after, name)))
        self._after.setdefault(chunk.number, chunk.version())
        chunk.updated = True

    def _portion(self, chunk: Chunk) -> None:
        """The optimizer's step over one chunk."""
        shadow = self._shadow(chunk)
        if shadow.param_groups:
            with torch.no_grad():
                self._raw_step(shadow)
            chunk.narrow()
        self._after[chunk.number] = chunk.version()

    def _shadow(self, chunk: Chunk) -> Optimizer:
        """The user's optimizer with this chunk's parameters only; states and settings are its own."""
        own = self._optimizer
        shadow: Optimizer = object.__new__(type(own))
        shadow.__dict__.update({key: value for key, value in own.__dict__.items() if key != "step"})
        if not chunk.persistent:  # the optimizer would copy them to its parameters' device, and not wait
            shadow.__dict__.update({key: one.cpu() for key in SCALED if (one := own.__dict__.get(key)) is not None})
        mine = {id(slot.master) for slot in chunk.slots}
        groups = [
            dict(
                as_on(self.log.device, own, group, self._others),
                params=[one for one in group["params"] if id(one) in mine],
            )
            for group in own.param_groups
        ]
        shadow.param_groups = [group for group in groups if group["params"]]
        return shadow


def _nothing() -> None:
    """Of numbers that nobody has."""


def _versions(chunk: Chunk) -> tuple[int, ...]:
    grads = (slot.master.grad for slot in chunk.slots)
    return tuple(-1 if one is None else hash((id(one), one._version)) for one in grads)
