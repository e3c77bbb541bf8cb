"""Every program that a session is tried on, by name; each trains step by step, the same in every run."""

from tests.runtime.swap.models.distributed import DISTRIBUTED
from tests.runtime.swap.models.kernels import KERNELS
from tests.runtime.swap.models.language import LANGUAGE
from tests.runtime.swap.models.loops import LOOPS
from tests.runtime.swap.models.networks import NETWORKS
from tests.runtime.swap.models.program import Build

ALONE: dict[str, Build] = {**LANGUAGE, **NETWORKS, **LOOPS, **KERNELS}
"""Programs of one process."""
ZOO: dict[str, Build] = {**ALONE, **DISTRIBUTED}
"""All of them; those in `DISTRIBUTED` need the context `one_rank` around them."""
OTHERWISE_ON_CPU = {"lstm", "autocast"}
"""PyTorch computes these otherwise on the CPU than on accelerators: other kernels, another list of what is cast."""
