"""Bytes of the tensors of one rank of a split Llama, and what its larger kernels take for themselves."""

from dataclasses import dataclass
from functools import cached_property

from runtime.device.temporaries import temporaries_of
from solvers.workload import ModelShape

HALF, FULL, WORD, FLAG = 2, 4, 8, 1
"""Bytes of a number in bfloat16 and in single precision, of a token's number, and of a yes or no."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of the tensors of one rank. s is the sequence; a microbatch is one sample."""

    shape: ModelShape
    tensor: int

    @property
    def sequence(self) -> int:
        """s."""
        return self.shape.sequence

    @property
    def rows(self) -> int:
        """Of the vocabulary, on this rank."""
        return -(-self.shape.vocab // self.tensor)

    @property
    def groups(self) -> int:
        """Heads of keys and values on this rank."""
        return self.shape.kv_heads // self.tensor

    @property
    def hidden(self) -> int:
        """2sh."""
        return self.half(self.shape.hidden)

    @property
    def qkv(self) -> int:
        """Columns of this rank's part of the first matrix of attention."""
        return self.shape.qkv_width // self.tensor

    @property
    def fc1(self) -> int:
        """Columns of this rank's part of the first matrix of the perceptron: gates, then values."""
        return self.shape.fc1_width // self.tensor

    @property
    def ffn(self) -> int:
        """Half of them."""
        return self.shape.ffn // self.tensor

    def half(self, width: int) -> int:
        """An activation of so many columns."""
        return HALF * self.sequence * width

    def full(self, width: int) -> int:
        """The same in single precision."""
        return FULL * self.sequence * width

    @cached_property
    def scores(self) -> int:
        """2s² for each head."""
        return HALF * self.shape.heads // self.tensor * self.sequence**2

    @cached_property
    def keys(self) -> int:
        """Keys, or values."""
        return self.half(self.groups * (self.shape.hidden // self.shape.heads))

    @cached_property
    def queries(self) -> int:
        """Queries, or what attention gives."""
        return self.half(self.shape.hidden // self.tensor)

    def product_takes(self, inner: int, columns: int) -> int:
        """What a product of the sequence's rows takes for itself, in bfloat16."""
        rows = self.sequence
        sizes = (HALF * rows * inner, HALF * inner * columns, HALF * rows * columns)
        return temporaries_of("mm: BFloat16c BFloat16c > BFloat16c", sizes, (rows, inner, columns, False))

    @cached_property
    def mean_takes(self) -> int:
        """What the mean over the width takes for itself."""
        return temporaries_of("mean: BFloat16c 1 > BFloat16c", (self.hidden, self.half(1)))

    @cached_property
    def loss_takes(self) -> int:
        """What the mean over the tokens takes for itself."""
        return temporaries_of("mean: Floatc 0 > Float0", (self.full(1), FULL))
