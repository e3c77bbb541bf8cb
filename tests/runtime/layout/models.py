"""Small models of several kinds, alike on any device."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """A norm and a multilayer perceptron with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden: Tensor) -> Tensor:
        change: Tensor = self.dropout(self.narrow(functional.gelu(self.widen(self.norm(hidden)))))
        return hidden + change


class Language(nn.Module):
    """An embedding, a parameter of the model's own, blocks, and a head that may be tied to the embedding."""

    def __init__(self, layers: int = 5, width: int = 32, *, tied: bool = False, words: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.positions = nn.Parameter(torch.zeros(16, width))
        self.blocks = nn.ModuleList(Residual(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.positions
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Adapted(nn.Module):
    """A frozen layer with a trained one of low rank beside it, as LoRA has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width).requires_grad_(False)
        self.down = nn.Linear(width, 4, bias=False)
        self.up = nn.Linear(4, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = hidden + torch.tanh(self.layer(hidden) + self.up(self.down(hidden)))
        return result


def lora(layers: int = 5, width: int = 32) -> Language:
    """A language model of adapted layers, whose embedding is frozen, too."""
    model = Language(layers, width)
    model.blocks = nn.ModuleList(Adapted(width) for _ in range(layers))
    model.tokens.requires_grad_(False)
    model.positions.requires_grad_(False)
    return model


class Repeated(Language):
    """Calls its blocks twice each, one after the other, and leaves one out."""

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.positions
        for _ in range(2):
            for block in list(self.blocks)[:-1]:
                hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Looking(Language):
    """Looks at the head's weight before the blocks without a gradient: backward reads it with its gradient there."""

    def forward(self, tokens: Tensor) -> Tensor:
        seen = self.head.weight.detach()
        hidden = self.tokens(tokens) + self.positions
        hidden = hidden + torch.softmax(hidden @ seen.T, -1) @ seen
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def batch(number: int, words: int = 64, samples: int = 8) -> tuple[Tensor, Tensor]:
    """Tokens and the tokens after them, of the host."""
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(0, words, (samples, 17), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model: nn.Module, number: int, device: str = "sim") -> Tensor:
    """The loss of a batch."""
    inputs, targets = batch(number)
    logits = model(inputs.to(device))
    return functional.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
