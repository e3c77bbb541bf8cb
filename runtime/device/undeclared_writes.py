"""Operators that write an argument which their schema does not say they write.

Whoever replays an operator, moves its arguments or orders it among streams must know: recomputing a batch norm in
training moves its running statistics once more. The list is PyTorch 2.13's. Tests find it again by running PyTorch's
samples of its operators and modules on the CPU, looking at every argument before and after. Operators that the CPU does
not have are listed where PyTorch documents that they do what a listed one does.
"""

from typing import NamedTuple

__all__ = ["UNDECLARED_WRITES", "UNDECLARED_WRITES_OF_OTHER_DEVICES", "UndeclaredWrite"]


class UndeclaredWrite(NamedTuple):
    """The arguments that an operator writes in spite of its schema, and the argument that must be true for that."""

    arguments: tuple[str, ...]
    condition: str | None = None


_STATISTICS = ("running_mean", "running_var")

UNDECLARED_WRITES: dict[str, UndeclaredWrite] = {
    "aten::native_batch_norm": UndeclaredWrite(_STATISTICS, "training"),
    "aten::batch_norm": UndeclaredWrite(_STATISTICS, "training"),
    "aten::_batch_norm_impl_index": UndeclaredWrite(_STATISTICS, "training"),
    "aten::batch_norm_update_stats": UndeclaredWrite(_STATISTICS),
    "aten::instance_norm": UndeclaredWrite(_STATISTICS, "use_input_stats"),
    "aten::mkldnn_rnn_layer_backward": UndeclaredWrite(("workspace",)),
}
"""By operator, with its namespace and without its overload: what the CPU's operators were seen to write."""

UNDECLARED_WRITES_OF_OTHER_DEVICES: dict[str, UndeclaredWrite] = {
    "aten::cudnn_batch_norm": UndeclaredWrite(_STATISTICS, "training"),
    "aten::miopen_batch_norm": UndeclaredWrite(_STATISTICS, "training"),
    "aten::batch_norm_gather_stats": UndeclaredWrite(_STATISTICS),
    "aten::batch_norm_gather_stats_with_counts": UndeclaredWrite(_STATISTICS),
}
"""The same for operators without a CPU kernel, by their documentation; none was run."""
