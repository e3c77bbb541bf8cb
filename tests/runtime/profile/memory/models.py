"""Small models with blocks of several kinds, and their training steps."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass
class Task:
    """A model on a device, and a function that trains it for one step."""

    model: nn.Module
    step: Callable[[], None]


class Residual(nn.Module):
    """Ends in a function that saves its own result, which is the next block's input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 3 * width)
        self.narrow = nn.Linear(3 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Softmax is called as a function: no hook on modules sees it."""
        return torch.relu(hidden + self.narrow(torch.softmax(self.widen(hidden), -1)))


class Masked(nn.Module):
    """Every block is given the same mask; a parameter is used nowhere, another one is frozen, a third is tied."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(width, 50, bias=False)
        self.embedding = nn.Embedding(50, width)
        self.scale = nn.Parameter(torch.ones(width), requires_grad=False)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.1, batch_first=True) for _ in range(layers)
        )
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of each token."""
        hidden = self.embedding(tokens) * self.scale
        mask = torch.zeros(tokens.shape[1], tokens.shape[1], device=tokens.device)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask)
        logits: Tensor = self.head(hidden)
        return logits


class Adapted(nn.Module):
    """A frozen layer with a trained one of low rank beside it, as LoRA has them."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        """Both layers' results together."""
        result: Tensor = self.layer(given) + self.up(self.down(given))
        return result


class Doubled(nn.Module):
    """Does not save what it is given: whoever holds that, it is not the block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Half of the result, twice."""
        result: Tensor = self.narrow(functional.gelu(self.widen(2 * hidden)))
        return result


class Stack(nn.Module):
    """A first layer, alike blocks, and a last layer; subclasses say what happens between the blocks."""

    def __init__(self, blocks: int, width: int = 64, block: Callable[[int], nn.Module] = Doubled) -> None:
        super().__init__()
        self.first = nn.Linear(32, width)
        self.blocks = nn.ModuleList(block(width) for _ in range(blocks))
        self.last = nn.Linear(width, 10)

    def forward(self, data: Tensor) -> Tensor:
        """One block after the other."""
        hidden = self.first(data)
        for number, block in enumerate(self.blocks):
            hidden = self.between(number, block(hidden), hidden)
        result: Tensor = self.last(hidden)
        return result

    def between(self, number: int, hidden: Tensor, given: Tensor) -> Tensor:
        """What becomes of a block's result."""
        return hidden


class Attending(Stack):
    """Blocks are given one tensor three times, and run otherwise if these are not the same object."""

    def forward(self, data: Tensor) -> Tensor:
        """PyTorch's attention, which projects queries, keys and values at once if all are of one tensor."""
        hidden = self.first(data)
        for block in self.blocks:
            hidden = hidden + block(hidden, hidden, hidden, need_weights=False)[0]
        result: Tensor = self.last(hidden)
        return result


def chain(blocks: int, width: int = 64) -> nn.Module:
    """A plain sequence of alike blocks between two other layers."""
    return nn.Sequential(nn.Linear(32, width), *[Residual(width) for _ in range(blocks)], nn.Linear(width, 10))


def rectified(blocks: int, width: int = 64) -> nn.Module:
    """Blocks are sequences themselves, inside a sequence whose own layers are alike, too."""
    inside = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.ReLU())
        for _ in range(blocks)
    ]
    return nn.Sequential(nn.Linear(32, width), nn.Sequential(*inside), nn.Linear(width, 10))


def task(
    model: nn.Module,
    inputs: Tensor,
    device: torch.device | str = "sim",
    *,
    optimizer: bool = True,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Task:
    """Train the model on one batch by AdamW; forward and loss run in the context."""
    model, inputs = model.to(device).train(), inputs.to(device)
    adam = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4, fused=True)

    def step() -> None:
        adam.zero_grad()
        with context():
            loss = model(inputs).square().mean()
        loss.backward()
        if optimizer:
            adam.step()

    return Task(model, step)
