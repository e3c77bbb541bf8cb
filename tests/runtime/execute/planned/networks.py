"""Networks that are no transformers: each maps a batch to its loss and draws its batches on the CPU."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.runtime.swap.fuzz.layers import Drawn
from tests.runtime.swap.fuzz.program import Program

CLASSES = 32


class Network(nn.Module):
    """A module whose `forward` takes what `batch` draws and returns a loss."""

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """One batch on the CPU."""
        raise NotImplementedError

    def arrived(self) -> None:
        """Called once the parameters are on the device: `to` makes new ones for a foreign device, so ties break."""


class Perceptron(Network):
    """Linear layers, activations and dropout between them; the first `frozen` layers are not trained."""

    def __init__(self, width: int = 192, depth: int = 6, dropout: float = 0.1, frozen: int = 0) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        for layer in self.layers[:frozen]:
            layer.requires_grad_(False)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, CLASSES)

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Rows and their classes."""
        rows = 700
        return torch.randn(rows, self.width, generator=drawn), torch.randint(CLASSES, (rows,), generator=drawn)

    def forward(self, rows: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy."""
        for number, layer in enumerate(self.layers):
            rows = layer(rows)
            rows = self.dropout(functional.gelu(rows) if number % 2 else functional.relu(rows))
        return functional.cross_entropy(self.head(rows), classes)


class Images(Network):
    """A network on images."""

    side = 24

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Images and their classes."""
        count = 16
        images = torch.randn(count, 3, self.side, self.side, generator=drawn)
        return images, torch.randint(CLASSES, (count,), generator=drawn)


class Convolutional(Images):
    """Convolutions with batch norm, whose buffers each step writes, in-place ReLU, pooling, residuals, dropout."""

    def __init__(self, channels: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.bodies = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy."""
        hidden = self.stem(images)
        for number, body in enumerate(self.bodies):
            hidden = functional.relu_(body(hidden) + hidden)
            if number == 0:
                hidden = functional.max_pool2d(hidden, 2)
        hidden = functional.dropout2d(hidden, 0.1, self.training)
        return functional.cross_entropy(self.head(hidden.mean((2, 3))), classes)


class Skipping(Images):
    """A U-Net: what goes down is concatenated to what comes up; group norm, SiLU, transposed convolution."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        widths = [channels, 2 * channels, 4 * channels]
        self.down = nn.ModuleList(_convolved(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(_convolved(a + b, b) for a, b in ((widths[2], widths[1]), (widths[1], widths[0])))
        self.wider = nn.ConvTranspose2d(widths[1], widths[1], 2, stride=2)
        self.last = nn.Conv2d(channels, 3, 1)

    def forward(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Mean squared error of reconstructing the images; the classes are not used."""
        first = self.down[0](images)
        second = self.down[1](functional.avg_pool2d(first, 2))
        lowest = self.down[2](functional.max_pool2d(second, 2))
        raised = functional.interpolate(lowest, scale_factor=2, mode="nearest")
        raised = self.up[0](torch.cat([raised, second], 1))
        raised = self.up[1](torch.cat([self.wider(raised), first], 1))
        return functional.mse_loss(self.last(raised), images)


def _convolved(channels: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU())


class Tokens(Network):
    """A network on rows of tokens, which it predicts."""

    rows, length, vocabulary = 8, 48, CLASSES

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Tokens of shape (rows, length)."""
        return (torch.randint(self.vocabulary, (self.rows, self.length), generator=drawn),)


class Recurrent(Tokens):
    """LSTMs, one of two layers, with dropout: each is one operator, which keeps a workspace as well."""

    rows = 32

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.table = nn.Embedding(CLASSES, width)
        self.cells = nn.ModuleList(
            [nn.LSTM(width, width, batch_first=True), nn.LSTM(width, width, 2, batch_first=True, dropout=0.2)]
        )
        self.last = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the token before."""
        hidden = self.table(tokens)
        for cell in self.cells:
            hidden = functional.dropout(cell(hidden)[0], 0.1, self.training)
        return _token_loss(self.head(self.last(hidden)[0]), tokens)


class Checkpointed(Tokens):
    """Blocks of norm, linear, GELU, dropout, linear; every second one is recomputed in the backward pass."""

    rows = 16

    def __init__(self, width: int = 64, depth: int = 6, *, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.table = nn.Embedding(CLASSES, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Dropout(0.1),
                nn.Linear(4 * width, width),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the token before."""
        hidden = self.table(tokens)
        for number, block in enumerate(self.blocks):
            if number % 2:
                hidden = hidden + checkpoint(block, hidden, use_reentrant=self.reentrant)
            else:
                hidden = hidden + block(hidden)
        return _token_loss(self.head(hidden), tokens)


class InPlace(Tokens):
    """Writes over fresh results wherever autograd lets it."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(CLASSES, width)
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the token before."""
        hidden = self.table(tokens)
        for linear in self.linears:
            inner = linear(hidden).add_(0.1).relu_()
            gathered = torch.zeros_like(inner)
            gathered[..., ::2] = inner[..., 1::2].tanh()
            gathered.masked_fill_((tokens == 0)[..., None], 0.5)
            hidden = (hidden + inner).mul_(0.7).add_(gathered)
        return _token_loss(self.head(hidden), tokens)


class Experts(Tokens):
    """A mixture of experts: each gets the tokens that the router sends it, so sizes depend on the data."""

    def __init__(self, width: int = 64, experts: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(CLASSES, width)
        self.routers = nn.ModuleList(nn.Linear(width, experts) for _ in range(depth))
        self.experts = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                for _ in range(experts)
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the token before."""
        hidden = self.table(tokens)
        for router, experts in zip(self.routers, self.experts, strict=True):
            flat = hidden.flatten(0, 1)
            weights, chosen = router(flat).softmax(-1).max(-1)
            mixed = torch.zeros_like(flat)
            for number, expert in enumerate(experts.children()):
                places = (chosen == number).nonzero().squeeze(1)
                mixed = mixed.index_add(0, places, expert(flat[places]) * weights[places, None])
            hidden = hidden + mixed.view_as(hidden)
        return _token_loss(self.head(hidden), tokens)


class Lengths(Perceptron):
    """A perceptron whose batches have as many rows as the data say."""

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Fewer rows in most batches."""
        rows, classes = super().batch(drawn)
        count = int(torch.randint(400, len(rows), (), generator=drawn))
        return rows[:count], classes[:count]


class Dropping(Checkpointed):
    """Leaves out whole blocks at random, as LayerDrop does: the sequence of operators depends on the numbers drawn."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the token before."""
        hidden = self.table(tokens)
        for block in self.blocks:
            if torch.rand(()).item() > 0.3:
                hidden = hidden + block(hidden)
        return _token_loss(self.head(hidden), tokens)


class Composed(Tokens):
    """Layers drawn at random: those of the sessions' random programs."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.drawn, self.tied = Drawn(program), program.tied
        self.rows, self.length = 4 * program.turns[0].rows, program.turns[0].length

    def arrived(self) -> None:
        """Tie the weights of the first and last layer."""
        if self.tied:
            self.drawn.tie()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the tokens."""
        loss: torch.Tensor = self.drawn(tokens)
        return loss


def _token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), tokens.roll(1, -1).flatten())
