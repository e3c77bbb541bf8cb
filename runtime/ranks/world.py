"""A torch.distributed world and a store for each rank of a process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from runtime.ranks.turns import Turns, Wait


class World:
    """What torch.distributed keeps for a process: its groups, by all the names under which it looks for them.

    The fields are those of `torch.distributed.distributed_c10d._World`, which says that it may be overridden.
    """

    def __init__(self) -> None:
        self.default_pg: dist.ProcessGroup | None = None
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, str] = {}
        self.pg_group_ranks: dict[Any, dict[int, int]] = {}
        self.pg_backend_config: dict[Any, str] = {}
        self.group_count = 0
        self.tags_to_pg: dict[str, list[Any]] = {}
        self.pg_to_tag: dict[Any, str] = {}
        self.pg_coalesce_state: dict[Any, list[Any]] = {}
        self.comms: list[Any] = []

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        """The groups with their backends and ranks, as torch's flight recorder lists them."""
        return [
            {
                "pg_name": name,
                "pg_desc": group.group_desc,
                "backend_config": self.pg_backend_config[group],
                "ranks": list(self.pg_group_ranks[group]),
                "group_size": len(self.pg_group_ranks[group]),
                "group_count": self.group_count,
            }
            for group, name in self.pg_names.items()
        ]


class Worlds:
    """In place of the process's world: a rank's thread sees its own, every other thread the process's."""

    def __init__(self, outside: Any) -> None:
        object.__setattr__(self, "_outside", outside)
        object.__setattr__(self, "_own", threading.local())

    def enter(self) -> None:
        """The calling thread has a world of its own from now on."""
        self._own.world = World()

    def _world(self) -> Any:
        return getattr(self._own, "world", self._outside)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._world(), name, value)


def leave_groups() -> None:
    """Destroys the groups that the calling thread's program left: PyTorch would list them until the process ends."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def no_fake_results_of_other_ranks() -> Iterator[None]:
    """In the calling thread PyTorch does not look up results of fake tensors (DTensor's) that it has found before.

    It keeps them for the process, each with the device of the rank that came first.
    """
    config = import_module("torch._dynamo.config")
    with config.patch(fake_tensor_cache_enabled=False):
        yield


class OwnDraws:
    """In place of DTensor's tracker of random numbers: each rank draws from its own generator, as on CPUs.

    PyTorch's moves a counter in the state of CUDA's generator, so that each shard has its own numbers; device sim's
    generator has no counter. Ranks begin alike, so that replicas are alike, and shards of one size too.
    """

    distribute_region_enabled = False

    def _distribute_region(self, spec: object, generator: object = None) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def own_draws() -> Iterator[None]:
    """Within the block DTensor's random operators draw so; PyTorch keeps one tracker for the process."""
    module: Any = import_module("torch.distributed.tensor._random")
    before, module._rng_tracker = module._rng_tracker, OwnDraws()
    try:
        yield
    finally:
        module._rng_tracker = before


class Store(c10d.Store):
    """Keys and values that the ranks of a process share; who waits for a key gives its turn away."""

    def __init__(self, turns: Turns, values: dict[str, bytes]) -> None:
        super().__init__()
        self._turns = turns
        self._values = values

    def set(self, key: str, value: bytes | str) -> None:
        """Keeps a value under a key."""
        self._values[key] = value.encode() if isinstance(value, str) else value

    def get(self, key: str) -> bytes:
        """The key's value, which some rank must set."""
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Counts a key up, from 0, and returns the count."""
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def check(self, keys: list[str]) -> bool:
        """Whether all of the keys have values."""
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Returns once all of the keys have values. Ranks that take turns need no timeout: they see a deadlock."""
        others = tuple(rank for rank in range(self._turns.ranks) if rank != self._turns.rank)
        self._turns.wait(Wait(f"the store, for {', '.join(keys)},", lambda: others, lambda: self.check(keys)))

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """Sets the key where it has the expected value, or none and none is expected; returns what it has then."""
        old = expected.encode() if isinstance(expected, str) else expected
        if self._values.get(key, b"") == old:
            self.set(key, desired)
        return self._values.get(key, old)

    def delete_key(self, key: str) -> bool:
        """Forgets a key; whether it was there."""
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        """How many keys have values."""
        return len(self._values)

    def append(self, key: str, value: bytes | str) -> None:
        """Puts a value behind what the key has."""
        self._values[key] = self._values.get(key, b"") + (value.encode() if isinstance(value, str) else value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of several keys."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        """Sets several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get` and `multi_set` are there."""
        return True


@contextmanager
def worlds(make_store: Callable[[], Store]) -> Iterator[Worlds]:
    """Within the block each thread that calls `enter` has a world; `init_process_group` finds the ranks' store.

    Raises nothing of its own; outside threads keep the process's groups.
    """
    outside = distributed_c10d._world
    found = Worlds(outside)
    isolate = c10d._set_thread_isolation_mode  # type: ignore[attr-defined]  # the stubs lack it
    handlers = import_module("torch.distributed.rendezvous")._rendezvous_handlers
    before = handlers["env"]
    kept: list[Store] = []  # torch keeps the half of a store that C++ sees, which is nothing without Python's.

    def handler(url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
        store = make_store()
        rank = store._turns.rank
        if rank is None:
            yield from before(url, **options)
        else:
            kept.append(store)
            yield store, rank, store._turns.ranks

    distributed_c10d._world = found  # type: ignore[assignment]
    handlers["env"] = handler
    isolate(True)
    try:
        yield found
    finally:
        isolate(False)
        handlers["env"] = before
        distributed_c10d._world = outside
