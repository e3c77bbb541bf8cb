"""Networks that are no language models, and the ways in which layers treat memory: in place, tied, recomputed."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.runtime.swap.models.program import Build, Program

WIDTH, ROWS, CLASSES = 64, 512, 32


class Convolutional(nn.Module):
    """Convolutions with batch norm, whose buffers every step writes, in-place ReLU, pooling, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1)
        )
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of images."""
        hidden = self.stem(images)
        hidden = functional.max_pool2d(functional.relu_(self.norm(self.body(hidden)) + hidden), 2)
        logits: torch.Tensor = self.head(functional.dropout2d(hidden, 0.1, self.training).mean((2, 3)))
        return logits


class Recurrent(nn.Module):
    """LSTMs one after the other, with dropout between: each is one operator, which keeps a workspace as well."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.cells = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(5))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the last place."""
        hidden = self.table(tokens)
        for cell in self.cells:
            hidden = functional.dropout(cell(hidden)[0], 0.1, self.training)
        logits: torch.Tensor = self.head(hidden[:, -1])
        return logits


class Layers(nn.Module):
    """Blocks of norm, wide linear, activation and narrow linear; `tied`: input and output share a weight."""

    def __init__(self, depth: int = 3, *, tied: bool = False, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(depth)
        )
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of each token."""
        hidden = self.table(tokens)
        for block in self.blocks:
            if self.reentrant is None:
                hidden = hidden + functional.dropout(block(hidden), 0.1, self.training)
            else:
                hidden = hidden + checkpoint(block, hidden, use_reentrant=self.reentrant)
        logits: torch.Tensor = self.head(hidden)
        return logits


class InPlace(nn.Module):
    """Writes over fresh results wherever autograd lets it: relu_, add_, mul_, copy into a slice, masked_fill_."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of each token."""
        hidden = self.table(tokens)
        for linear in self.linears:
            inner = linear(hidden).add_(0.1).relu_()
            gathered = torch.zeros_like(inner)
            gathered[:, ::2] = inner[:, 1::2].tanh().repeat(1, 2)[:, : WIDTH // 2]
            gathered.masked_fill_(tokens.unsqueeze(1) == 0, 0.5)
            hidden = (hidden + inner).mul_(0.7).add_(gathered)
        logits: torch.Tensor = self.head(hidden)
        return logits


def trained_on(make: Callable[[], nn.Module], data: Callable[[], torch.Tensor]) -> Build:
    """Trains the network with AdamW on one fixed batch, with a fresh target in each step."""

    def build(device: torch.device) -> Program:
        torch.manual_seed(0)
        model, inputs = make().to(device), data().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            target = torch.randint(CLASSES, (inputs.shape[0],)).to(device)
            loss = functional.cross_entropy(model(inputs), target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.detach()

        return Program(model, optimizer, step)

    return build


def tokens() -> torch.Tensor:
    """One long row of tokens."""
    return torch.randint(CLASSES, (ROWS,))


def more_tokens() -> torch.Tensor:
    """Twice as long, for networks that keep little."""
    return torch.randint(CLASSES, (2 * ROWS,))


NETWORKS: dict[str, Build] = {
    "convolution-batchnorm": trained_on(Convolutional, lambda: torch.randn(16, 3, 24, 24)),
    "lstm": trained_on(Recurrent, lambda: torch.randint(CLASSES, (32, 16))),
    "tied-weights": trained_on(lambda: Layers(tied=True), tokens),
    "checkpoint-reentrant": trained_on(lambda: Layers(4, reentrant=True), more_tokens),
    "checkpoint": trained_on(lambda: Layers(4, reentrant=False), more_tokens),
    "in-place": trained_on(InPlace, tokens),
}
