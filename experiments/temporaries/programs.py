"""What is measured: training steps of several architectures and sizes, and kernels whose memory is no simple sum."""

from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec

import msgspec
import torch
from torch import nn
from torch.nn import functional

from experiments.bench.programs import programs as bench_programs
from experiments.models import GptShape, Workload
from experiments.models.rank import Rank
from experiments.temporaries.measure import Program
from experiments.temporaries.networks import LANGUAGE, convolutional, encoder_decoder, recurrent, trained
from experiments.temporaries.zoo import MEASURED_SIZES, ZOO
from solvers.workload import ModelShape, Parallelism

HALVES = (torch.bfloat16, torch.float16)
PRODUCTS = (
    *((size, size, size) for size in (64, 128, 256, 512, 1024)),
    (4096, 32, 4096), (32, 4096, 32), (4096, 4096, 32), (32, 4096, 4096), (4096, 128, 512), (512, 128, 4096),
    (512, 4096, 512), (256, 8192, 256), (1024, 4096, 256), (11008, 512, 256), (256, 2048, 2048), (8192, 512, 128),
    (2048, 2048, 256), (512, 64, 32), (512, 64, 64), (512, 64, 256), (512, 256, 64), (512, 32, 64), (64, 512, 64),
    (32, 512, 64), (64, 512, 32), (64, 512, 256), (256, 512, 64), (512, 64, 128), (128, 512, 64),
)  # fmt: skip
"""Rows, inner and outer columns of products in half precision."""
CONVOLUTIONS = (
    (3, 16, 3, 1, 16, 24), (16, 16, 3, 1, 16, 24), (3, 16, 3, 1, 16, 32), (16, 16, 3, 1, 16, 32), (16, 16, 3, 1, 4, 16),
    (3, 16, 3, 1, 8, 32), (16, 32, 3, 2, 8, 32), (32, 32, 3, 1, 8, 16), (32, 64, 1, 1, 8, 16), (64, 64, 3, 1, 4, 32),
    (3, 64, 7, 2, 2, 64), (8, 8, 3, 1, 4, 32), (1, 8, 3, 1, 4, 28), (16, 10, 3, 1, 4, 32), (24, 24, 3, 1, 4, 32),
)  # fmt: skip
"""Channels in and out, kernel, stride, images, side."""
ATTENTIONS = ((1, 2, 16, 8), (2, 4, 64, 16), (2, 4, 128, 32), (2, 2, 256, 64), (1, 2, 512, 64), (1, 2, 1024, 64))
"""Batch, heads, places, width of a head."""
SMALL_PRODUCTS = ((17, 16, 17), (33, 17, 40), (40, 100, 24), (5, 60, 200), (100, 50, 30), (150, 300, 90), (500, 40, 20))
"""The same, small and odd; alone and three at a time."""
RECURRENT = ((32, 16, 64), (8, 4, 32), (16, 8, 32), (16, 32, 64), (32, 16, 128))
"""Batch, places, width."""


def programs() -> dict[str, Program]:
    """Everything that is measured, by name."""
    found: dict[str, Program] = {name: partial(_two_steps, build) for name, build in bench_programs().items()}
    for width, dropout in ((32, 0.0), (64, 0.1), (128, 0.1)):
        shape = GptShape(layers=2, width=width, heads=4, context=width, batch=4, dropout=dropout, tied=width == 64)
        found[f"GPT {width}"] = partial(_two_steps, shape.build)
        for autocast in (torch.float32, *HALVES):
            found[f"encoder and decoder {width} {autocast}"] = partial(_two_steps, encoder_decoder(width, autocast))
    found["demo"] = partial(_two_steps, GptShape(layers=1).build)
    found |= {f"convolutions {size}": partial(_two_steps, convolutional(size)) for size in (16, 24)}
    found |= {f"LSTM {sizes}": partial(_two_steps, recurrent(*sizes)) for sizes in RECURRENT}
    found |= {f"{rank.shape.name} in {rank.dtype}": partial(_two_steps, rank.build) for rank in _ranks()}
    if find_spec("transformers") is not None:
        found |= {f"{name} {width}": partial(_two_steps, trained(partial(make, width)))
                  for name, make in LANGUAGE.items() for width in (32, 64)}  # fmt: skip
    found |= {f"{name}, size {size}": partial(_two_steps, build(size))
              for name, build in ZOO.items() for size in MEASURED_SIZES}  # fmt: skip
    kernels = {"products": _products, "convolution": _convolutions, "attention": _attentions, "others": _others,
               "norms": _norms}  # fmt: skip
    return {**found, **kernels}


def _norms(device: torch.device) -> None:
    """Layer norms that are wider than a block of the allocator, with gradients in both layouts."""
    for dtype in HALVES:
        for width in (64, 192, 320):
            norm = nn.LayerNorm(width, device=device, dtype=dtype)
            for rows in (7, 30):
                batch = torch.ones(rows, 3, width, device=device, dtype=dtype, requires_grad=True)
                turned = torch.ones(3, rows, width, device=device, dtype=dtype).transpose(0, 1)
                for gradient in (torch.ones_like(batch), turned):
                    norm(batch).backward(gradient)


