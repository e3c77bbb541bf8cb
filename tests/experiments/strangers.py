"""What strangers bring to `bayplan`: factories with every mistake that one can make, and some that are none."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from runtime.device import use_sim

WIDTH, ROWS = 64, 512
Parts = tuple[nn.Module, torch.optim.Optimizer, Callable[[], Any]]


def layers(count: int = 4) -> nn.Module:
    return nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


def learn(loss: Any, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def parts(
    device: torch.device, model: nn.Module | None = None, answer: Callable[[torch.Tensor], Any] | None = None
) -> Parts:
    """A program without a mistake, whose step returns what `answer` makes of the loss."""
    model = (layers() if model is None else model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(ROWS, WIDTH).to(device)

    def step() -> Any:
        loss = model(data).square().mean()
        learn(loss, optimizer)
        return loss.detach() if answer is None else answer(loss)

    return model, optimizer, step


def good(device: torch.device) -> Parts:
    return parts(device)


def chatty(device: torch.device) -> Parts:
    print("building my model …")

    def answer(loss: torch.Tensor) -> torch.Tensor:
        print("stepping")
        return loss.detach()

    return parts(device, answer=answer)


# ---- what they return ---------------
def nothing(device: torch.device) -> None:
    pass


def a_model_only(device: torch.device) -> nn.Module:
    return layers().to(device)


def two_parts(device: torch.device) -> tuple[Any, ...]:
    return parts(device)[:2]


def swapped_parts(device: torch.device) -> tuple[Any, ...]:
    model, optimizer, step = parts(device)
    return optimizer, model, step


def as_dict(device: torch.device) -> dict[str, Any]:
    return dict(zip(("model", "optimizer", "step"), parts(device), strict=True))


def no_step(device: torch.device) -> tuple[Any, ...]:
    model, optimizer, _ = parts(device)
    return model, optimizer, None


def class_of_step(device: torch.device) -> tuple[Any, ...]:
    model, optimizer, step = parts(device)

    def needy(batch: torch.Tensor, *, scale: float) -> torch.Tensor:
        loss: torch.Tensor = step() * scale
        return loss

    return model, optimizer, needy


def two_devices(first: torch.device, second: torch.device) -> Parts:
    return parts(first)


# ---- where their model is ---------------
def on_cpu(device: torch.device) -> Parts:
    return parts(torch.device("cpu"))


def on_meta(device: torch.device) -> Parts:
    return parts(torch.device("meta"))


def data_on_cpu(device: torch.device) -> Parts:
    model = layers().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.randn(ROWS, WIDTH)
    return model, optimizer, lambda: model(data).sum()


def on_cuda(device: torch.device) -> Parts:
    return parts(torch.device("cuda"))


def sets_up_the_device(device: torch.device) -> Parts:
    use_sim()
    return parts(device)


def default_device(device: torch.device) -> Parts:
    """Whoever sets PyTorch's default device means the tensors of this program only."""
    torch.set_default_device(device)
    return parts(device)


def master_weights(device: torch.device) -> Parts:
    """The optimizer's weights need not be the model's: these are more precise copies, written back each step."""
    model, _, _ = parts(device)
    masters = [weight.detach().double() for weight in model.parameters()]
    optimizer = torch.optim.SGD(masters, 0.1)
    data = torch.randn(ROWS, WIDTH).to(device)

    def step() -> torch.Tensor:
        loss: Any = model(data).square().mean()
        loss.backward()
        with torch.no_grad():
            for master, weight in zip(masters, model.parameters(), strict=True):
                assert weight.grad is not None
                master.grad, weight.grad = weight.grad.double(), None
            optimizer.step()
            for master, weight in zip(masters, model.parameters(), strict=True):
                weight.copy_(master)
        detached: torch.Tensor = loss.detach()
        return detached

    return model, optimizer, step


def computing_elsewhere(device: torch.device) -> Parts:
    model, optimizer, _ = parts(device)
    _, _, step = parts(torch.device("cpu"))
    return model, optimizer, step


