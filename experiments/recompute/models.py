"""What is trained: transformers' own models and two of ours, random weights, one batch, AdamW."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.models.gpt import Gpt, GptShape
from runtime.blocks.blocks import find_blocks


@dataclass(frozen=True)
class Size:
    """How large the models are; `width` is a multiple of 64 times `heads` in earnest."""

    layers: int = 6
    width: int = 512
    heads: int = 8
    tokens: int = 512
    batch: int = 32
    vocabulary: int = 4096


TINY = Size(layers=4, width=32, heads=2, tokens=32, batch=4, vocabulary=64)
"""Where every byte is computed."""


@dataclass(frozen=True)
class Trainee:
    """A model, its blocks that are alike, and what one forward pass returns: the loss."""

    model: nn.Module
    blocks: tuple[nn.Module, ...]
    loss: Callable[[], torch.Tensor]


Build = Callable[[Size, torch.device], Trainee]


class Bottleneck(nn.Module):
    """ResNet's block: 1x1, 3x3 and 1x1 convolutions with batch norm, and a residual; ReLUs write in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 4
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images of the same shape."""
        return functional.relu_(self.body(images) + images)


class ResNet(nn.Module):
    """One stage of a ResNet between a stem and a head."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, size.width, 4, stride=4)
        self.blocks = nn.Sequential(*(Bottleneck(size.width) for _ in range(size.layers)))
        self.head = nn.Linear(size.width, size.vocabulary)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of each image."""
        logits: torch.Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return logits


def resnet(size: Size, device: torch.device) -> Trainee:
    """Batch norm's buffers are written in each step; the images have as many places as texts have tokens."""
    side = 4 * int(size.tokens**0.5)
    model, images = ResNet(size).to(device), torch.randn(size.batch, 3, side, side).to(device)
    target = torch.randint(size.vocabulary, (size.batch,)).to(device)
    return _trainee(model, lambda: functional.cross_entropy(model(images), target))


def gpt(size: Size, device: torch.device) -> Trainee:
    """Ours: pre-norm, GELU, fused attention, dropout."""
    shape = GptShape(layers=size.layers, width=size.width, heads=size.heads, context=size.tokens, batch=size.batch)
    model = Gpt(shape).to(device)
    inputs = torch.randint(256, (size.batch, size.tokens)).to(device)
    return _trainee(model, lambda: model(inputs, inputs.roll(-1, 1)))


def _language(make: Callable[[Any, Size], Any]) -> Build:
    """A language model of transformers, by a function that is given the library."""

    def build(size: Size, device: torch.device) -> Trainee:
        import transformers

        model = make(transformers, size).to(device).train()
        text = torch.randint(2, size.vocabulary, (size.batch, size.tokens)).to(device)
        keys = {} if type(model).__name__.startswith("Bert") else {"use_cache": False}
        return _trainee(model, lambda: model(input_ids=text, labels=text, **keys).loss)

    return build


def _gpt2(attention: str) -> Callable[[Any, Size], Any]:
    def make(library: Any, size: Size) -> Any:
        config = library.GPT2Config(
            vocab_size=size.vocabulary, n_embd=size.width, n_layer=size.layers, n_head=size.heads,
            n_positions=size.tokens, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        return library.GPT2LMHeadModel._from_config(config, attn_implementation=attention)

    return make


def _gated(name: str) -> Callable[[Any, Size], Any]:
    """Llama and its kin: rotary positions, grouped queries, RMS norms, SwiGLU."""

    def make(library: Any, size: Size) -> Any:
        own = {"sliding_window": size.tokens // 2} if name == "Mistral" else {}
        config = getattr(library, f"{name}Config")(
            vocab_size=size.vocabulary, hidden_size=size.width, intermediate_size=2 * size.width,
            num_hidden_layers=size.layers, num_attention_heads=size.heads, num_key_value_heads=size.heads // 2,
            max_position_embeddings=size.tokens, bos_token_id=0, eos_token_id=0, pad_token_id=1, **own,
        )  # fmt: skip
        return getattr(library, f"{name}ForCausalLM")._from_config(config, attn_implementation="sdpa")

    return make


def _opt(library: Any, size: Size) -> Any:
    config = library.OPTConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, ffn_dim=4 * size.width, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, max_position_embeddings=size.tokens, word_embed_proj_dim=size.width,
        bos_token_id=0, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    return library.OPTForCausalLM._from_config(config, attn_implementation="sdpa")


def _bert(library: Any, size: Size) -> Any:
    config = library.BertConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, intermediate_size=4 * size.width,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, max_position_embeddings=size.tokens,
        pad_token_id=1,
    )  # fmt: skip
    return library.BertForMaskedLM._from_config(config, attn_implementation="sdpa")


def vit(size: Size, device: torch.device) -> Trainee:
    """A vision transformer on patches of 4 by 4, as many as texts have tokens, about."""
    import transformers

    side = 4 * int(size.tokens**0.5)
    config = transformers.ViTConfig(
        hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=size.heads, num_labels=16,
        intermediate_size=4 * size.width, image_size=side, patch_size=4, hidden_dropout_prob=0.1,
    )  # fmt: skip
    model: Any = transformers.ViTForImageClassification._from_config(config, attn_implementation="sdpa")
    model = model.to(device).train()
    images = torch.randn(size.batch, 3, side, side).to(device)
    target = torch.randint(16, (size.batch,)).to(device)
    return _trainee(model, lambda: model(pixel_values=images, labels=target).loss)


def t5(size: Size, device: torch.device) -> Trainee:
    """Encoder and decoder; the first of each reckons the positions, so that the decoder's others are the blocks."""
    import transformers

    config = transformers.T5Config(
        vocab_size=size.vocabulary, d_model=size.width, d_kv=size.width // size.heads, d_ff=4 * size.width,
        num_layers=size.layers // 2 + 1, num_decoder_layers=size.layers // 2 + 1, num_heads=size.heads,
        decoder_start_token_id=0,
    )  # fmt: skip
    model: Any = transformers.T5ForConditionalGeneration(config).to(device).train()
    text = torch.randint(2, size.vocabulary, (size.batch, size.tokens)).to(device)
    blocks = tuple(model.decoder.block[1:])
    return Trainee(model, blocks, lambda: model(input_ids=text, labels=text, use_cache=False).loss)


def _trainee(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Trainee:
    return Trainee(model, tuple(find_blocks(model).values()), loss)


SMALL_NETWORKS = ("gpt", "resnet")
"""Those that need no transformers."""

MODELS: dict[str, Build] = {
    "gpt": gpt,
    "gpt2": _language(_gpt2("sdpa")),
    "gpt2, eager attention": _language(_gpt2("eager")),
    "llama": _language(_gated("Llama")),
    "mistral": _language(_gated("Mistral")),
    "opt": _language(_opt),
    "bert": _language(_bert),
    "vit": vit,
    "t5, decoder": t5,
    "resnet": resnet,
}
"""By name; each is given the same seed by who builds it."""
