"""A step small enough to follow by hand, in units of 1 MiB."""

from solvers.ir import Hardware, OpGraph
from solvers.ir.graph import Op, Tensor
from solvers.ir.hardware import Device, Link
from solvers.workload.graph import live_bytes

MIB = 1 << 20


def two_layers() -> OpGraph:
    """States of 16; layer i makes a (8 or 12) and b (4) forward; backward reads both and makes a gradient of 4.

    Forward: a0, b0, a1, b1. Backward of layer 1 reads a1 and b0 (its input), of layer 0 reads a0. By hand, with
    everything kept: 16 + 8, + 4, + 12, + 4 = 44 after forward; op 4 makes g1 (48), and frees a1, b1, b0; op 5: 16 + 8
    + 4 + 4 = 32.
    """
    ops = (
        Op(name="layer 0 a", phase="forward", time_us=10, outputs=("a0",)),
        Op(name="layer 0 b", phase="forward", time_us=10, inputs=("a0",), outputs=("b0",)),
        Op(name="layer 1 a", phase="forward", time_us=10, inputs=("b0",), outputs=("a1",)),
        Op(name="layer 1 b", phase="forward", time_us=10, inputs=("a1",), outputs=("b1",)),
        Op(name="layer 1 back", phase="backward", time_us=20, inputs=("a1", "b0", "b1"), outputs=("g1",)),
        Op(name="layer 0 back", phase="backward", time_us=20, inputs=("a0", "g1"), outputs=("g0",)),
    )
    sizes = {"a0": 8, "b0": 4, "a1": 12, "b1": 4, "g1": 4, "g0": 4}
    born = {name: number for number, op in enumerate(ops) for name in op.outputs}
    uses = {name: tuple(n for n, op in enumerate(ops) if str(name) in {*op.inputs, *op.outputs}) for name in sizes}
    tensors = (
        Tensor(id="states", bytes=16 * MIB, kind="parameter"),
        *(
            Tensor(
                id=name,
                bytes=size * MIB,
                born=born[name],
                uses=uses[name],
                saved=born[name] < 4 <= uses[name][-1],
                kind="activation" if born[name] < 4 else "other",
            )
            for name, size in sizes.items()
        ),
    )
    return OpGraph(
        name="two layers",
        ops=ops,
        tensors=tensors,
        memory_bytes=live_bytes(tensors, len(ops)),
        layer_of_op=(0, 0, 1, 1, 1, 0),
    )


def machine(memory_mib: int = 64, name: str = "paper") -> Hardware:
    """A device with a link that carries 1 MiB in a microsecond."""
    return Hardware(
        name=name,
        devices=(Device(name="0", memory_bytes=memory_mib * MIB),),
        links=(Link(a="0", b="host", bytes_per_s=MIB * 1_000_000),),
    )