def late_move(device: torch.device) -> Parts:
    """The optimizer is made of the weights before they move: on some devices it then trains the ones left behind."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.to(device)
    data = torch.randn(ROWS, WIDTH).to(device)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(data).square().mean()
        learn(loss, optimizer)
        return loss.detach()

    return model, optimizer, step


# ---- models and optimizers that train nothing ---------------
def empty_model(device: torch.device) -> tuple[Any, ...]:
    weight = torch.randn(WIDTH, WIDTH, device=device, requires_grad=True)
    return nn.Module(), torch.optim.SGD([weight], 0.1), lambda: weight.sum()


def optimizer_of_nothing(device: torch.device) -> Parts:
    model = layers().to(device)
    return model, torch.optim.SGD([], 0.1), lambda: None


def optimizer_of_an_empty_group(device: torch.device) -> Parts:
    model, _, step = parts(device)
    return model, torch.optim.SGD([{"params": []}], 0.1), step


def frozen(device: torch.device) -> Parts:
    model, optimizer, step = parts(device)
    model.requires_grad_(False)
    return model, optimizer, step


# ---- their step ---------------
def returns_float(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: loss.item())


def returns_none(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: None)


def returns_dict(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: {"loss": loss})


def returns_complex(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: loss.detach().to(torch.complex64))


def returns_logits(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: loss.expand(3))


def returns_its_graph(device: torch.device) -> Parts:
    """A loss that still holds its graph is no mistake worth a word."""
    return parts(device, answer=lambda loss: loss)


def never_backward(device: torch.device) -> Parts:
    model, optimizer, _ = parts(device)
    data = torch.randn(ROWS, WIDTH).to(device)
    return model, optimizer, lambda: model(data).square().mean().detach()


def does_nothing(device: torch.device) -> Parts:
    model, optimizer, _ = parts(device)
    loss = torch.zeros((), device=device)
    return model, optimizer, lambda: loss


def in_a_thread(device: torch.device) -> Parts:
    """The whole step runs in a thread of its own, which no recorder follows."""
    model, optimizer, step = parts(device)

    def threaded() -> torch.Tensor:
        losses: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: losses.append(step()))
        thread.start()
        thread.join()
        return losses[0]

    return model, optimizer, threaded


def nan_loss(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: loss.detach() * float("nan"))


def late_infinity(device: torch.device) -> Parts:
    seen: list[int] = []

    def answer(loss: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return loss.detach() / (0.0 if len(seen) > 1 else 1.0)

    return parts(device, answer=answer)


def stumbles(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: [][0])


def leaves(device: torch.device) -> Parts:
    return parts(device, answer=lambda loss: exit(3))


def stumbles_at_the_fourth_call(device: torch.device) -> Parts:
    """Two steps train; the first under a plan is the one that fails."""
    CALLS.append(1)

    def answer(loss: torch.Tensor) -> torch.Tensor:
        if len(CALLS) > 1:
            raise KeyError("my dataset is at its end")
        return loss.detach()

    return parts(device, answer=answer)


CALLS: list[int] = []


# ---- factories that raise ---------------
def raises(device: torch.device) -> Parts:
    raise FileNotFoundError("tokens.bin\nis not here")


def raises_long(device: torch.device) -> Parts:
    raise RuntimeError("page after page " * 500)


def ends_python(device: torch.device) -> Parts:
    raise SystemExit("done")


def asks_for_the_impossible(device: torch.device) -> Parts:
    return parts(device, nn.Linear(WIDTH, 10**13))


def too_large(device: torch.device) -> Parts:
    torch.empty(1 << 31, device=device)
    return parts(device)


# ---- programs that no plan can follow ---------------
def data_decides(device: torch.device) -> Parts:
    """Every other step runs two layers more, as a branch on data would."""
    model, optimizer, _ = parts(device)
    data = torch.randn(ROWS, WIDTH).to(device)
    turns: list[int] = []

    def step() -> torch.Tensor:
        turns.append(1)
        hidden = model(data)
        if len(turns) % 2:
            hidden = model(hidden)
        loss: torch.Tensor = hidden.square().mean()
        learn(loss, optimizer)
        return loss.detach()

    return model, optimizer, step


def data_sizes(device: torch.device) -> Parts:
    """The same operators each time, on as many rows as the data has: one batch in three is short."""
    model, optimizer, _ = parts(device)
    data = torch.randn(ROWS, WIDTH).to(device)
    turns: list[int] = []

    def step() -> torch.Tensor:
        turns.append(1)
        rows = ROWS if len(turns) % 3 else ROWS // 2
        loss: torch.Tensor = model(data[:rows]).square().mean()
        learn(loss, optimizer)
        return loss.detach()

    return model, optimizer, step


def compiled_model(device: torch.device) -> Parts:
    return parts(device, torch.compile(layers()))  # type: ignore[arg-type]


def compiled_block(device: torch.device) -> Parts:
    model = nn.Sequential(layers(2), layers(2))
    model[1].compile()
    return parts(device, model)


def compiled_step(device: torch.device) -> Parts:
    model, optimizer, step = parts(device)
    return model, optimizer, torch.compile(step)


def compiled_loss(device: torch.device) -> Parts:
    """Only a function inside the step is compiled, which nobody can see before it runs."""
    model, optimizer, _ = parts(device)
    data = torch.randn(ROWS, WIDTH).to(device)
    loss_of = torch.compile(lambda hidden: (hidden.square() + 1).mean())

    def step() -> torch.Tensor:
        loss: torch.Tensor = loss_of(model(data))
        learn(loss, optimizer)
        return loss.detach()

    return model, optimizer, step


# ---- programs that do not repeat ---------------
def seeded_by_the_clock(device: torch.device) -> Parts:
    torch.manual_seed(time.time_ns())
    return parts(device)


def shuffled(device: torch.device) -> Parts:
    """Random numbers of Python's own: as repeatable as torch's, because they are seeded too."""
    model, optimizer, _ = parts(device)
    order = random.sample(range(ROWS), ROWS)
    data = torch.randn(ROWS, WIDTH)[order].to(device)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(data).square().mean()
        learn(loss, optimizer)
        return loss.detach() * random.random()

    return model, optimizer, step


def options(*words: str) -> Sequence[str]:
    """A short experiment's settings."""
    return ("steps=2", "limits.time_s=1", "plots=false", "baselines=[none]", *words)
