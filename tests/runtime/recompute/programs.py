"""Unmodified modules and odd programs: what a tape is tried on.

One file: each is a few lines, and they are a list.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.runtime.recompute.regions import Case, Step, of

Built = tuple[list[Tensor], Step]


def inputs(device: torch.device, *shape: int) -> Tensor:
    """Random numbers, the same on every device."""
    return torch.randn(shape).to(device).requires_grad_()


def of_module(make: Callable[[], nn.Module], *shape: int) -> Case:
    """A module on random inputs, in training."""

    def case(device: torch.device) -> Built:
        module = make().to(device)
        x = inputs(device, *shape)
        return [x, *of(module)], lambda: module(x)

    return case


def of_function(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    """A function of random inputs."""

    def case(device: torch.device) -> Built:
        given = [inputs(device, *shape) for shape in shapes]
        return given, lambda: function(*given)

    return case


class Block(nn.Module):
    """A GPT block with dropout everywhere."""

    def __init__(self, width: int = 16, heads: int = 2, share: float = 0.1) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.share = heads, share

    def forward(self, x: Tensor) -> Tensor:
        """Attention and MLP, each added to what came in."""
        parts = self.attend(self.norms[0](x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=self.share)
        x = x + F.dropout(self.project(seen.transpose(1, 2).flatten(2)), self.share)
        return x + F.dropout(self.down(F.gelu(self.up(self.norms[1](x)))), self.share)


class Recurrent(nn.Module):
    """An LSTM or GRU, of which the outputs count."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.inside = kind(5, 6, num_layers=2, dropout=0.2)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        found: Tensor = self.inside(x)[0]
        return found


class Tied(nn.Module):
    """An embedding whose weights are the head's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the words that stand at the places of the inputs' signs."""
        words = (x.detach() > 0).long().sum(-1)
        found: Tensor = self.head(F.gelu(self.embedding(words)))
        return found


class Scaled(torch.autograd.Function):
    """A Function that saves an input, a result and something of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """x³ times the weight."""
        square = x * x
        result = square * x * weight
        ctx.save_for_backward(x, weight, square, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """By hand."""
        x, weight, square, _ = ctx.saved_tensors
        return grad * 3 * square * weight, grad * square * x


class Doubled(torch.autograd.Function):
    """A Function that writes its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Twice x, in its place."""
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Twice."""
        return 2 * grad


def _applied(function: type[torch.autograd.Function], *given: Tensor) -> Tensor:
    found: Tensor = function.apply(*given)  # type: ignore[no-untyped-call]
    return found


def in_place(x: Tensor) -> Tensor:
    """In-place activations, dropout, sums; the same storage is several values, one after the other."""
    y = torch.exp(x)
    z = F.dropout(F.hardtanh(y * 2, 0, 3, inplace=True) + 1, 0.3, inplace=True)
    z.add_(y).neg_()
    w = z.sigmoid()
    z.add_(1)
    F.relu(z, inplace=True)
    return w * z.tanh()


def hidden(x: Tensor) -> Tensor:
    """Writes through `.data` and `no_grad`, of which autograd hears nothing, or too late."""
    y = torch.exp(x)
    z = y * x
    y.data.mul_(3)
    w = torch.sigmoid(y)
    with torch.no_grad():
        v = w.detach().clone()
        v[0] = 7
        v.data[1].fill_(3)
    u = torch.tanh(w * v)
    u.data.add_(0.25)
    return z + u * u.sin()


def replaced(x: Tensor) -> Tensor:
    """`.data =`, `set_` and `resize_`: tensors that get other storages."""
    y = torch.exp(x)
    z = torch.sin(y)
    with torch.no_grad():
        other = torch.cos(x)
        other.data = torch.sigmoid(x)
        third = torch.empty(0, device=x.device).set_(torch.tanh(x).detach())  # type: ignore[call-overload]
        fourth = torch.tanh(x).detach().clone()
        fourth.resize_(2, fourth.numel()).fill_(0.5)
    found: Tensor = z * other * third * fourth[0].view_as(x) * fourth[1].view_as(x)
    return found


