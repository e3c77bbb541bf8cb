"""Training loops with like operators in every step, and other sizes: padding, packing, buckets, routing, closures."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tests.runtime.swap.models.language import ENDS, bert, llama, mixtral
from tests.runtime.swap.models.program import Build, Program

VOCABULARY, ROWS, LONGEST = 96, 8, 64
Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens and their mask."""


def lengths_of(rows: int, draw: torch.Generator) -> list[int]:
    """Of so many texts: a few are long."""
    return [int(8 + (LONGEST - 8) * float(share) ** 2) for share in torch.rand(rows, generator=draw)]


def padded(draw: torch.Generator, rows: int = ROWS, multiple: int = 1) -> Batch:
    """Texts, padded to the longest of the batch, and that to a multiple."""
    lengths = lengths_of(rows, draw)
    longest = min(-(-max(lengths) // multiple) * multiple, LONGEST)
    text = torch.randint(2, VOCABULARY, (rows, longest), generator=draw)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return text.masked_fill(~mask, ENDS["pad_token_id"]), mask.long()


def bucketed(draw: torch.Generator) -> Batch:
    """All texts of a batch are of one of six lengths."""
    length = 14 + 10 * int(torch.randint(6, (1,), generator=draw))
    text = torch.randint(2, VOCABULARY, (ROWS, length), generator=draw)
    return text, torch.ones_like(text)


def packed(draw: torch.Generator) -> Batch:
    """As many texts one after the other as there happen to be, in rows of one length."""
    rows = int(torch.randint(5, 17, (1,), generator=draw))
    text = torch.randint(2, VOCABULARY, (rows, LONGEST // 2), generator=draw)
    return text, torch.ones_like(text)


def fixed(draw: torch.Generator) -> Batch:
    """One size: what varies is the model's own business."""
    text = torch.randint(2, VOCABULARY, (ROWS, LONGEST), generator=draw)
    return text, torch.ones_like(text)


def language(make: Callable[[], nn.Module], batch: Callable[[torch.Generator], Batch], accumulated: int = 1) -> Build:
    """Trains a model of transformers, batch after batch, with AdamW and a clipped norm."""

    def build(device: torch.device) -> Program:
        torch.manual_seed(0)
        model = make().to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        draw = torch.Generator().manual_seed(7)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            losses = []
            for _ in range(accumulated):
                text, mask = (part.to(device) for part in batch(draw))
                loss = model(input_ids=text, attention_mask=mask, labels=text, use_cache=False).loss / accumulated
                loss.backward()
                losses.append(loss.detach())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return torch.stack(losses)

        return Program(model, optimizer, step)

    return build


class Rows(nn.Module):
    """Blocks on rows of features, however many: what nested tensors and closures are given to."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        for block in self.blocks:
            rows = rows + block(rows)
        return rows


def nested(device: torch.device) -> Program:
    """Texts of their own lengths in one nested tensor."""
    torch.manual_seed(0)
    model = Rows(48, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    draw = torch.Generator().manual_seed(7)

    def step() -> torch.Tensor:
        texts = [torch.randn(length, 48, generator=draw) for length in lengths_of(2 * ROWS, draw)]
        rows = torch.nested.nested_tensor(texts, layout=torch.jagged).to(device)
        optimizer.zero_grad()
        loss: torch.Tensor = model(rows).values().square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return Program(model, optimizer, step)


def lbfgs(device: torch.device) -> Program:
    """Closures as often as the line search asks, on batches of varying sizes."""
    torch.manual_seed(0)
    model = Rows(32, 3).to(device)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=3, line_search_fn="strong_wolfe")
    draw = torch.Generator().manual_seed(7)

    def step() -> torch.Tensor:
        rows = torch.randn(256 + 32 * int(torch.randint(9, (1,), generator=draw)), 32, generator=draw).to(device)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(rows), rows.roll(1, 1))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        loss: torch.Tensor = optimizer.step(closure)  # type: ignore[no-untyped-call]
        return loss.detach()

    return Program(model, optimizer, step)


def accumulating(draw: torch.Generator) -> Batch:
    """What transformers' Trainer is given by its collator: padded to a multiple of eight."""
    return padded(draw, multiple=8)


PROGRAMS: dict[str, Build] = {
    "padded": language(lambda: bert("sdpa"), padded),
    "padded-eager": language(lambda: bert("eager"), padded),
    "bucketed": language(lambda: bert("sdpa"), bucketed),
    "packed": language(lambda: llama("sdpa"), packed),
    "trainer": language(lambda: bert("sdpa"), accumulating, accumulated=2),
    "experts": language(lambda: mixtral("eager"), fixed),
    "experts-grouped": language(lambda: mixtral("sdpa"), fixed),
    "experts-padded": language(lambda: mixtral("eager"), padded),
    "nested": nested,
    "lbfgs": lbfgs,
}