def _ranks() -> list[Rank]:
    """Ranks of small transformers of both families."""
    cut = Parallelism(tensor=2, microbatch=2)
    gpt = ModelShape(name="small GPT", layers=2, hidden=64, heads=4, kv_heads=4, ffn=256, vocab=256, sequence=32)
    llama = msgspec.structs.replace(
        gpt,
        name="small Llama",
        kv_heads=2,
        ffn=192,
        gated=True,
        tied_embeddings=False,
        dropout=False,
        bias=False,
        positions="rotary",
        norm="rmsnorm",
    )
    found = []
    for shape in (gpt, llama):
        larger = msgspec.structs.replace(shape, name=f"larger {shape.name}", hidden=128, ffn=2 * shape.ffn, sequence=64)
        for dtype in (torch.float32, torch.bfloat16):
            found += [Rank(shape=one, cut=cut, dtype=dtype) for one in (shape, larger)]
    return found


def _two_steps(build: Callable[[torch.device], Workload], device: torch.device) -> None:
    """The second step has the optimizer's states."""
    training = build(device)
    training.step()
    training.step()


def _products(device: torch.device) -> None:
    """Every order of operands that a linear layer and its gradients have."""
    for dtype in HALVES:
        for rows, inner, columns in (*PRODUCTS, *SMALL_PRODUCTS):
            left = torch.ones(rows, inner, dtype=dtype, device=device)
            right = torch.ones(inner, columns, dtype=dtype, device=device)
            bias = torch.ones(columns, dtype=dtype, device=device)
            for a in (left, left.t().contiguous().t()):
                for b in (right, right.t().contiguous().t()):
                    torch.mm(a, b)
                    torch.addmm(bias, a, b)
                    if rows * inner * columns <= 1 << 24:
                        torch.bmm(a.unsqueeze(0), b.unsqueeze(0))
                    if (rows, inner, columns) in SMALL_PRODUCTS:
                        torch.bmm(torch.stack([a] * 3), torch.stack([b] * 3))


def _convolutions(device: torch.device) -> None:
    for inside, outside, kernel, stride, images, side in CONVOLUTIONS:
        for bias in (True, False):
            layer = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=bias).to(device)
            for gradient in (True, False):
                data = torch.ones(images, inside, side, side, device=device, requires_grad=gradient)
                layer(data).relu().sum().backward()


def _attentions(device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for batch, heads, places, width in ATTENTIONS:
            parts = [
                torch.ones(batch, places, heads, width, dtype=dtype, device=device).transpose(1, 2).requires_grad_()
                for _ in range(3)
            ]
            mask = torch.ones(places, places, dtype=torch.bool, device=device)
            for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
                mixed = functional.scaled_dot_product_attention(*parts, **options)  # type: ignore[arg-type]
                mixed.transpose(1, 2).reshape(batch, places, heads * width).sum().backward()  # type: ignore[no-untyped-call]


def _others(device: torch.device) -> None:
    """Kernels that sort, scan, look up and scatter, on two sizes."""
    for rows, columns in ((64, 96), (256, 320)):
        for dtype in (torch.float32, torch.bfloat16):
            _each(torch.rand(rows, columns, device=device).to(dtype))


def _each(data: torch.Tensor) -> None:
    order = data.argsort(-1)
    rows = order[:, 0] % data.shape[0]
    kernels: Iterable[Callable[[], object]] = (
        lambda: data.sort(-1),
        lambda: data.topk(3),
        lambda: data.cumsum(-1),
        lambda: data.gather(1, order),
        lambda: data.clone().scatter_(1, order, data),
        lambda: data.clone().scatter_add_(1, order, data),
        lambda: data.clone().index_add_(0, rows, data),
        lambda: torch.cat([data, data], 1),
        lambda: data.index_select(0, rows),
        lambda: data.std(-1),
        lambda: data.var(0),
        lambda: data.logsumexp(-1),
        lambda: data.softmax(0),
        lambda: data.log_softmax(-1),
        lambda: data.norm(),
        lambda: data.amax(-1),
        lambda: data.argmax(-1),
        lambda: data + data.float(),
        lambda: data * 2,
        lambda: data.tril(),
        lambda: data.where(data > 0, 0.0),
        lambda: data.masked_fill(data > 0, 0.0),
        lambda: data.mean(),
        lambda: data.mean(-1),
        lambda: data.view(4, -1, data.shape[1]).mean((1, 2)),
        lambda: data.mean(-1, keepdim=True),
        lambda: data.roll(1),
        lambda: order.roll(1),
        lambda: data[:, ::2].tanh(),
        lambda: data[:, ::2].sigmoid(),
        lambda: data.sum() / 2,
        lambda: data.sum() * 0.5,
        lambda: data.clone().bernoulli_(0.5),
        lambda: data**3,
        lambda: data**0.5,
        lambda: data.exp(),
        lambda: data.square(),
        lambda: 1 - data,
        lambda: data / data,
        lambda: data.abs().log(),
        lambda: data.sum(0),
        lambda: functional.embedding(order % data.shape[0], data),
        lambda: data.clone().index_put_((rows,), data[0]),
    )
    for kernel in kernels:
        kernel()