def views(x: Tensor) -> Tensor:
    """Views in every form: other types, strides, diagonals, expansions, overlapping windows."""
    y = torch.exp(x)
    whole = y.detach().view(torch.int32).bitwise_and(0x7FFFFF00).view(torch.float32)
    lists = [*torch.chunk(y, 3), *torch.split(y, [1, 3], dim=0)]
    pairs = torch.cat([torch.cat(lists), whole, y.t().contiguous().t()])
    diagonal = torch.linalg.diagonal(y @ y.t())
    windows = y.unfold(1, 2, 1).sin()
    found: Tensor = (pairs.square().sum(0) * diagonal.sum()).cumsum(0) + windows.sum()
    return found + y[:, ::2].expand(2, -1, -1).cos().sum()


def filled(x: Tensor) -> Tensor:
    """Memory that is made empty and filled piece by piece; results given by the caller; an accumulator of outside."""
    y = torch.exp(x)
    made = torch.empty_like(y)
    for row in range(len(y)):
        made[row].copy_(y[row].detach() * row)
    sums = torch.empty(y.shape[1], device=x.device)
    torch.sum(y.detach(), 0, out=sums)
    grown = torch.empty(0, device=x.device)
    torch.mul(y.detach(), 2, out=grown)
    buffer = x.new_zeros(y.shape)
    buffer[:, 0] = y[:, 0]
    buffer.add_(made)
    return torch.tanh(y * made) * sums.sigmoid() * grown.cos() + buffer.sin()


def chosen(x: Tensor) -> Tensor:
    """Indices in lists with gaps, gathers, scatters, masks."""
    y = torch.exp(x)
    rows = torch.tensor([2, 0, 1, 1], device=x.device)
    picked = y[rows] * y[:, rows % y.shape[1]].sum()
    z = y.clone().index_put_((rows, rows % y.shape[1]), picked[:, 0], accumulate=True)
    z = z.masked_fill(z > 3, 0.5)
    return torch.gather(z, 0, rows[None, : z.shape[1]] % len(z)) * torch.where(y > 1, y, y * y).sum()


def complex_numbers(x: Tensor) -> Tensor:
    """Complex products, conjugated and negative views that nobody has resolved."""
    z = torch.complex(x, x.sin()).exp()
    w = z.conj() * z.mT.conj().mT
    found: Tensor = torch.fft.ifft(torch.fft.fft(w * z.conj().imag)).real * z.real
    return found


def transformed(x: Tensor) -> Tensor:
    """vmap and jvp inside."""

    def once(row: Tensor) -> Tensor:
        return torch.sin(row) * torch.exp(row)

    mapped = torch.vmap(once)(x)
    pair: Any = torch.func.jvp(once, (x,), (torch.ones_like(x),))
    found: Tensor = mapped * pair[0] + pair[1]
    return found


def checkpointed(x: Tensor) -> Tensor:
    """torch.utils.checkpoint in both forms inside the region."""

    def once(y: Tensor) -> Tensor:
        return F.dropout(torch.sin(y).exp(), 0.2)

    found: Tensor = checkpoint(once, torch.exp(x), use_reentrant=False)
    found = checkpoint(once, found.tanh(), use_reentrant=True)
    return torch.sigmoid(found) * found


