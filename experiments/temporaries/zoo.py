"""One file: small networks of many kinds, each of any size, as people train them beside transformers.

Their kernels are measured at two sizes; tests compare others by shapes alone (`tests/csrc/sim/shapes/test_zoo.py`).
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.temporaries.networks import Build, trained

Data = Callable[[torch.device], torch.Tensor]
Network = Callable[[int], tuple[nn.Module, tuple[Data, ...]]]
"""Model and inputs by size: 1, 2, 3 and so on."""


class Body(nn.Module):
    """A forward pass written as one function of the parts and the inputs."""

    def __init__(self, forward: Callable[..., torch.Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.body = forward
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """What the function says."""
        return self.body(self, *inputs)


def noise(*sizes: int) -> Data:
    """Normal numbers, drawn on the host."""
    return lambda device: torch.randn(*sizes).to(device)


def indices(below: int, *sizes: int) -> Data:
    """Whole numbers from 0 on, drawn on the host."""
    return lambda device: torch.randint(below, sizes).to(device)


def training(
    network: Network, size: int, dtype: torch.dtype | None, *, cast: bool = False, last: bool = False
) -> Build:
    """Trains it: in that type, or with autocast to it; `last`: images and filters lie channels last."""

    def make(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
        model, inputs = network(size)
        whole = None if cast else dtype
        model = model.to(device, whole)
        data = [one(device) for one in inputs]
        data = [one.to(whole) if one.is_floating_point() and whole else one for one in data]
        if last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            data = [one.to(memory_format=torch.channels_last) for one in data]

        def loss_of(model: nn.Module) -> torch.Tensor:
            with torch.autocast(device.type, dtype) if cast and dtype else nullcontext():
                told: torch.Tensor = model(*data)
            return told.float().square().mean()

        return model, loss_of

    return trained(make)


# ---- sequences ---------------
def recurrent(kind: Any, size: int, **options: Any) -> tuple[nn.Module, tuple[Data, ...]]:
    """One of PyTorch's recurrent networks and a linear layer at every place."""
    wide, first = 8 * size + 16, options.get("batch_first", True)
    cells = kind(16 + 4 * size, wide, **{"batch_first": True, **options})
    out = (options.get("proj_size") or wide) * (2 if options.get("bidirectional") else 1)
    batch, places = 2 * size, 5 + 2 * size
    data = noise(*((batch, places) if first else (places, batch)), 16 + 4 * size)
    return Body(lambda self, x: self.head(self.cells(x)[0]), cells=cells, head=nn.Linear(out, 3)), (data,)


