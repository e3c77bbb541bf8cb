"""What a device has in memory: blocks by name, and which of them were in use when they were most."""

BLOCK_BYTES = 512
"""What a device's memory is handed out in."""
OWN = "the kernel's own"
"""The name under which a kernel's temporaries stand among the blocks of that moment."""


def blocks(size: int) -> int:
    """The bytes of whole blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


class Ledger:
    """Blocks in use by name, and the moment at which they were most: its blocks, and the kernel that ran."""

    def __init__(self) -> None:
        self._live: dict[str, int] = {}
        self._total = self.most = 0
        self.at_most: dict[str, int] = {}
        self.kernel = ""

    def make(self, kernel: str, results: dict[str, int], takes: int = 0) -> None:
        """A kernel with its results, and what it takes for itself while it runs, in bytes.

        A name that is there already is a variable that is given another tensor: the old one goes afterwards.
        """
        before = {name: self._live.pop(name) for name in results if name in self._live}
        for name, size in results.items():
            self._live[name] = blocks(size)
            self._total += blocks(size)
        if self._total + takes > self.most:
            self.most, self.kernel = self._total + takes, kernel
            self.at_most = {**self._live, OWN: takes + sum(before.values())}
        self._total -= sum(before.values())

    def free(self, *names: str) -> None:
        """Tensors that nobody holds any more; those that are not there are passed over."""
        for name in names:
            self._total -= self._live.pop(name, 0)

    def rename(self, old: str, new: str) -> None:
        """A tensor is held by somebody else from now on, in place of what he held."""
        if old in self._live:
            self.free(new)
            self._live[new] = self._live.pop(old)
