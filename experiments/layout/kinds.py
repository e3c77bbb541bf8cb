"""Models of several kinds whose layouts are executed: what each is, and its loss of a batch."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from experiments.models import Gpt, GptShape

WORDS = 256
"""One token for each byte."""
CONTEXT = 64
BATCH = 8
Make = Callable[[], nn.Module]


def gpt(*, tied: bool = False) -> nn.Module:
    """A GPT with dropout, its head tied to the embedding or not."""
    return Gpt(GptShape(layers=8, width=256, context=CONTEXT, batch=BATCH, tied=tied))


def partly_frozen() -> nn.Module:
    """The first blocks and what is before them are not trained."""
    model = gpt()
    assert isinstance(model, Gpt)
    model.positions.requires_grad_(False)
    for module in (model.tokens, *list(model.blocks)[:3]):
        module.requires_grad_(False)
    return model


class Adapted(nn.Module):
    """A frozen layer with a trained one of low rank beside it, as LoRA has them."""

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Both, added."""
        result: Tensor = self.layer(hidden) + self.up(self.down(hidden))
        return result


def adapted() -> nn.Module:
    """Nothing but adapters is trained."""
    model = gpt()
    assert isinstance(model, Gpt)
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("queries_keys_values", "projection", "widen", "narrow"):
            setattr(block, name, Adapted(getattr(block, name)))
    return model


class OfTransformers(nn.Module):
    """A model of transformers, called as the others are."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next token; the model shifts its labels itself."""
        loss: Tensor = self.inner(input_ids=inputs, labels=inputs, use_cache=False).loss
        return loss


def gpt2() -> nn.Module:
    """transformers' GPT-2, whose head is tied."""
    import transformers

    shape = transformers.GPT2Config(vocab_size=WORDS, n_positions=CONTEXT, n_embd=256, n_layer=6, n_head=4)
    return OfTransformers(transformers.GPT2LMHeadModel(shape))


def llama() -> nn.Module:
    """transformers' Llama: rotary positions that all blocks share, gated layers."""
    import transformers

    shape = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=688, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT,
    )  # fmt: skip
    return OfTransformers(transformers.LlamaForCausalLM(shape))


def kinds() -> Mapping[str, Make]:
    """All by name; those of transformers where it is installed."""
    own: dict[str, Make] = {
        "GPT": gpt,
        "GPT, head tied": lambda: gpt(tied=True),
        "GPT, 3 blocks frozen": partly_frozen,
        "GPT with adapters": adapted,
    }
    more: dict[str, Make] = {"GPT-2 of transformers": gpt2, "Llama of transformers": llama}
    return own | (more if find_spec("transformers") is not None else {})


def seeded(make: Make) -> nn.Module:
    """The same numbers each time."""
    torch.manual_seed(0)
    return make()
