"""A model's parameters in the order in which forward uses them first, and the blocks that use them."""

from collections.abc import Mapping, Sequence

from torch import nn

from runtime.blocks.blocks import states_of
from runtime.device.native import core
from runtime.profile.memory.profile import ProfiledParameter


def first_uses(recorder: core.DetailedRecorder, model: nn.Module) -> dict[int, list[int]]:
    """The operators of forward that touch each parameter or buffer, by its storage's address."""
    uses: dict[int, list[int]] = {}
    for number, record in enumerate(recorder.operators()):
        if record.range != "outside":
            break
        for storage in dict.fromkeys((*record.inputs, *record.outputs)):
            uses.setdefault(storage, []).append(number)
    numbers = {address: recorder.storage_number(address) for address in states_of(model)}
    return {address: uses.get(number, []) for address, number in numbers.items() if number is not None}


def ordered_parameters(
    model: nn.Module, calls: Sequence[nn.Module], uses: Mapping[int, Sequence[int]]
) -> tuple[tuple[ProfiledParameter, ...], tuple[ProfiledParameter, ...]]:
    """Parameters in the order of their first use, and those that forward uses nowhere; `calls` are the blocks' modules.

    A parameter inside blocks belongs to these; another one to what runs before the first block or behind the last,
    and between two to the one before.
    """
    owners: dict[int, list[int]] = {}
    for number, module in enumerate(calls):
        for address in states_of(module):
            owners.setdefault(address, []).append(number + 1)
    starts = _starts(owners, uses, len(calls))
    found: dict[int, tuple[int, ProfiledParameter]] = {}
    for name, parameter in model.named_parameters():
        storage = parameter.untyped_storage()
        used = uses.get(storage._cdata, ())
        blocks = {block for block in owners.get(storage._cdata, ()) if used}
        if used:
            blocks |= {_block_at(use, starts) for use in used if storage._cdata not in owners}
        one = ProfiledParameter(name, storage.nbytes(), tuple(sorted(blocks)), parameter.requires_grad)
        found.setdefault(storage._cdata, (min(used, default=-1), one))
    ordered = sorted(found.values(), key=lambda pair: pair[0])
    return (
        tuple(one for first, one in ordered if first >= 0),
        tuple(one for first, one in ordered if first < 0),
    )


def _starts(
    owners: Mapping[int, Sequence[int]], uses: Mapping[int, Sequence[int]], blocks: int
) -> list[tuple[int, int]]:
    """(first operator, block) of each block as its own parameters show it, and of what is behind the last."""
    firsts: dict[int, int] = {}
    last = -1
    for address, places in owners.items():
        if uses.get(address):
            last = max(last, max(uses[address]))
            firsts[places[0]] = min(firsts.get(places[0], uses[address][0]), uses[address][0])
    return [*sorted((first, block) for block, first in firsts.items()), (last + 1, blocks + 1)]


def _block_at(use: int, starts: Sequence[tuple[int, int]]) -> int:
    return max((block for first, block in starts if use >= first), default=0)
