"""What an operation of torch.distributed gives each member: on CPU tensors, in rank order, the same everywhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from solvers.ir.errors import InvalidInput

Kind = Literal[
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_single",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "all_to_all",
    "barrier",
    "message",
]

REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


@dataclass(frozen=True)
class Call:
    """What every member must agree on. `sizes` are bytes: of each tensor that the members have in common."""

    kind: Kind
    dtypes: tuple[torch.dtype, ...] = ()
    sizes: tuple[int, ...] = ()
    reduction: str | None = None
    root: int | None = None

    def __str__(self) -> str:
        told = [f"{sum(self.sizes):,} bytes"] if self.sizes else []
        told += [str(dtype).removeprefix("torch.") for dtype in dict.fromkeys(self.dtypes)]
        told += [self.reduction] if self.reduction else []
        told += [f"root {self.root}"] if self.root is not None else []
        return self.kind + (f" of {', '.join(told)}" if told else "")

    def total_bytes(self, members: int) -> int:
        """What the larger side of a collective holds (`solvers.timeline.collectives.collective_ns`)."""
        per_member = self.kind in {"all_gather", "all_gather_single", "gather", "scatter"}
        return sum(self.sizes) * (members if per_member else 1)


def reduction_name(op: object) -> str:
    """`SUM` of `ReduceOp.SUM`, and so on. Raises `InvalidInput` for what has no exact meaning here (PREMUL_SUM)."""
    name = str(getattr(op, "op", op)).rpartition(".")[2]
    if name not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        raise InvalidInput(f"reduction {name} is not known to the group 'sim': use one of {known}")
    return name


def reduced(tensors: Sequence[Tensor], reduction: str) -> Tensor:
    """The members' tensors combined from rank 0 on, in their own type; an average divides the sum by their number."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = REDUCTIONS[reduction](total, tensor.reshape(total.shape))  # Shapes are each member's own business.
    if reduction != "AVG":
        return total
    return total / len(tensors) if total.is_floating_point() or total.is_complex() else total // len(tensors)


def require_fit(
    call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor], members: int, device: torch.device | None
) -> None:
    """Raise `InvalidInput` where a member's own tensors do not belong to each other, or to its `device` (None: CPU)."""
    for tensor in (*inputs, *outputs):
        if device is not None and tensor.device != device:
            raise InvalidInput(f"{call} was given a tensor of {tensor.device} by the rank of {device}: give its own")
    dtypes = {tensor.dtype for tensor in (*inputs, *outputs)}
    if call.kind != "message" and len(dtypes) > 1 and len(call.dtypes) <= 1:
        told = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise InvalidInput(f"{call} was given tensors of {told}: give inputs and outputs of one type")
    factor = {"all_gather_single": members, "reduce_scatter_single": 1 / members}.get(call.kind)
    if factor is not None:
        for one, other in zip(inputs, outputs, strict=True):
            if other.numel() != one.numel() * factor:
                raise InvalidInput(
                    f"{call} over {members} ranks was given {one.numel():,} numbers and room for {other.numel():,}: "
                    f"give room for {one.numel() * factor:,.0f}"
                )


def require_lists(call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor], members: int, member: int) -> None:
    """Raise `InvalidInput` where a member's list has no tensor for each member, or one that does not fit."""
    lists = {
        "all_gather": [outputs],
        "gather": [outputs],
        "scatter": [inputs],
        "reduce_scatter": [inputs],
        "all_to_all": [inputs, outputs],
    }.get(call.kind, [])
    for tensors in lists:
        # Of a gather or scatter the root alone has a list.
        if len(tensors) != members and (tensors or call.root is None):
            raise InvalidInput(
                f"{call} was given a list of {len(tensors)} tensors by member {member} of {members}: give one for each "
                "member"
            )
    one_for_all = {"all_gather": inputs[:1], "gather": inputs[:1], "scatter": outputs[:1]}.get(call.kind, [])
    pairs = [(one.numel(), other.numel()) for one in one_for_all for tensors in lists for other in tensors]
    if call.kind == "reduce_scatter":
        pairs = [(inputs[member].numel(), outputs[0].numel())]
    for wanted, there in pairs:
        if wanted != there:
            raise InvalidInput(
                f"{call} was given {wanted:,} numbers and {there:,} to go together by member {member}: give tensors of "
                "one size"
            )


def exchange(call: Call, inputs: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """By member, what goes into its outputs, one for one; shapes may differ from the outputs' where numbers do not.

    `inputs` are the members' tensors in group order. Nothing returned shares memory with them. Tensors of several
    calls in one (`*_coalesced`) stand one behind the other; a reduce-scatter of lists has one input for each member.
    """
    members = range(len(inputs))
    none: list[Tensor] = []
    match call.kind:
        case "all_reduce":
            total = _reduce_each(call, inputs)
            return [total for _ in members]
        case "reduce":
            return [_reduce_each(call, inputs) if member == call.root else none for member in members]
        case "broadcast":
            sent = [tensor.clone() for tensor in inputs[call.root or 0]]
            return [none if member == call.root else sent for member in members]
        case "all_gather" | "gather":
            gathered = [tensor.clone() for member in members for tensor in inputs[member]]
            return [gathered if call.kind == "all_gather" or member == call.root else none for member in members]
        case "all_gather_single":
            joined = [torch.cat([tensor.reshape(-1) for tensor in same]) for same in zip(*inputs, strict=True)]
            return [joined for _ in members]
        case "scatter":
            return [[inputs[call.root or 0][member].clone()] for member in members]
        case "reduce_scatter":
            return [[reduced([inputs[m][member] for m in members], call.reduction or "SUM")] for member in members]
        case "reduce_scatter_single":
            rows = [total.reshape(len(inputs), -1) for total in _reduce_each(call, inputs)]
            return [[row[member] for row in rows] for member in members]
        case "all_to_all":
            return [[inputs[sender][member].clone() for sender in members] for member in members]
        case "message":
            return [none, [tensor.clone() for tensor in inputs[0]]]
    return [none for _ in members]


def _reduce_each(call: Call, inputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [reduced(same, call.reduction or "SUM") for same in zip(*inputs, strict=True)]
