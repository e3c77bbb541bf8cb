"""From the plan of a whole step to one schedule of all ranks: passes, messages, and what is recomputed where (11.8)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import msgspec

from solvers.ir.fields import require
from solvers.ir.pipeline import PipelinePlan, PipelineProblem
from solvers.ir.recompute import LayerGroup
from solvers.ir.schedule import Action, Do, Schedule
from solvers.partition.layer_policy import LayerPolicy
from solvers.partition.stages import choice_of, last_layer, layer_problem_of
from solvers.partition.steps import times_of
from solvers.timeline import PipelineTimes
from solvers.timeline.pipeline.order import Order, cool_down, stage_order
from solvers.timeline.pipeline.stretches import LayerPass, layer_passes

Direction = Literal["forward", "backward"]
LANES = ("compute", "comm", "out", "in")


def lower(problem: PipelineProblem, plan: PipelinePlan) -> Schedule:
    """The schedule that carries a valid plan out; raises `InvalidProblem` where the plan is none of this problem's.

    Its makespan is the plan's objective. A window of a forward pass serves the layer of the backward pass that comes
    next, a window of a backward pass the layer below; those of a stage's first layer serve its last layer of the next
    backward pass, and for the first backward pass that layer keeps what its windows would have recomputed.
    """
    _require_plan(problem, plan)
    passes = layer_passes(problem)
    chosen = [
        choice_of(problem, stage, layer_problem_of(problem, stage, layers), plan.stages[stage].groups)
        for stage, layers in enumerate(plan.layers)
    ]
    times = times_of(problem, chosen, plan.hide_in_stalls)
    actions: list[Action] = []
    numbers = count(2 * len(plan.layers) * problem.microbatches)  # the first ones are those of messages
    for stage, own in enumerate(plan.stages):
        policies = [LayerPolicy.of(problem, group) for group in own.groups for _ in range(group.layers)]
        actions += _Rank(problem, stage, policies, own.groups[-1], passes, times, numbers).lowered()
    lanes = tuple(f"{stage}.{lane}" for stage in range(len(plan.layers)) for lane in LANES)
    return Schedule(lanes=lanes, actions=tuple(actions))


def _require_plan(problem: PipelineProblem, plan: PipelinePlan) -> None:
    """Refuse what has no schedule (what a valid plan is, the judge says)."""
    depth = len(problem.stages)
    require(
        len(plan.layers) == len(plan.stages) == depth and sum(plan.layers) == problem.layers,
        f"the plan has {sum(plan.layers)} layers on {len(plan.layers)} stages, the problem {problem.layers} on {depth}"
        ": give a plan of this problem",
    )
    for stage, (layers, own) in enumerate(zip(plan.layers, plan.stages, strict=True)):
        held = sum(group.layers for group in own.groups)
        require(held == layers, f"stage {stage} has {layers} layers, its groups {held}: give a plan of this problem")


@dataclass
class _Rank:
    """One stage's actions as they are made; `latest` is the compute lane's, `waiting` what its next one waits for."""

    problem: PipelineProblem
    stage: int
    policies: Sequence[LayerPolicy]
    group: LayerGroup
    passes: dict[str, LayerPass]
    times: PipelineTimes
    numbers: Iterator[int]
    actions: list[Action] = field(default_factory=list)
    latest: int = -1
    waiting: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        order: Order = self.problem.order
        depth, microbatches = len(self.problem.stages), self.problem.microbatches
        self.order = stage_order(self.stage, depth, microbatches, order)
        self.backwards = [one.microbatch for one in self.order if one.kind == "backward"]
        self.cool = cool_down(depth, microbatches, order)[self.stage]
        self.ahead = depth - 1 - self.stage if order == "1f1b" else 0
        started, gradient = self.times.recompute_start_us[self.stage], self.times.gradient_us[self.stage]
        self.edge = last_layer(layer_problem_of(self.problem, self.stage, len(self.policies)), self.group)
        self.last = self.stage == depth - 1
        self.early = (self.times.recompute_us[self.stage] > 0) & (started < gradient)

    def lowered(self) -> list[Action]:
        """All passes in their order."""
        for one in self.order:
            if one.kind == "forward":
                self._forward(one.microbatch)
            else:
                self._backward(one.microbatch)
        return self.actions

    def _forward(self, m: int) -> None:
        """One microbatch through the layers; its windows recompute for the backward pass that comes next, if any."""
        if self.stage:
            self._receive("forward", m, self.stage - 1)
        served = m - self.ahead if self.ahead and m >= self.ahead else None
        if not self.stage:
            self._extra("forward", m)
        for layer, policy in enumerate(self.policies):
            kept = [*policy.stored, *(self._spared(m) if layer == len(self.policies) - 1 else ())]
            replays = () if served is None else policy.windows[: policy.forward]
            if served is not None and self._exchanges(layer, served):
                replays = policy.windows[policy.forward :]
            self._layer("forward", m, layer, replays, served or 0, layer, kept)
        if self.stage:
            self._extra("forward", m)
        if self.stage + 1 < len(self.problem.stages):
            self._send("forward", m)

    def _backward(self, m: int) -> None:
        """One microbatch back: each layer recomputes what is left to its critical path, its windows the layer below."""
        early, top = bool(self.early[m]), len(self.policies) - 1
        if early:
            for layer in range(top, -1, -1):
                self._ahead(m, layer)
        if self.stage + 1 < len(self.problem.stages):
            self._receive("backward", m, self.stage + 1)
        if self.stage:
            self._extra("backward", m)
        following = dict(zip(self.backwards, self.backwards[1:], strict=False)).get(m)
        for layer in range(top, -1, -1):
            policy = self.policies[layer]
            if not early:
                left = set() if layer == top else set(self._left(m, policy))  # done at the layer above's turn
                self._again(m, layer, [i for i in self._on_lane(m, layer) if i not in left])
                if layer:
                    self._again(m, layer - 1, self._left(m, self.policies[layer - 1]))
            below, served = (layer - 1, m) if layer else (top, following)
            replays = self.policies[below].windows[policy.forward :]
            if not layer:
                replays = () if following is None else self._before(following)
            self._layer("backward", m, layer, replays, served or 0, below, ())
            self._release(
                m, layer, [*policy.stored, *(i for i in policy.in_forward + policy.in_backward + policy.critical)]
            )
        if not self.stage:
            self._extra("backward", m)
        if self.stage:
            self._send("backward", m)

    def _is_steady(self, m: int) -> bool:
        """Whether the forward pass right before a backward pass has windows for it."""
        return bool(self.ahead and not self.cool[m])

    def _exchanges(self, layer: int, m: int) -> bool:
        """Whether the last layer's windows change places, since those of the pass before come before forward ones."""
        if layer < len(self.policies) - 1 or not self._is_steady(m) or m == self.backwards[0]:
            return False
        return bool(self.edge.exposed) and self.edge.exchanged

    def _exposed(self, m: int) -> tuple[int, ...]:
        """What of the last layer's backward windows is on the lane."""
        return () if self._is_steady(m) and self.edge.exchanged else self.edge.exposed

    def _spared(self, m: int) -> list[int]:
        """What the last layer keeps, of what its backward windows would recompute, because no window is before it."""
        if m != self.backwards[0] and not (self.last and self.problem.order == "1f1b"):
            return []
        return [i for i in self.policies[-1].in_backward if i not in self._exposed(m)]

    def _before(self, m: int) -> tuple[tuple[int, ...], ...]:
        """What the last backward windows before a microbatch's backward pass recompute for the stage's last layer."""
        policy = self.policies[-1]
        if self.last and self.problem.order == "1f1b":
            return ()
        if self._exchanges(len(self.policies) - 1, m):
            return policy.windows[: policy.forward]
        exposed = self._exposed(m)
        return tuple(tuple(i for i in ops if i not in exposed) for ops in policy.windows[policy.forward :])

    def _left(self, m: int, policy: LayerPolicy) -> tuple[int, ...]:
        """What forward windows would recompute, where none come before; backward windows of the layer above need it."""
        return () if self._is_steady(m) else policy.in_forward

    def _on_lane(self, m: int, layer: int) -> list[int]:
        """What a layer recomputes on the lane: the critical path, and what no window before it holds."""
        policy = self.policies[layer]
        left = self._left(m, policy)
        return sorted([*policy.critical, *left, *(self._exposed(m) if layer == len(self.policies) - 1 else ())])

    def _ahead(self, m: int, layer: int) -> None:
        """All of a layer that is on the lane, before the gradient; what only windows have later is made for it, too."""
        made = self.policies[layer].ahead if layer < len(self.policies) - 1 else ()
        self._again(m, layer, sorted([*self._on_lane(m, layer), *made]))
        if made:
            self._do("release", "backward", m, layer, self._ids(layer, made), self._size(made))

    def _layer(
        self,
        direction: Direction,
        m: int,
        layer: int,
        replays: Iterable[Sequence[int]],
        served: int,
        target: int,
        kept: Sequence[int],
    ) -> None:
        """A layer's stretches and collectives; `replays[w]` of layer `target` for microbatch `served` in window w."""
        cut, again = self.passes[direction], list(replays)
        for step in range(cut.steps):
            op = layer * cut.steps + step
            held = direction == "forward" and step == 0
            size = self.problem.layer_input_bytes + self._size(kept) if held else 0
            self._do("compute", direction, m, op, self._ids(layer, kept) if held else (), size)
            if step + 1 < cut.steps:
                begun = self._do("collective_start", direction, m, op, after=(self.latest,))
                if again:
                    self._again(served, target, again[step])
                self._do("collective_wait", direction, m, op, after=(begun,))

    def _again(self, m: int, layer: int, ops: Iterable[int]) -> None:
        for i in ops:
            ids = self._ids(layer, (i,))
            self._do("recompute", "backward", m, ids[0], ids, self._size((i,)))

    def _release(self, m: int, layer: int, ops: Sequence[int]) -> None:
        """All that the layer holds of the microbatch, its input included."""
        held = self.problem.layer_input_bytes + self._size(ops)
        self._do("release", "backward", m, layer, self._ids(layer, sorted(ops)), held)

    def _extra(self, direction: Direction, m: int) -> None:
        """Embedding or head; what it keeps of a microbatch comes with the forward pass and goes with the backward."""
        own = self.problem.stages[self.stage]
        if any(own.extra_us) or own.extra_bytes:
            forward = direction == "forward"
            self._do("compute", direction, m, size=own.extra_bytes if forward else 0)
            if not forward:
                self._do("release", direction, m, size=own.extra_bytes)

    def _send(self, direction: Direction, m: int) -> None:
        self._do("send", direction, m, after=(self.latest,))

    def _receive(self, direction: Direction, m: int, peer: int) -> None:
        """The message's arrival; the compute lane's next action waits for it."""
        sent = self._message(peer, direction, m)
        self.waiting = (self._do("recv", direction, m, after=(sent,)),)

    def _message(self, stage: int, direction: Direction, m: int) -> int:
        """The id of a send, told from what it sends, so that the other rank knows it."""
        return 2 * (stage * self.problem.microbatches + m) + (direction == "backward")

    def _ids(self, layer: int, ops: Iterable[int]) -> tuple[int, ...]:
        return tuple(layer * len(self.problem.ops) + i for i in ops)

    def _size(self, ops: Iterable[int]) -> int:
        return sum(self.problem.ops[i].output_bytes for i in ops)

    def _do(
        self,
        do: Do,
        direction: Direction,
        m: int,
        op: int | None = None,
        data: tuple[int, ...] = (),
        size: int = 0,
        after: tuple[int, ...] = (),
    ) -> int:
        """One action more; on the compute lane it waits for the message that has been asked for."""
        lane = {"collective_start": "comm", "send": "out", "recv": "in"}.get(do, "compute")
        name = self._message(self.stage, direction, m) if do == "send" else next(self.numbers)
        if lane == "compute":
            after, self.waiting, self.latest = after + self.waiting, (), name
        behind = (direction == "forward") == (do == "send")
        peer = self.stage + (1 if behind else -1)
        self.actions.append(
            Action(
                id=name,
                lane=f"{self.stage}.{lane}",
                do=do,
                op=op,
                microbatch=m,
                data=data,
                bytes=size,
                after=after,
                direction=direction,
                peer=peer if do in ("send", "recv") else msgspec.UNSET,
            )
        )
        return name