def packed(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Sequences of several lengths through one LSTM in both directions."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        rows = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5 + size, 4, 3, 1]), batch_first=True)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.cells(rows)[0], batch_first=True)
        return padded

    cells = nn.LSTM(12 * size, 8 * size + 16, batch_first=True, bidirectional=True)
    return Body(body, cells=cells), (noise(4, 5 + size, 12 * size),)


def bags(mode: str, size: int, *, listed: bool = False) -> tuple[nn.Module, tuple[Data, ...]]:
    """EmbeddingBag over rows of equal length, or over one list with offsets."""
    table = nn.EmbeddingBag(40 * size, 16 * size, mode=mode)
    starts = torch.tensor([0, 3 * size, 4 * size, 9 * size])
    some = (indices(40 * size, 12 * size), lambda device: starts.to(device))
    data = some if listed else (indices(40 * size, 4 * size, 5),)
    return Body(lambda self, *x: self.head(self.table(*x)), table=table, head=nn.Linear(16 * size, 4)), data


def scanned(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """A state-space layer as two cumulative sums, gated."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        decay = torch.cumsum(-functional.softplus(self.step(x)), 1)
        state = torch.cumsum(self.into(x) * (-decay).exp(), 1) * decay.exp()
        out: torch.Tensor = self.out(state * functional.silu(self.gate(x)))
        return out

    wide = {name: nn.Linear(16 * size, 24 * size) for name in ("into", "step", "gate")}
    return Body(body, out=nn.Linear(24 * size, 16 * size), **wide), (noise(2, 8 * size, 16 * size),)


def attention(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Attention by einsum under a causal mask, and PyTorch's own with padded keys."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)) for part in self.qkv(x).chunk(3, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
        later = torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1).bool()
        shares = scores.masked_fill(later, float("-inf")).softmax(-1)
        mixed = torch.einsum("bhqk,bkhd->bqhd", shares, v).flatten(-2)
        padded = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        padded[:, -3:] = True
        told: torch.Tensor = self.own(self.norm(mixed), mixed, mixed, key_padding_mask=padded)[0]
        return told

    own = nn.MultiheadAttention(32 * size, 4, batch_first=True, dropout=0.1)
    parts = {"qkv": nn.Linear(32 * size, 96 * size), "own": own, "norm": nn.LayerNorm(32 * size)}
    return Body(body, **parts), (noise(2, 8 * size, 32 * size),)


def spectral(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Mixing by Fourier transforms, complex and real."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
        waves = torch.fft.rfft(x, dim=1)
        told: torch.Tensor = self.norm(x + mixed) + torch.fft.irfft(waves * 0.5, n=x.shape[1], dim=1)
        return told

    return Body(body, norm=nn.LayerNorm(32 * size)), (noise(2, 8 * size, 32 * size),)


# ---- what scatters, sorts and routes ---------------
def routed(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Four experts on equal shares of the tokens, chosen by topk, gathered by index_add."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        told = torch.zeros_like(x)
        for expert, places in zip(self.experts, chosen.flatten().argsort().chunk(4), strict=True):
            rows = places // 2
            told = told.index_add(0, rows, expert(x[rows]) * weights.flatten()[places, None])
        return told

    wide = 16 * size
    experts = nn.ModuleList(
        nn.Sequential(nn.Linear(wide, 2 * wide), nn.GELU(), nn.Linear(2 * wide, wide)) for _ in range(4)
    )
    return Body(body, gate=nn.Linear(wide, 4), experts=experts), (noise(32 * size, wide),)


def messages(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Attention over the edges of a graph: a softmax by scatter, messages by index_add."""

    def body(self: Any, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        sent = self.layer(x)[source]
        score = (sent * x[target]).sum(-1)
        most = torch.full((x.shape[0],), -1e9, device=x.device, dtype=x.dtype)
        most = most.scatter_reduce(0, target, score, "amax")
        shares = (score - most[target]).exp()
        total = torch.zeros_like(most).scatter_add(0, target, shares)
        return torch.zeros_like(x).index_add_(0, target, sent * (shares / total[target])[:, None]).tanh()

    nodes, edges = 32 * size, 100 * size
    ends = (indices(nodes, edges), indices(nodes, edges))
    return Body(body, layer=nn.Linear(16 * size, 16 * size)), (noise(nodes, 16 * size), *ends)


def ranked(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Losses over sorted scores."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(x).squeeze(-1)
        ordered = scores.sort(-1, descending=True).values
        third = scores.kthvalue(3, -1).values
        return (ordered.topk(5, -1).values.sum(-1) - ordered[:, 3]).clamp(min=0) + third

    return Body(body, layer=nn.Linear(16 * size, 1)), (noise(4 * size, 6 + 6 * size, 16 * size),)


# ---- images ---------------
def grouped(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Convolutions under group norms."""
    wide = 8 * size
    first = (nn.Conv2d(3, wide, 3, padding=1), nn.GroupNorm(4, wide), nn.SiLU())
    second = (nn.Conv2d(wide, 2 * wide, 3, 2, 1), nn.GroupNorm(8, 2 * wide), nn.SiLU())
    model = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * wide, 10))
    return model, (noise(2, 3, 8 * size + 8, 8 * size + 8),)


def hourglass(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Down by a stride, up by a transposed convolution, joined by a shortcut (U-Net)."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        high = functional.relu(self.into(x))
        low = functional.relu(self.down(high))
        told: torch.Tensor = self.out(torch.cat([high, self.up(low)], 1))
        return told

    wide = 8 * size
    parts = {"into": nn.Conv2d(3, wide, 3, padding=1), "down": nn.Conv2d(wide, 2 * wide, 3, 2, 1),
             "up": nn.ConvTranspose2d(2 * wide, wide, 2, 2), "out": nn.Conv2d(2 * wide, 1, 1)}  # fmt: skip
    return Body(body, **parts), (noise(2, 3, 16 * size, 16 * size),)


def depthwise(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """A convolution of each channel by itself, then one across them (MobileNet)."""
    wide, side = 16 * size, 16 * size
    layers: list[nn.Module] = []
    for convolution in (nn.Conv2d(3, wide, 3, 2, 1, bias=False), nn.Conv2d(wide, wide, 3, 1, 1, groups=wide)):
        layers += [convolution, nn.BatchNorm2d(wide), nn.ReLU6()]
    layers += [nn.Conv2d(wide, 24, 1, bias=False), nn.BatchNorm2d(24), nn.AvgPool2d(2), nn.Hardswish(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(24 * (side // 4) ** 2, 5)), (noise(2, 3, side, side),)


def solid(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Convolutions over three dimensions."""
    first = (nn.Conv3d(1, 4 * size, 3, padding=1), nn.BatchNorm3d(4 * size), nn.ReLU(), nn.MaxPool3d(2))
    rest = (nn.Conv3d(4 * size, 8, 3, padding=1), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(*first, *rest), (noise(2, 1, 8, 8, 4 * size),)


def dilated(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Gated convolutions over time, farther and farther back (WaveNet)."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        for i, (value, gate) in enumerate(zip(self.values, self.gates, strict=True)):
            before = functional.pad(x, (2**i, 0))
            x = x + torch.tanh(value(before)) * torch.sigmoid(gate(before))
        return x

    def convolutions() -> nn.Module:
        return nn.ModuleList(nn.Conv1d(8 * size, 8 * size, 2, dilation=2**i) for i in range(3))

    return Body(body, values=convolutions(), gates=convolutions()), (noise(2, 8 * size, 32 * size),)


def enlarging(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Shuffled, interpolated and reflected pixels."""
    first = (nn.Conv2d(3, 12 * size, 3, padding=1), nn.InstanceNorm2d(12 * size, affine=True), nn.PReLU())
    bigger = (nn.PixelShuffle(2), nn.Upsample(scale_factor=2, mode="bilinear"))
    second = (nn.Conv2d(3 * size, 4, 3, padding="same", padding_mode="reflect"), nn.LeakyReLU())
    return nn.Sequential(*first, *bigger, *second, nn.Upsample(scale_factor=2), nn.Conv2d(4, 1, 1)), (
        noise(2, 3, 4 + 4 * size, 4 + 4 * size),
    )


def varied(size: int) -> tuple[nn.Module, tuple[Data, ...]]:
    """Normalized weights, gates, and activations that are seldom seen."""
    weight, spectrum = nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm
    wide = 24 * size
    first = (weight(nn.Linear(wide, 2 * wide)), nn.GLU(), nn.RMSNorm(wide), spectrum(nn.Linear(wide, wide)))
    return nn.Sequential(*first, nn.Softplus(), nn.Mish(), nn.ELU(), nn.Tanh(), nn.LogSigmoid()), (
        noise(8 * size, wide),
    )


RECURRENT: dict[str, Network] = {
    "LSTM": partial(recurrent, nn.LSTM),
    "LSTM in both directions": partial(recurrent, nn.LSTM, bidirectional=True),
    "two LSTMs, time first": partial(recurrent, nn.LSTM, num_layers=2, bidirectional=True, batch_first=False),
    "LSTM without biases": partial(recurrent, nn.LSTM, bias=False, dropout=0.0),
    "LSTM with a projection": partial(recurrent, nn.LSTM, proj_size=8),
    "GRU": partial(recurrent, nn.GRU),
    "two GRUs in both directions": partial(recurrent, nn.GRU, num_layers=2, bidirectional=True),
    "plain recurrent network": partial(recurrent, nn.RNN, bidirectional=True),
    "packed sequences": packed,
}
OTHERS: dict[str, Network] = {
    **{f"bags, {mode}": partial(bags, mode) for mode in ("sum", "mean", "max")},
    "bags with offsets, sum": partial(bags, "sum", listed=True),
    "bags with offsets, mean": partial(bags, "mean", listed=True),
    "cumulative sums": scanned,
    "attention by hand": attention,
    "Fourier transforms": spectral,
    "experts": routed,
    "messages of a graph": messages,
    "sorted scores": ranked,
    "varied layers": varied,
}
IMAGES: dict[str, Network] = {
    "group norm": grouped,
    "transposed convolution": hourglass,
    "depthwise convolution": depthwise,
    "enlarging": enlarging,
}
HALVES: dict[str, Network] = {**IMAGES, "attention by hand": attention, "convolutions over time": dilated}
ZOO: dict[str, Callable[[int], Build]] = {
    **{name: partial(lambda network, size: training(network, size, None), network)
       for name, network in {**RECURRENT, **OTHERS, **IMAGES, "three dimensions": solid,
                             "convolutions over time": dilated}.items()},
    **{f"{name}, channels last": partial(lambda network, size: training(network, size, None, last=True), network)
       for name, network in IMAGES.items()},
    **{f"{name}, bfloat16": partial(lambda network, size: training(network, size, torch.bfloat16), network)
       for name, network in {**HALVES, "LSTM in both directions": RECURRENT["LSTM in both directions"],
                             "GRU": RECURRENT["GRU"]}.items()},
    **{f"{name}, autocast": partial(lambda network, size: training(network, size, torch.bfloat16, cast=True), network)
       for name, network in HALVES.items()},
}  # fmt: skip
"""A training of each network, by its size."""
MEASURED_SIZES = (1, 2, 4)
"""Sizes whose kernels the shipped table knows; those between them tell whether its rules hold."""
