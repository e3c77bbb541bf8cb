"""Programs that read and hold what blocks make, outside of the blocks."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from tests.runtime.recompute import training
from tests.runtime.recompute.training import Loop

WIDTH = 32
Build = Callable[[torch.device], Trainee]


class Two(nn.Module):
    """Returns what the next block is given, and what it computed within."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both."""
        inner = torch.tanh(self.first(hidden))
        return hidden + self.second(inner * inner), inner


class Given(Two):
    """Passes on more than the next block needs."""

    def forward(self, given: "torch.Tensor | dict[str, torch.Tensor]") -> dict[str, torch.Tensor]:  # type: ignore[override]
        """What it was given, too."""
        hidden = given["hidden"] if isinstance(given, dict) else given
        out, inner = super().forward(hidden)
        return {"hidden": out, "inner": inner, "old": hidden}


class Detached(Two):
    """Its second result has no gradient, and an operator's input that autograd saves dies with its call."""

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both."""
        inner = torch.tanh(self.first(hidden))
        return hidden + self.second(inner * 1.5), inner.detach()


class Overwriting(nn.Module):
    """Wide operators run again while there is what autograd had copied, since a later one overwrote it."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.cell = nn.Linear(2 * WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.register_buffer("ends", torch.randint(256, (2, 1024), generator=torch.Generator().manual_seed(0)))

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """New states of a graph's nodes, and little."""
        first, last = self.get_buffer("ends").unbind()
        message = torch.relu(self.message(torch.cat([hidden[first], hidden[last]], -1)))
        told = torch.zeros_like(hidden).index_add(0, last, message)
        return self.cell(told, hidden), hidden[:1].detach()


class Nested(nn.Module):
    """Holds what its parts return until it returns itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Two(), Detached()

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the same shapes."""
        hidden, first = self.first(hidden)
        hidden, second = self.second(hidden)
        return hidden, first.detach() * second


class Normed(nn.Module):
    """One of three results of an operator is returned, the others are gone by then."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(8 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both."""
        normed = functional.layer_norm(self.first(hidden).view(-1, 8, WIDTH), (WIDTH,))
        return hidden + self.second(functional.gelu(normed).flatten(1)), normed.detach().flatten(1)


class Ends(nn.Module):
    """Autograd saves what it returns, and the next block is given something else."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        return torch.tanh(self.second(torch.tanh(self.first(torch.tanh(hidden)))))


class Down(nn.Module):
    """Half of a U-Net's level."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """As large as the image."""
        return functional.relu(self.second(functional.relu(self.first(image))))


