"""Training steps that Bayplan was not tuned for, small enough to run by the dozen."""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import nn
from torch.nn import functional

from experiments.models import GptShape, Workload

Build = Callable[[torch.device], Workload]


def programs() -> dict[str, Build]:
    """By name; the one of transformers only where that is installed."""
    found: dict[str, Build] = {"MLP": mlp, "MLP, wide": wide_mlp, "ResNet with BatchNorm": resnet, "tied GPT": tied_gpt}
    return {**found, "GPT-2 of transformers": gpt2} if find_spec("transformers") is not None else found


def mlp(device: torch.device) -> Workload:
    """Six blocks of a linear layer and GELU, 128 wide: its kernels are about as long as a launch."""
    return regression(device, width=128, depth=6, rows=512)


def wide_mlp(device: torch.device) -> Workload:
    """The same, 512 wide, on four times the rows: kernels are far longer than a launch."""
    return regression(device, width=512, depth=6, rows=2048)


def regression(device: torch.device, width: int, depth: int, rows: int) -> Workload:
    """Blocks of a linear layer and GELU, and the mean square of what comes out."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
    model = nn.Sequential(*blocks).to(device)
    data = torch.randn(rows, width).to(device)
    return _workload(model, lambda: model(data).square().mean())


class Residual(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Images in and out, of the same shape."""
        (first, second), (norm, last) = self.convolutions, self.norms
        return functional.relu(image + last(second(functional.relu(norm(first(image))))))


def resnet(device: torch.device) -> Workload:
    """A small residual network on 16 images of 32 × 32."""
    torch.manual_seed(0)
    blocks = [Residual(16) for _ in range(4)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks, *head).to(device)
    images, labels = torch.randn(16, 3, 32, 32).to(device), torch.randint(10, (16,)).to(device)
    return _workload(model, lambda: functional.cross_entropy(model(images), labels))


def tied_gpt(device: torch.device) -> Workload:
    """A GPT whose output layer is its embedding, small enough to be bound by launches."""
    return GptShape(layers=3, width=64, heads=2, context=64, batch=4, tied=True).build(device)


def gpt2(device: torch.device) -> Workload:
    """transformers' GPT-2, tiny, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=3, n_head=2, use_cache=False, **rates)
    model = GPT2LMHeadModel(config).to(device)
    tokens = torch.randint(256, (8, 64)).to(device)
    return _workload(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def _workload(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Workload:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return Workload(model, optimizer, step)
