"""A model that trains as alike pipelines of nodes, perhaps after a failure: what `bayplan make replan` writes."""

from dataclasses import dataclass

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.replan import CurrentPipeline, CurrentState, Hosts, ReplanProblem
from solvers.timeline.collectives import accelerators


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The nodes that failed, the time to restart, and the time that is expected until the next failure."""

    nodes: tuple[int, ...]
    restart_us: int
    interval_us: int


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`data` pipelines of `depth` nodes each; the node of stage s in pipeline d is number d·depth + s.

    `nodes` counts those alive, idle ones included (None: all that ran and did not fail); `max_depth` None: twice
    `depth`. A step's microbatches and a pipeline's layers are shared evenly, the first ones taking what is left over.
    """

    depth: int
    data: int
    microbatches: int
    bytes_per_s: int
    nodes: int | None = None
    max_depth: int | None = None
    sharded_optimizer: bool = False
    failure: Failure | None = None
    hosts: Hosts | None = None

    def __post_init__(self) -> None:
        """Refuse failed nodes that never ran, and pipelines without a microbatch."""
        ran = self.depth * self.data
        for node in () if self.failure is None else self.failure.nodes:
            if node >= ran:
                raise InvalidInput(
                    f"failed node {node} is none of the {ran} nodes of {self.data} pipelines of {self.depth}: "
                    f"choose 0…{ran - 1}"
                )
        if self.microbatches < self.data:
            raise InvalidInput(
                f"{self.microbatches} microbatches cannot feed {self.data} pipelines: give each at least one"
            )

    @property
    def lost(self) -> int:
        """How many nodes failed."""
        return 0 if self.failure is None else len(self.failure.nodes)

    @property
    def deepest(self) -> int:
        """The most stages that may be planned, whatever the model's layers."""
        return 2 * self.depth if self.max_depth is None else self.max_depth

    def state(self, problem: ReplanProblem) -> ReplanProblem:
        """The problem of a model, on this cluster and in its state."""
        stated = {
            "nodes": self.depth * self.data - self.lost if self.nodes is None else self.nodes,
            "microbatches": self.microbatches,
            "max_depth": min(problem.layers, self.deepest),
            "data_parallel": self.data,
            "sharded_optimizer": self.sharded_optimizer,
        }
        if self.failure is None:
            return msgspec.structs.replace(problem, **stated)
        if stated["nodes"] < 1:
            raise InvalidInput(f"all {self.lost} nodes failed: leave one alive, or give --nodes with idle ones")
        return msgspec.structs.replace(
            problem,
            name=f"{problem.name}, nodes lost: {self.lost}",
            current=CurrentState(pipelines=self._pipelines(problem.layers), failed=self.failure.nodes),
            restart_us=self.failure.restart_us,
            expected_interval_us=self.failure.interval_us,
            bytes_per_s=self.bytes_per_s,
            hosts=self.hosts,
            **stated,
        )

    def _pipelines(self, layers: int) -> tuple[CurrentPipeline, ...]:
        from solvers.replan.make import even_layers  # brings scipy, which no --help waits for

        stages = even_layers(layers, self.depth)
        share, left = divmod(self.microbatches, self.data)
        return tuple(
            CurrentPipeline(
                layers=stages,
                nodes=tuple(range(number * self.depth, (number + 1) * self.depth)),
                microbatches=share + (number < left),
            )
            for number in range(self.data)
        )


def fullest_bytes(problem: ReplanProblem, depth: int, data: int) -> int:
    """What the fullest node held before any failure, by F8: `data` pipelines of `depth` stages."""
    from solvers.replan.estimate import stage_bytes
    from solvers.replan.make import even_layers

    return max(stage_bytes(problem, even_layers(problem.layers, depth), -(-problem.microbatches // data)))


def why_never_ran(problem: ReplanProblem) -> str | None:
    """Why the pipelines before the failure cannot have run, in a sentence; None where memory held them, or none ran."""
    from solvers.replan.estimate import stage_bytes

    for pipeline in problem.current.pipelines if problem.current is not None else ():
        needed = stage_bytes(problem, pipeline.layers, pipeline.microbatches)
        if max(needed) > problem.memory_bytes:
            return (
                f"the running pipelines cannot have run: before any failure stage {needed.index(max(needed))} needed "
                f"{max(needed)} bytes, but a node has {problem.memory_bytes}: give more stages by --pipeline, devices "
                "by --tensor, or memory by --budget"
            )
    return None


def link_bytes_per_s(machine: Hardware) -> int:
    """What a device sends to its counterpart in the next node while all devices of its node do the same.

    Raises `InvalidInput` where the hardware has one node only.
    """
    nodes: dict[str, list[str]] = {}
    for name in accelerators(machine):
        nodes.setdefault(name.partition(".")[0], []).append(name)
    first, *others = nodes.values()
    if not others:
        raise InvalidInput(
            f"hardware {machine.name!r} has a single node, so it tells no rate between nodes: give --link, as in "
            "--link 25GB"
        )
    links = [machine.link(a, b) for a, b in zip(first, others[0], strict=False)]
    return min(
        link.bytes_per_s // max(1, sum(link.shares is not None and other.shares == link.shares for other in links))
        for link in links
    )