class Up(nn.Module):
    """The other half, which is given what the first one made."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2 * channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)

    def forward(self, image: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """As large as both."""
        result: torch.Tensor = self.second(torch.tanh(self.first(torch.cat([image, skip], 1))))
        return result


Loss = Callable[[torch.Tensor, list[torch.Tensor]], torch.Tensor]


def twos(loss: Loss, device: torch.device, block: type[nn.Module] = Two) -> Trainee:
    """Blocks whose second results are used at the end."""
    model = nn.ModuleList(block() for _ in range(4)).to(device)
    data = torch.randn(256, WIDTH).to(device)

    def run() -> torch.Tensor:
        hidden, inner = data, []
        for block in model:
            hidden, one = block(hidden)
            inner.append(one)
        return loss(hidden, inner)

    return Trainee(model, tuple(model), run)


def means(hidden: torch.Tensor, inner: list[torch.Tensor]) -> torch.Tensor:
    """Second results are read, and gone before the backward pass."""
    return hidden.square().mean() + torch.stack([one.mean() for one in inner]).sum()


def squares(hidden: torch.Tensor, inner: list[torch.Tensor]) -> torch.Tensor:
    """The same, with temporaries of their size."""
    return hidden.square().mean() + torch.stack([one.square().mean() for one in inner]).sum()


def half(hidden: torch.Tensor, inner: list[torch.Tensor]) -> torch.Tensor:
    """Some of some of them."""
    return hidden.square().mean() + torch.stack([one[:100].square().mean() for one in inner[::2]]).sum()


def joined(hidden: torch.Tensor, inner: list[torch.Tensor]) -> torch.Tensor:
    """One operator reads all of them."""
    return hidden.square().mean() + torch.cat(inner, -1).square().mean()


def passing(device: torch.device) -> Trainee:
    """Blocks that are given dictionaries."""
    model = nn.Sequential(*(Given() for _ in range(4))).to(device)
    data = torch.randn(256, WIDTH).to(device)

    def run() -> torch.Tensor:
        last = model(data)
        return torch.stack([one.square().mean() for one in last.values()]).sum()

    return Trainee(model, tuple(model), run)


def ending(device: torch.device) -> Trainee:
    """What a block returns is read between the blocks, and then gone."""
    model = nn.ModuleList(Ends() for _ in range(4)).to(device)
    data = torch.randn(256, WIDTH).to(device)

    def run() -> torch.Tensor:
        hidden = data
        for block in model:
            hidden = block(hidden) * 1.1
        return hidden.square().mean()

    return Trainee(model, tuple(model), run)


def unet(decoder_in_blocks: bool, device: torch.device) -> Trainee:
    """Skips are read late, by other blocks or by the program."""
    stem, head = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 1, 1)
    down, middle, up = [Down(6), Down(6)], Down(6), [Up(6), Up(6)]
    model = nn.ModuleList([stem, *down, middle, *up, head]).to(device)
    images = torch.randn(4, 3, 32, 32).to(device)

    def run() -> torch.Tensor:
        image, skips = stem(images), []
        for one in down:
            image = one(image)
            skips.append(image)
            image = functional.avg_pool2d(image, 2)
        image = middle(image)
        for two in up:
            image = two(functional.interpolate(image, scale_factor=2), skips.pop())
        loss: torch.Tensor = head(image).square().mean()
        return loss

    return Trainee(model, (*down, middle, *(up if decoder_in_blocks else [])), run)


class Kept(nn.Module):
    """The program keeps what autograd does not need, and what it does."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.kept = kept

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        wide = self.first(hidden)
        inner = torch.sigmoid(wide)
        self.kept += [wide.detach(), inner.detach()]
        result: torch.Tensor = hidden + self.second(inner)
        return result


KEPT: list[torch.Tensor] = []


def keeping(device: torch.device) -> Trainee:
    """Activations that the program keeps until the next step."""
    model = nn.Sequential(*(Kept(KEPT) for _ in range(4))).to(device)
    data = torch.randn(256, WIDTH).to(device)
    return Trainee(model, tuple(model), lambda: model(data).square().mean())


def writing(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """Between the passes the program writes what it keeps and autograd does not need."""
    KEPT.clear()
    optimizer.zero_grad()
    loss = trainee.loss()
    for one in KEPT[::2]:
        one.add_(1)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return torch.stack([loss.detach(), *(one.sum() for one in KEPT)])


def accumulating(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """Two passes for each of the optimizer's steps, whose states come with the first."""
    optimizer.zero_grad()
    losses = []
    for _ in range(2):
        loss = trainee.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    optimizer.step()
    return torch.stack(losses)


PROGRAMS: dict[str, tuple[Build, Loop]] = {
    "two results": (partial(twos, means), training.ordinary),
    "results joined": (partial(twos, joined), training.ordinary),
    "detached results": (partial(twos, squares, block=Detached), training.ordinary),
    "half of them read": (partial(twos, half, block=Detached), training.ordinary),
    "copies of what is overwritten": (partial(twos, squares, block=Overwriting), training.ordinary),
    "nested blocks": (partial(twos, squares, block=Nested), training.ordinary),
    "one of three results": (partial(twos, squares, block=Normed), training.ordinary),
    "accumulated": (partial(twos, squares), accumulating),
    "dictionaries": (passing, training.ordinary),
    "saved results": (ending, training.ordinary),
    "skips between blocks": (partial(unet, True), training.ordinary),
    "skips to the program": (partial(unet, False), training.ordinary),
    "written in place": (keeping, writing),
}