def graded(x: Tensor) -> Tensor:
    """Gradients taken inside the region, of which gradients are taken outside."""
    y = torch.exp(x) * torch.sin(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with torch.no_grad():
        third = torch.exp(x)
    with torch.set_grad_enabled(mode=False):
        third = third * 2
    return (first.tanh() * y.sigmoid()) * third.cos()


def cast(x: Tensor) -> Tensor:
    """Operators that autocast casts for, and others, in bf16."""
    weight = torch.ones(x.shape[1], x.shape[1], device=x.device).tril_().requires_grad_()
    with torch.autocast(x.device.type, torch.bfloat16):
        y = F.linear(torch.exp(x), weight)
        y = F.linear(F.gelu(y), weight)
        y = F.softmax(y, -1) @ weight + 0.5 * F.layer_norm(y, y.shape[1:])
    return y.float() * 2.5


def drawn(x: Tensor) -> Tensor:
    """Generators of the program's own, between draws from the device's."""
    own = torch.Generator(x.device).manual_seed(3)
    y = torch.exp(x)
    for _ in range(2):
        y = y * torch.rand(y.shape, generator=own, device=x.device) + F.dropout(y, 0.5)
        y = y + torch.empty_like(y).normal_(generator=own).sin() * torch.randn_like(y)
    return y * torch.bernoulli(torch.sigmoid(y.detach()), generator=own) * own.get_state().float().mean().item()


def read_by_host(x: Tensor) -> Tensor:
    """Numbers that the host reads and gives: `.item()`, a tensor of the CPU that changes under way."""
    y = torch.exp(x)
    place = torch.ones(x.shape)
    moved = place.to(x.device, copy=True) * y
    place.fill_(2)
    again = place.to(x.device) * y.sin()
    return moved * again * float(y.detach().max().item()) * torch.tensor(0.5)


def counted(device: torch.device) -> Built:
    """A running average that the region reads and writes."""
    average = torch.zeros(4, 4).to(device)
    x = inputs(device, 4, 4)

    def step() -> Tensor:
        y = torch.exp(x)
        z = torch.sigmoid(y + average)
        average.mul_(0.9).add_(0.1 * y.detach())
        w = torch.sin(z * average)
        average.data.add_(1)
        return w.tanh() * z

    return [average, x], step


def momentary(device: torch.device) -> Built:
    """Parameters that are written inside the region after they were read: hidden updates."""
    module = nn.Linear(4, 4).to(device)
    x = inputs(device, 4, 4)

    def step() -> Tensor:
        y = torch.exp(x) + module.bias
        y = y.sigmoid().tanh()
        with torch.no_grad():
            module.bias.add_(1)
        return (y + module.bias).sin()

    return [x, *of(module)], step


def convolutions() -> nn.Module:
    """BatchNorm, InstanceNorm with statistics, in-place activations, pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.Dropout2d(0.2, inplace=True),
        nn.BatchNorm2d(4, momentum=None),
        nn.Hardswish(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


def channels_last(device: torch.device) -> Built:
    """The same in another memory format."""
    module = convolutions().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(2, 3, 10, 10).to(device).to(memory_format=torch.channels_last).requires_grad_()
    return [x, *of(module)], lambda: module(x)


def shared_twice(device: torch.device) -> Built:
    """A module that runs twice in one region: its BatchNorm moves on twice."""
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU(), nn.RReLU()).to(device)
    x = inputs(device, 6, 4)
    return [x, *of(module)], lambda: module(module(x).sin())


PROGRAMS: dict[str, Case] = {
    "block": of_module(lambda: nn.Sequential(Block(), Block()), 2, 5, 16),
    "attention": of_module(lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, 5, 16),
    "convolutions": of_module(convolutions, 2, 3, 10, 10),
    "channels last": channels_last,
    "lstm": of_module(lambda: Recurrent(nn.LSTM), 3, 2, 5),
    "gru": of_module(lambda: Recurrent(nn.GRU), 3, 2, 5),
    "tied": of_module(Tied, 2, 5, 3),
    "shared twice": shared_twice,
    "in place": of_function(in_place, (4, 4)),
    "hidden writes": of_function(hidden, (4, 4)),
    "replaced": of_function(replaced, (4, 4)),
    "views": of_function(views, (4, 4)),
    "filled": of_function(filled, (4, 4)),
    "chosen": of_function(chosen, (4, 4)),
    "complex": of_function(complex_numbers, (4, 4)),
    "transformed": of_function(transformed, (4, 4)),
    "checkpointed": of_function(checkpointed, (4, 4)),
    "graded": of_function(graded, (4, 4)),
    "autocast": of_function(cast, (4, 4)),
    "generators": of_function(drawn, (4, 4)),
    "host": of_function(read_by_host, (4, 4)),
    "running average": counted,
    "parameters written": momentary,
    "function": of_function(lambda x, w: _applied(Scaled, x.exp(), w).tanh(), (4, 4), (4, 4)),
    "dirty function": of_function(lambda x: _applied(Doubled, x.exp().sin()).sigmoid(), (4, 4)),
}
