"""What runs at the borders of a model and its blocks: passes begin, working parameters come, gradients leave.

A model's forward is pass 0, its blocks' forwards the next ones, and what runs behind the last block one more; then the
same in reverse, as gradients of the blocks' results become known (formats.md 8.1).

One file: forwards and backward passes ask one another which pass it is, and in whose thread.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from runtime.blocks.policies import block_policies
from runtime.blocks.replacing import forward_replaced
from runtime.blocks.saved import device_tensors, hooks_in_force
from runtime.layout.chunk import Chunk
from runtime.layout.graphs import Graph, Graphs
from runtime.layout.masters import Places, accumulating_node
from runtime.layout.refusals import require_as_laid_out, require_no_transform
from runtime.layout.store import Store, flats
from runtime.layout.swaps import Swaps
from runtime.layout.turns import Turns
from runtime.layout.updates import Updates
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import Policy


@dataclass(frozen=True)
class Walked:
    """What a walk follows: the calls of blocks as planned, by module, and the chunks of each module.

    `forward` is the model's own; `turns` outlive the layout.
    """

    model: nn.Module
    forward: Callable[..., Any]
    turns: Turns
    calls: tuple[nn.Module, ...]
    policies: tuple[Policy, ...]
    interval: int
    chunks_of: Mapping[nn.Module, tuple[int, ...]]


class Walk:
    """Lets a model's steps use the store; open until `close`."""

    def __init__(self, walked: Walked, store: Store, places: Places, updates: Updates) -> None:
        self._walked, self._store, self._places, self._updates = walked, store, places, updates
        self._swaps = Swaps(store.log, self._begins)
        self._device = store.device
        self._flats = flats(store.chunks)
        self._turns, self._peaks, self.graphs = walked.turns, store.log.peaks, Graphs()
        self._graph = Graph()
        self._called = 0
        self._in_backward: int | None = None
        self._beginning = Lock()
        self._replaced = False
        blocks = list(dict.fromkeys(walked.calls))
        inside = {module for block in blocks for module in block.modules()}
        self._rest = [module for module in walked.model.modules() if module not in inside]
        self._inner = {block: self._inside(block) for block in blocks}
        self._outside: list[Any] = []
        self._stack = ExitStack()
        self._stack.callback(self._outside.clear)
        self._replace(blocks)
        self._uses = _uses(store.chunks)
        for chunk in store.chunks:
            for place, slot in enumerate(chunk.slots):
                if slot.trainable:
                    self._watch(chunk, place, slot.working)
                    if not chunk.persistent:
                        self._watch_outside(chunk, slot.master)

    def close(self, *, replaced: bool = False) -> None:
        """The model is as it was; where another layout replaces this one, graphs that are left go no way back."""
        self._replaced = replaced
        self._stack.close()

    def _require_current(self) -> None:
        if self._replaced:
            raise InvalidInput(
                "a backward pass goes through a forward from before the layout was made again, whose parameters are "
                "elsewhere now: call backward before the next forward, or give wrap a step of the largest batch"
            )

    @property
    def modules(self) -> list[nn.Module]:
        """All modules of the model."""
        return list(self._walked.model.modules())

    def _replace(self, blocks: Sequence[nn.Module]) -> None:
        """From the inside: working parameters, the blocks' policies, borders of passes; then the whole model's."""
        model, enter = self._walked.model, self._stack.enter_context
        for block, inside in self._inner.items():
            enter(forward_replaced(block, inside))
        with self._places.installed(self.modules):  # states are told from activations by these
            walked = self._walked
            self._policies = enter(block_policies(model, walked.policies, self._device, walked.interval, self._swaps))
        for block in blocks:
            enter(forward_replaced(block, self._block(block)))
        for module in list(model.modules()):
            own = list(module.modules())
            first = self._places.first(own)
            if first is not None and module is not model and not any(one in self._inner for one in own):
                enter(forward_replaced(module, self._alone(module, own, first)))

    def _watch(self, chunk: Chunk, place: int, working: nn.Parameter) -> None:
        """Take a gradient as soon as it is complete. The garbage collector does not see what such a hook holds."""
        weakly, number = weakref.ref(self), chunk.number

        def complete(_: Tensor) -> None:
            walk = weakly()
            assert walk is not None
            walk._begin_backward()
            chunk = walk._store.chunks[number]
            walk._store.gradient(chunk, place, chunk.slots[place])

        self._stack.callback(working.register_post_accumulate_grad_hook(complete).remove)  # type: ignore[no-untyped-call]

    def _watch_outside(self, chunk: Chunk, master: nn.Parameter) -> None:
        """Let gradients of the master itself, which autograd adds in a thread of the host, not meet those that leave.

        The hooks are the node's, which is kept until `close`; the parameter has none.
        """
        weakly, number = weakref.ref(self), chunk.number
        node = accumulating_node(master)

        def before(_: Any) -> None:
            walk = weakly()
            if walk is None:  # unwrapped
                return
            walk._begin_backward()
            chunk = walk._store.chunks[number]
            walk._store.gradients.begin_outside(chunk)

        def after(*_: Any) -> None:
            walk = weakly()
            if walk is not None:
                walk._store.gradients.end_outside(walk._store.chunks[number])

        self._outside.append(node)
        node.register_prehook(before)
        node.register_hook(after)

    def held_elsewhere(self) -> bool:
        """Whether the program holds a master's memory, a graph that saved a master, or a weak reference to one."""
        masters = [slot.master for chunk in self._store.chunks for slot in chunk.slots]
        nets = {id(one) for module in self.modules for one in module.__dict__.get("_flat_weight_refs", ())}
        saved = any(one._use_count() > 2 for one in masters)  # type: ignore[attr-defined]
        referred = any(id(found) not in nets for one in masters for found in weakref.getweakrefs(one))
        return saved or referred or self._uses != _uses(self._store.chunks)

    def _alone(self, module: nn.Module, own: Sequence[nn.Module], first: nn.Module) -> Callable[..., Any]:
        """Forward of a module beside or inside blocks, also where neither model nor block runs around it.

        As where the program calls it, or a checkpoint of the model's own computes it again.
        """
        forward = module.forward

        def run(*args: Any, **kwargs: Any) -> Any:
            if self._places.holds(first):
                return forward(*args, **kwargs)
            with self._by_itself(()), self._places.installed(own):
                return forward(*args, **kwargs)

        return run

    @contextmanager
    def _by_itself(self, chunks: Sequence[int]) -> Iterator[None]:
        """Around what runs outside the model's forward: nothing of it is half updated, and what it saves is watched."""
        if self._turns.running or self._turns.helps or torch._C._current_graph_task_id() != -1:
            yield
            return
        with self._turns.lock:
            if self._replaced:
                raise InvalidInput("the model's layout was made again while a thread waited for its turn: call again")
            self._updates.require_readable(chunks)
            with self._guarded() if torch.is_grad_enabled() else nullcontext():
                yield

    def _inside(self, block: nn.Module) -> Callable[..., Any]:
        """A block's own forward, also when it is computed again."""
        forward, modules = block.forward, list(block.modules())

        def run(*args: Any, **kwargs: Any) -> Any:
            with self._places.installed(modules):
                return forward(*args, **kwargs)

        return run

    def _block(self, block: nn.Module) -> Callable[..., Any]:
        """A block's forward pass, and the hooks that begin its backward pass."""
        forward, inside, chunks = block.forward, self._inner[block], self._walked.chunks_of.get(block, ())

        def run(*args: Any, **kwargs: Any) -> Any:
            again = torch._C._current_graph_task_id() != -1
            trained = self._turns.running or self._turns.helps_training
            if again or not trained:  # computed again, or not trained
                with self._by_itself(chunks):
                    self._store.need(chunks)
                    return inside(*args, **kwargs)
            self._called += 1
            number, last = self._called, len(self._walked.calls)
            planned = number <= last and self._walked.calls[number - 1] is block
            self._store.enter(number if planned else -1, chunks)
            if number == 1:
                self._hook(args, kwargs, 2 * last + 3, ())
            result = forward(*args, **kwargs)
            self._hook(result, (), 2 * last + 3 - number if planned else -1, chunks)
            if planned and number == last:
                self._store.enter(last + 1, ())
            return result

        return run

    def require_trainable(self) -> None:
        """A forward that trains begins: raise `InvalidInput` where it may not."""
        self._updates.require_whole()
        require_no_transform()
        require_as_laid_out(self._store.chunks)

    def run(self, args: Any, kwargs: Any, *, least: bool) -> Any:
        """The whole model's forward, in its thread's turn; with the least in memory, every block is checkpointed."""
        trains, last = torch.is_grad_enabled(), len(self._walked.calls)
        self._graph = self.graphs.begin() if trains else Graph()
        if trains:
            self._policies.begin_step(least=least)
            self._swaps.begin_step()
        else:
            self._updates.require_readable()
        self._store.begin(planned=trains)
        self._called, self._in_backward = 0, None
        try:
            with self._places.installed(self._rest), self._guarded(), self._turns.forward(trains=trains):
                if trains:
                    self._peaks.to("forward")
                    self._store.enter(0, ())
                result = self._walked.forward(*args, **kwargs)
            if trains:
                self._peaks.to("behind")
                self._hook(result, (), last + 2, ())
            else:
                self._store.release()
        finally:
            self._graph = Graph()  # only its results hold it from now on
        return result

    def _hook(self, values: Any, more: Any, number: int, chunks: Sequence[int]) -> None:
        """Begin a backward pass where the gradient of any of these tensors is known."""
        graph = self._graph
        for tensor in device_tensors((values, more), self._device):
            if tensor.grad_fn is not None:  # what a leaf has is known before what comes behind it has run

                def begin(_: Tensor) -> None:
                    self._require_current()
                    self.graphs.goes_back(graph)
                    self._begin_backward()
                    self._store.enter_once(number, chunks)

                tensor.register_hook(begin)  # type: ignore[no-untyped-call]

    def _begins(self, number: int) -> None:
        """The backward of this call of a block, of a planned step."""
        if self._store.following:
            self._begin_backward()
            calls = self._walked.calls
            self._store.enter_once(2 * len(calls) + 2 - number, self._walked.chunks_of.get(calls[number], ()))

    def _begin_backward(self) -> None:
        """The first thing in a backward, in whichever of autograd's threads; it ends when autograd says so."""
        self._require_current()
        task = torch._C._current_graph_task_id()
        with self._beginning:
            if task in (-1, self._in_backward):
                return
            self._in_backward = task
            self._peaks.backward_begins()
            self._updates.begin_backward()
            Variable._execution_engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        self._store.leave()
        self._updates.all_left()
        self._store.end_backward()
        self._updates.end_backward()
        self._peaks.to("between")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """What is saved of a chunk brings it back when backward reads it, whatever pass that is in."""
        outer_pack, outer_unpack = hooks_in_force()

        def pack(tensor: Tensor) -> Any:
            chunk = self._flats.get(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else None
            return outer_pack(tensor) if chunk is None else _Saved(tensor, chunk)

        def unpack(value: Any) -> Any:
            if not isinstance(value, _Saved):
                return outer_unpack(value)
            self._require_current()
            self._store.touch(value.chunk, value.chunk.place_of(value.tensor))
            return value.tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield


def _uses(chunks: Sequence[Chunk]) -> list[int]:
    """How many tensors share each memory of masters."""
    flats = [next(flat for flat in (chunk.homes, chunk.host, chunk.flat) if flat is not None) for chunk in chunks]
    return [torch._C._storage_Use_Count(flat.untyped_storage()._cdata) for flat in flats]


@dataclass(frozen=True)
class _Saved:
    """A parameter, or a view of one, that autograd saved."""

    tensor: Tensor
    chunk: Chunk
