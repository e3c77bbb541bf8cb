"""Small networks of several architectures, made for their kernels."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.models import Workload

Build = Callable[[torch.device], Workload]
CLASSES = 32
WIDE = 64


def trained(make: Callable[[torch.device], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]]) -> Build:
    """Trains what `make` returns, a model and its loss, with AdamW over lists of parameters and a clipped norm."""

    def build(device: torch.device) -> Workload:
        torch.manual_seed(0)
        model, loss_of = make(device)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        return Workload(model, optimizer, step)

    return build


class Translator(nn.Module):
    """PyTorch's own encoder and decoder with dropout, and low-rank updates (LoRA) beside a frozen output layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(CLASSES, width)
        self.both = nn.Transformer(width, 4, 1, 1, 2 * width, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, CLASSES).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, CLASSES, bias=False)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Logits of each place of the target."""
        hidden = self.both(self.table(source), self.table(target))
        logits: torch.Tensor = self.head(hidden) + self.up(self.down(hidden))
        return logits


def encoder_decoder(width: int, autocast: torch.dtype) -> Build:
    """Trains it in that precision."""

    def make(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
        model = Translator(width).to(device)
        source, target = (torch.randint(CLASSES, (4, places)).to(device) for places in (width, width // 2))

        def loss_of(model: nn.Module) -> torch.Tensor:
            with nullcontext() if autocast == torch.float32 else torch.autocast(device.type, autocast):
                logits = model(source, target)
                return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

        return model, loss_of

    return trained(make)


def convolutional(side: int) -> Build:
    """Convolutions with batch norm, pooling and an in-place activation on 16 images."""

    def make(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
        layers: list[nn.Module] = []
        for channels in (3, 16):
            layers += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
        model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(CLASSES))
        images, labels = torch.randn(16, 3, side, side), torch.randint(CLASSES, (16,)).to(device)
        model(images)
        images = images.to(device)
        return model.to(device), lambda model: functional.cross_entropy(model(images), labels)

    return trained(make)


class Recurrent(nn.Module):
    """Two LSTMs one after the other, and the last place's logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(CLASSES, width), nn.Linear(width, CLASSES)
        self.cells = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of each row's last place."""
        hidden = self.table(tokens)
        for cell in self.cells:
            hidden = functional.dropout(cell(hidden)[0], 0.1)
        logits: torch.Tensor = self.head(hidden[:, -1])
        return logits


def recurrent(batch: int, places: int, width: int) -> Build:
    """Trains it on so many rows of so many places."""

    def make(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
        model = Recurrent(width).to(device)
        tokens, labels = torch.randint(CLASSES, (batch, places)).to(device), torch.randint(CLASSES, (batch,)).to(device)
        return model, lambda model: functional.cross_entropy(model(tokens), labels)

    return trained(make)


def _language(name: str, attention: str, width: int, device: torch.device) -> Any:
    """A model of transformers, tiny, on two rows of tokens."""
    import transformers

    small: dict[str, dict[str, int]] = {
        "GPT2": {"n_embd": width, "n_layer": 2, "n_head": 4, "n_positions": WIDE},
        "Llama": {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": WIDE},
        "Bert": {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "max_position_embeddings": WIDE},
    }  # fmt: skip
    head = {"GPT2": "LMHeadModel", "Llama": "ForCausalLM", "Bert": "ForMaskedLM"}[name]
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
    config = getattr(transformers, f"{name}Config")(vocab_size=96, **ends, **small[name])
    kind = getattr(transformers, name + head)
    model = kind._from_config(config, attn_implementation=attention).to(device).train()
    tokens = torch.randint(2, 96, (8, WIDE)).to(device)
    options = {} if name == "Bert" else {"use_cache": False}
    return model, lambda model: model(input_ids=tokens, labels=tokens, **options).loss


LANGUAGE: dict[str, Callable[[int, torch.device], Any]] = {
    f"{name} {attention}": partial(_language, name, attention)
    for name in ("GPT2", "Llama", "Bert")
    for attention in ("eager", "sdpa")
}
"""Transformers' own models, by architecture and kind of attention; each takes a width and a device."""
