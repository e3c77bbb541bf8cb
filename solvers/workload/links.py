"""Which devices of a cluster share a stage's layers, and time of messages between stages (README.md §4).

In a cluster file a device's name tells where it stands: `node.device`, or `node.board.device`. Times of collectives are
those of `solvers.timeline.collectives`.
"""

from collections import Counter

from solvers.ir.errors import InvalidProblem
from solvers.ir.hardware import Hardware
from solvers.timeline.collectives import accelerators, all_gather_us, bundle
from solvers.workload.shape import ModelShape, Parallelism


def tensor_group(cluster: Hardware, tensor: int) -> tuple[str, ...]:
    """The devices that share every layer of a stage: of one node (Lynx §7.5), or whole nodes where one is too small.

    The first nodes stand for all, so a file need not list as many as a pipeline has stages. Raises `InvalidProblem`
    where `tensor` neither fits into a node nor fills nodes.
    """
    nodes = list(_nodes(cluster).values())
    size = min(map(len, nodes))
    if tensor <= size:
        return tuple(nodes[0][:tensor])
    if tensor % size or tensor > size * len(nodes):
        more = f", or a multiple of it up to {size * len(nodes)}" if len(nodes) > 1 else ""
        remedy = "choose 1, or a cluster" if size * len(nodes) == 1 else f"choose at most {size}{more}"
        has = f"{len(nodes)} node{'s' * (len(nodes) > 1)} of {size} device{'s' * (size > 1)}"
        raise InvalidProblem(f"tensor is {tensor}, but hardware {cluster.name!r} has {has}: {remedy}")
    return tuple(name for node in nodes[: tensor // size] for name in node)


def _nodes(cluster: Hardware) -> dict[str, list[str]]:
    """Devices by their node, which is the first component of a name."""
    nodes: dict[str, list[str]] = {}
    for name in accelerators(cluster):
        nodes.setdefault(name.partition(".")[0], []).append(name)
    return nodes


def p2p_us(shape: ModelShape, parallelism: Parallelism, cluster: Hardware) -> int:
    """Time to send a microbatch's activations from a stage to the next; 0 for a single stage.

    Every device sends its t-th part to its counterpart in the next node, all at once, so links of one bundle share
    their rate; then the receivers gather the parts (Narayanan et al. 2021, §4.1), unless each keeps its own part of
    the sequence. The first two nodes stand for all neighbours. Raises `InvalidProblem` where there is one node only.
    """
    if parallelism.pipeline == 1:
        return 0
    tensor = parallelism.tensor
    size = 2 * parallelism.microbatch * shape.sequence * shape.hidden
    exchange = _exchange_us(cluster, tensor, -(-size // tensor))
    gathered = 0.0 if parallelism.sequence_parallel else all_gather_us(cluster, tensor_group(cluster, tensor), size)
    return exchange + round(gathered)


def _exchange_us(cluster: Hardware, tensor: int, size: int) -> int:
    nodes = list(_nodes(cluster).values())
    if len(nodes) < 2:
        raise InvalidProblem(
            f"hardware {cluster.name!r} has a single node, but every stage has one of its own: choose a cluster"
        )
    links = [cluster.link(a, b) for a, b in zip(nodes[0][:tensor], nodes[1][:tensor], strict=True)]
    loads = Counter(bundle(link) for link in links)
    return max(link.transfer_us(size * loads[bundle(link)]) for link in links)
