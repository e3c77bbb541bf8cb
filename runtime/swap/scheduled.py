"""Swapped blocks as a swap schedule, for the executor to run: when each storage leaves and is back."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from runtime.blocks.policies import block_policies
from runtime.device.native import core
from runtime.execute.executor import SwapExecutor
from runtime.profile.assembly import Measured, assemble_graph
from runtime.profile.recording import detailed_recording
from solvers.ir.graph import OpGraph
from solvers.ir.layout import Policy
from solvers.ir.schedule import Action, Schedule

LANES = ("0.compute", "0.out", "0.in")


def policy_executor(
    model: nn.Module, step: Callable[[], object], policies: Sequence[Policy], device: torch.device, interval: int = 1
) -> SwapExecutor:
    """The swap executor for a step whose blocks run under these policies; checkpoints are still for `block_policies`.

    Calls `step` once, to record its operators and before which of them storages are to leave and to be back. Give
    what it returns steps in which swapped blocks keep: the executor moves what they save.
    """
    with detailed_recording(device, timed=False) as recorder:
        moves = _Noted(recorder)
        with block_policies(model, policies, device, interval, moves):
            step()
    count = len(recorder.operators())
    measured = Measured(times_us=[0] * count, arithmetic=False)
    graph = assemble_graph(recorder, measured, name="step", source="recorded", model=model)
    return SwapExecutor(_Schedule(graph, moves).schedule(), graph, device, trace=False)


class _Noted:
    """Moves nothing, but notes before which operator each storage was to leave, and to be back.

    Of what is born inside an operator the recorder learns only in backward: until then references keep its address.
    """

    def __init__(self, recorder: core.DetailedRecorder) -> None:
        self._leaves: dict[int, int] = {}
        self._returns: dict[int, int] = {}
        self._references: list[StorageWeakRef] = []
        self._recorder = recorder

    def leaving(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """Nothing leaves yet."""

    def arrived(self, number: int) -> None:
        """The schedule sees to that."""

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """It never left."""
        return tensor

    def send(self, tensor: torch.Tensor) -> None:
        """Note that the storage is to leave now."""
        storage = tensor.untyped_storage()
        self._references.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        self._leaves[storage._cdata] = len(self._recorder.operators())

    def begins(self, number: int) -> None:
        """The schedule sees to that."""

    def fetch(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """Note that the storages are to be back now."""
        for tensor in tensors:
            self._returns.setdefault(tensor.untyped_storage()._cdata, len(self._recorder.operators()))

    def flights(self) -> Iterator[tuple[int, int, int]]:
        """Storages by number, each with the operators before which it leaves and is back."""
        for address, leaves in self._leaves.items():
            number = self._recorder.storage_number(address)
            if number is not None and address in self._returns:
                yield number, leaves, self._returns[address]


class _Schedule:
    """One pass over the operators: releases, swap-ins, the operator, which waits for these, and swap-outs."""

    def __init__(self, graph: OpGraph, moves: _Noted) -> None:
        self._graph = graph
        self._actions: list[Action] = []
        self._moves_at: dict[str, dict[int, list[int]]] = {do: defaultdict(list) for do in ("out", "release", "in")}
        for number, leaves, back in moves.flights():
            uses = graph.tensors[number].uses
            self._moves_at["out"][max(use for use in uses if use < leaves)].append(number)
            self._moves_at["release"][leaves].append(number)
            self._moves_at["in"][min([back, *(use for use in uses if use >= leaves)])].append(number)

    def schedule(self) -> Schedule:
        """Every operator, and around it what moves."""
        outs: dict[int, int] = {}
        latest: list[int] = []
        for op in range(len(self._graph.ops)):
            for number in self._moves_at["release"][op]:
                latest = [self._add("0.compute", "release", op, number, [outs[number]])]
            arrivals = [self._add("0.in", "swap_in", op, number, latest) for number in self._moves_at["in"][op]]
            latest = [self._add("0.compute", "compute", op, None, arrivals)]
            for number in self._moves_at["out"][op]:
                outs[number] = self._add("0.out", "swap_out", op, number, latest)
        return Schedule(lanes=LANES, actions=tuple(self._actions))

    def _add(
        self,
        lane: str,
        do: Literal["release", "swap_in", "compute", "swap_out"],
        op: int,
        number: int | None,
        after: list[int],
    ) -> int:
        action = len(self._actions)
        data, size = ((), 0) if number is None else ((number,), self._graph.tensors[number].bytes)
        self._actions.append(Action(id=action, lane=lane, do=do, op=op, data=data, bytes=size, after=tuple(after)))
        return action
