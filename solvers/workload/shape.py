"""What a transformer is made of, and how it is cut over devices."""

from typing import ClassVar, Literal

from solvers.ir.fields import Count, Record, require


class ModelShape(Record, frozen=True, kw_only=True):
    """A transformer by its sizes (`bayplan-shape/1`).

    `kv_heads` below `heads` is grouped-query attention; `gated` an MLP with a gate (SwiGLU), whose two halves are each
    `ffn` wide; `experts` above one a mixture, of which a token visits `experts_per_token`. `attention` says whether
    scores and probabilities stand in memory (`unfused`) or not (`flash`). `assumed` names the fields that `source`
    does not state.
    """

    name: str
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    ffn: Count
    vocab: Count
    sequence: Count
    gated: bool = False
    experts: Count = 1
    experts_per_token: Count = 1
    tied_embeddings: bool = True
    dropout: bool = True
    bias: bool = True
    positions: Literal["learned", "rotary"] = "learned"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    attention: Literal["unfused", "flash"] = "unfused"
    assumed: tuple[str, ...] = ()
    source: str = ""
    FORMAT: ClassVar[str] = "bayplan-shape/1"

    def __post_init__(self) -> None:
        """Refuse sizes that do not divide, and assumptions about fields that do not exist."""
        require(
            self.hidden % self.heads == 0,
            f"hidden is {self.hidden}, which {self.heads} heads do not divide: choose a multiple",
        )
        require(
            self.heads % self.kv_heads == 0,
            f"kv_heads is {self.kv_heads}, which does not divide the {self.heads} heads: choose a divisor",
        )
        require(
            self.experts_per_token <= self.experts,
            f"experts_per_token is {self.experts_per_token}, but there are {self.experts} experts: choose fewer",
        )
        for field in self.assumed:
            require(
                field in self.__struct_fields__, f"assumed names {field!r}, which is no field of a shape: correct it"
            )

    @property
    def qkv_width(self) -> int:
        """Columns of the fused query-key-value projection: hidden·(1 + 2·kv_heads/heads)."""
        return self.hidden + 2 * self.kv_heads * (self.hidden // self.heads)

    @property
    def fc1_width(self) -> int:
        """Columns of an MLP's first projection: twice `ffn` where it is gated."""
        return self.ffn * (2 if self.gated else 1)

    def parameters_per_layer(self) -> int:
        """Parameters of one layer: projections, their biases, two norms, and the router of a mixture."""
        matrices = self.hidden * (self.qkv_width + self.hidden)
        matrices += self.experts * self.hidden * (self.fc1_width + self.ffn)
        biases = self.qkv_width + self.hidden + self.experts * (self.fc1_width + self.hidden) if self.bias else 0
        router = self.hidden * self.experts if self.experts > 1 else 0
        return matrices + biases + router + 2 * self.norm_parameters()

    def norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and a shift where it is a layer norm."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    def embedding_parameters(self) -> int:
        """Parameters before the first layer: the word table, and positions where they are learned."""
        return self.hidden * (self.vocab + (self.sequence if self.positions == "learned" else 0))

    def head_parameters(self) -> int:
        """Parameters after the last layer that are its own: the final norm, and the output table unless it is tied."""
        return self.norm_parameters() + (0 if self.tied_embeddings else self.hidden * self.vocab)

    def parameters(self) -> int:
        """All parameters, a tied table counted once."""
        return self.embedding_parameters() + self.layers * self.parameters_per_layer() + self.head_parameters()


class Parallelism(Record, frozen=True, kw_only=True):
    """How a model is cut: `tensor` devices a layer, `pipeline` stages, `data` replicas; `microbatch` samples a pass."""

    tensor: Count = 1
    pipeline: Count = 1
    data: Count = 1
    sequence_parallel: bool = False
    microbatch: Count
    microbatches: Count = 1


def require_divisible(shape: ModelShape, parallelism: Parallelism) -> None:
    """Refuse tensor parallelism that does not divide heads, MLP, or (with sequence parallelism) the sequence."""
    tensor = parallelism.tensor
    sizes = {"heads": shape.heads, "kv_heads": shape.kv_heads, "ffn": shape.ffn}
    if parallelism.sequence_parallel:
        sizes["sequence"] = shape.sequence
    for field, size in sizes.items():
        require(
            size % tensor == 0,
            f"tensor is {tensor}, which does not divide the {size} {field} of {shape.name}: choose a divisor",
        )
