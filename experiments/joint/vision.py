"""Steps of ResNet-50 and of a U-Net as graphs, measured on the simulated device by shapes: nothing is computed."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from experiments.graphs.traced import UNet
from runtime.device import use_sim
from runtime.profile import profile_step
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.names import unknown

Loss = Callable[[], torch.Tensor]
RESNET_BATCH, RESNET_SIDE, CLASSES = 64, 224, 1000
UNET_BATCH, UNET_SIDE, UNET_WIDTH = 8, 256, 64


def vision_graph(name: str, machine: Hardware) -> OpGraph:
    """One step of that model with plain SGD on the machine's first device, in float32."""
    if name not in MODELS:
        raise unknown("vision model", name, MODELS)
    device = use_sim(hardware=machine, shapes_only=True, races="off").device
    torch.manual_seed(0)
    model, loss = MODELS[name](device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        found = loss()
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return found

    return profile_step(step, device, name=name, model=model, optimizer=optimizer)


def _resnet(device: torch.device) -> tuple[nn.Module, Loss]:
    """Bottleneck blocks 3, 4, 6, 3 (He et al. 2016), which is what transformers builds by default."""
    import transformers

    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=CLASSES))
    model = model.to(device).train()
    images = torch.randn(RESNET_BATCH, 3, RESNET_SIDE, RESNET_SIDE).to(device)
    labels = torch.zeros(RESNET_BATCH, dtype=torch.long).to(device)
    return model, lambda: model(pixel_values=images, labels=labels).loss


def _unet(device: torch.device) -> tuple[nn.Module, Loss]:
    model = UNet(UNET_WIDTH).to(device)
    images = torch.randn(UNET_BATCH, 3, UNET_SIDE, UNET_SIDE).to(device)
    masks = torch.zeros(UNET_BATCH, UNET_SIDE, UNET_SIDE, dtype=torch.long).to(device)
    return model, lambda: functional.cross_entropy(model(images), masks)


MODELS: dict[str, Callable[[torch.device], tuple[nn.Module, Loss]]] = {"resnet-50": _resnet, "u-net": _unet}
