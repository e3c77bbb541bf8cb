"""HEU's policies as plans of a whole graph, so that they stand beside OPT's by the same rules (§7.4).

One policy for all layers becomes a set of recomputations by stage. What it does in a communication of the backward pass
happens in that of the layer above: its own layer's begin when the outputs are needed already. The top layer, which has
none above, does it on the critical path. What is done there happens right before the first operator that needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.ir.fields import require
from solvers.ir.recompute import LayerOp, RecomputeGraphPlan, RecomputeGraphProblem, RecomputeLayerProblem, Window
from solvers.recompute.graph.opt.layers import Layers, find_layers
from solvers.recompute.graph.replay import Instance, Replay, instance, plan_of, replay, retained
from solvers.recompute.layer import Front, Policy, front_of
from solvers.recompute.layer.layer import Layer


@dataclass(frozen=True)
class LayeredGraph:
    """A graph of repeated layers, forward and backward; `windows[l]` are the communications of layer l's backward pass.

    `begins[l]` is the first op of layer l's backward pass.
    """

    problem: RecomputeGraphProblem
    given: Instance
    layers: Layers
    begins: tuple[int, ...]
    windows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, problem: RecomputeGraphProblem) -> "LayeredGraph":
        """Find the layers; raises `InvalidInput` where the graph does not repeat any."""
        given = instance(problem)
        layers = find_layers(given)
        require(
            layers is not None, f"{problem.name} repeats no layers, so it has no policy for all: give one that does"
        )
        assert layers is not None
        begins = [min(user for i in ops for user in given.users[i] if user >= layers.end) for ops in layers.lists]
        ends = [len(given), *begins[:-1]]
        windows = [
            tuple(t for t in range(begin, end) if given.comm[t]) for begin, end in zip(begins, ends, strict=True)
        ]
        return cls(problem, given, layers, tuple(begins), tuple(windows))

    def layer_problem(self) -> RecomputeLayerProblem:
        """One layer as HEU sees it: one microbatch in flight, no stage behind it, everything else static."""
        given, layers = self.given, self.layers
        first = layers.lists[1]  # the first layer reads the stage's input, the others what is typical
        inside = set(first)
        ops = tuple(
            LayerOp(
                name=self.problem.ops[i].name,
                time_us=given.time[i],
                output_bytes=given.size[i],
                inputs=tuple(j - layers.first - layers.size for j in given.inputs[i] if j in inside),
                comm=given.comm[i],
                needed=any(user >= layers.end for user in given.users[i]) and i != first[-1],
            )
            for i in first
        )
        windows = tuple(
            Window(name=self.problem.ops[t].name, phase="backward", time_us=given.time[t]) for t in self.windows[1]
        )
        kept = sum(op.output_bytes for op in ops if op.needed) + given.size[first[-1]]
        everything = replay(given, [()] * len(given)).peak_bytes
        return RecomputeLayerProblem(
            name=f"{self.problem.name}, one layer",
            layers=layers.count,
            inflight_microbatches=1,
            last_stage=True,
            budget_bytes=given.budget,
            static_bytes=max(0, everything - layers.count * kept),
            layer_input_bytes=given.size[first[-1]],
            windows=windows,
            ops=ops,
        )

    def recomputations(self, policy: Policy) -> list[set[int]]:
        """What the policy computes again in each stage."""
        again: list[set[int]] = [set() for _ in range(len(self.given))]
        windows = len(self.windows[1])
        for layer in range(self.layers.count):
            above = self.windows[layer + 1] if layer + 1 < self.layers.count else ()
            late = []
            for k, place in policy.recomputed:
                if place < len(above) and place < windows:
                    again[above[place]].add(self.layers.op(layer, k))
                else:
                    late.append(k)
            self._on_demand(layer, late, again)
        return again

    def _on_demand(self, layer: int, late: Sequence[int], again: Sequence[set[int]]) -> None:
        """Each of these ops in the stage of the first backward op that needs it, or a later one of these."""
        when: dict[int, int] = {}
        for k in sorted(late, reverse=True):
            i = self.layers.op(layer, k)
            stages = [user for user in self.given.users[i] if user >= self.begins[layer]]
            stages += [when[user] for user in self.given.users[i] if user in when]
            when[i] = self._before(min(stages, default=self.begins[layer]))
        for i, stage in when.items():
            again[stage].add(i)

    def _before(self, stage: int) -> int:
        """The stage, or the one before a communication: what it reads must be there when it begins."""
        while self.given.comm[stage]:
            stage -= 1
        return stage


@dataclass(frozen=True)
class SinglePolicy:
    """The fastest single policy whose plan is valid, and what it does; None where none is."""

    policy: Policy
    recomputations: tuple[frozenset[int], ...]
    replayed: Replay

    def plan(self, given: Instance) -> RecomputeGraphPlan:
        """The plan of the whole graph, with the least retention."""
        return plan_of(retained(given, self.recomputations))


def best_single_policy(graph: LayeredGraph) -> SinglePolicy | None:
    """Of HEU's policies, by ascending time on the critical path, the fastest plan that fits by the graph's own rules.

    That is kinder to HEU than its own memory line, which counts what is recomputed in communication twice.
    """
    front: Front = front_of(Layer.of(graph.layer_problem()), 1)
    best: SinglePolicy | None = None
    for number in range(len(front)):
        least = graph.given.base + (graph.layers.count - 1) * int(front.time_us[number])
        if best is not None and least >= best.replayed.objective_us:
            break
        policy = front.policy(number)
        again = graph.recomputations(policy)
        found = replay(graph.given, again)
        if found.violation is None and (best is None or found.objective_us < best.replayed.objective_us):
            best = SinglePolicy(policy, tuple(map(frozenset, again)), found)
    return best
