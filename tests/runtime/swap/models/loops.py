"""Training loops that do more than forward, backward, step: accumulate, skip, validate, hook, save, fail."""

import copy
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.runtime.swap.models.networks import CLASSES, ROWS, Layers
from tests.runtime.swap.models.program import Build, Program

Step = Callable[[], torch.Tensor]


class Loop:
    """The parts that each loop below puts together in its own way."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = Layers().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)
        self.steps = 0

    def batch(self, rows: int = ROWS) -> torch.Tensor:
        """Fresh tokens, the same on every device."""
        return torch.randint(CLASSES, (rows,)).to(self.device)

    def loss(self, rows: int = ROWS) -> torch.Tensor:
        """The loss of a fresh batch."""
        batch = self.batch(rows)
        return functional.cross_entropy(self.model(batch), batch.roll(1))

    def step(self) -> torch.Tensor:
        """A plain step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.steps += 1
        return loss.detach()


def looped(body: Callable[[Loop], Step]) -> Build:
    """A program of a loop, whose body may prepare things before it gives the step."""

    def build(device: torch.device) -> Program:
        loop = Loop(device)
        return Program(loop.model, loop.optimizer, body(loop))

    return build


def accumulating(loop: Loop) -> Step:
    """Four small batches to one optimizer step."""

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        losses = []
        for _ in range(4):
            loss = loop.loss(ROWS // 2) / 4
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        loop.optimizer.step()
        return torch.stack(losses)

    return step


def scaled(loop: Loop) -> Step:
    """Loss scaling; every fourth loss is infinite, so that the scaler skips the optimizer's step."""
    scaler = torch.amp.GradScaler(loop.device.type, init_scale=2.0**8, growth_interval=3)

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        loss = loop.loss()
        loss = loss * float("inf") if loop.steps % 4 == 2 else loss
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(loop.optimizer)
        scaler.update()
        loop.steps += 1
        return torch.stack([loss.detach(), torch.tensor(scaler.get_scale(), device=loop.device)])

    return step


def cast(loop: Loop) -> Step:
    """Autocast to bfloat16: the cache of cast weights lives as long as its context."""

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(loop.device.type, dtype=torch.bfloat16):
            loss = loop.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        loop.optimizer.step()
        return loss.detach()

    return step


def penalized(loop: Loop) -> Step:
    """A penalty on the gradient's norm: a backward pass through a backward pass."""

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        loss = loop.loss()
        gradients = torch.autograd.grad(loss, list(loop.model.blocks.parameters()), create_graph=True)
        total = loss + 0.1 * torch.stack([gradient.square().sum() for gradient in gradients]).sum()
        total.backward()  # type: ignore[no-untyped-call]
        loop.optimizer.step()
        return torch.stack([loss.detach(), total.detach()])

    return step


def functional_gradients(loop: Loop) -> Step:
    """Gradients for each part of the batch at once, by torch.func, averaged by hand."""

    def loss_of(parameters: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = torch.func.functional_call(loop.model, parameters, (batch,))
        return functional.cross_entropy(logits, batch.roll(1))

    each = torch.func.vmap(torch.func.grad_and_value(loss_of), (None, 0), randomness="different")

    def step() -> torch.Tensor:
        held = {name: parameter.detach() for name, parameter in loop.model.named_parameters()}
        gradients, losses = each(held, loop.batch().view(8, -1))
        for name, parameter in loop.model.named_parameters():
            parameter.grad = gradients[name].mean(0)
        loop.optimizer.step()
        loop.optimizer.zero_grad(set_to_none=True)
        result: torch.Tensor = losses.detach()
        return result

    return step


def adversarial(loop: Loop) -> Step:
    """Two models and two optimizers that step in turn; the second trains on what the first made."""
    judge = Layers().to(loop.device)
    second = torch.optim.SGD(judge.parameters(), lr=1e-2, momentum=0.9, foreach=True)

    def judged(hidden: torch.Tensor) -> torch.Tensor:
        for block in judge.blocks:
            hidden = hidden + block(hidden)
        mean: torch.Tensor = judge.head(hidden).square().mean()
        return mean

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        made = loop.model.blocks[0](loop.model.table(loop.batch()))
        fooled = judged(made) + loop.loss()
        fooled.backward()  # type: ignore[no-untyped-call]
        loop.optimizer.step()
        second.zero_grad(set_to_none=True)
        caught = judged(made.detach())
        caught.backward()  # type: ignore[no-untyped-call]
        second.step()
        return torch.stack([fooled.detach(), caught.detach()])

    return step


def validating(loop: Loop) -> Step:
    """Two batches without gradients after every third step; a shorter batch in every fourth."""

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        loss = loop.loss(ROWS // 2 if loop.steps % 4 == 3 else ROWS)
        loss.backward()  # type: ignore[no-untyped-call]
        loop.optimizer.step()
        loop.steps += 1
        if loop.steps % 3 != 0:
            return loss.detach()
        loop.model.eval()
        with torch.no_grad():
            told = torch.stack([loss.detach(), loop.loss(), loop.loss()])
        loop.model.train()
        return told

    return step


def hooked(loop: Loop) -> Step:
    """Hooks before and after modules, on tensors, on gradients that accumulate, and on what autograd saves."""
    seen: list[torch.Tensor] = []

    def scaled_gradient(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 0.5

    def after_forward(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        output.register_hook(scaled_gradient)  # type: ignore[no-untyped-call]
        shifted: torch.Tensor = output + 0.25 * inputs[0]
        return shifted

    def damp(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(0.9)

    def after_backward(module: nn.Module, into: Any, out: Any) -> None:
        seen.append(out[0].norm())

    for block in loop.model.blocks:
        block.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1.5,))
        block.register_forward_hook(after_forward)
        block.register_full_backward_hook(after_backward)
    for parameter in loop.model.parameters():
        parameter.register_post_accumulate_grad_hook(damp)  # type: ignore[no-untyped-call]

    def step() -> torch.Tensor:
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor, tensor.shape), lambda kept: kept[0]):
            loss = loop.step()
        return torch.stack([loss, *seen])

    return step


def saving(loop: Loop) -> Step:
    """Saves and copies model, optimizer and the living loss in mid-step, and loads the copies back."""

    def step() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=True)
        hidden = loop.model.table(loop.batch())
        kept = [hidden.detach()]
        for block in loop.model.blocks:
            hidden = hidden + block(hidden)
            kept.append(hidden.detach())
        state = copy.deepcopy(loop.optimizer.state_dict())
        copies = copy.deepcopy([*kept, *loop.model.state_dict().values()])
        file = io.BytesIO()
        torch.save(
            {"kept": kept, "model": loop.model.state_dict(), "gradients": [p.grad for p in loop.model.parameters()]},
            file,
        )
        loss = loop.model.head(hidden).square().mean()
        loss.backward()
        loop.optimizer.step()
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        told = [loss.detach(), *(a.sub(b).abs().sum() for a, b in zip(kept, loaded["kept"], strict=True))]
        if loop.steps % 3 == 2:
            loop.model.load_state_dict(loaded["model"])
            loop.optimizer.load_state_dict(state)
        loop.steps += 1
        return torch.stack([*told, *(tensor.mean() for tensor in copies)])

    return step


def prefetching(loop: Loop) -> Step:
    """The next batch comes from page-locked memory on a stream of its own while this one trains."""
    if loop.device.type == "cpu":
        return loop.step
    side = torch.Stream(device=loop.device)

    def fetched() -> torch.Tensor:
        host = torch.randint(CLASSES, (ROWS,)).pin_memory()
        with side:
            return host.to(loop.device, non_blocking=True)

    waiting: list[torch.Tensor] = []

    def batch(rows: int = ROWS) -> torch.Tensor:
        current = torch.accelerator.current_stream()
        tokens = waiting.pop() if waiting else fetched()
        current.wait_stream(side)
        tokens.record_stream(current)
        return tokens

    def step() -> torch.Tensor:
        loss = loop.step()
        waiting.append(fetched())
        return loss

    loop.batch = batch  # type: ignore[method-assign]
    return step


def fed_by_a_thread(loop: Loop) -> Step:
    """Another thread makes the batches and puts them on the device."""
    feeder = ThreadPoolExecutor(1)
    plain = loop.batch
    loop.batch = lambda rows=ROWS: feeder.submit(plain, rows).result()  # type: ignore[method-assign]
    return loop.step


def offloading(loop: Loop) -> Step:
    """The program itself keeps what autograd saves on the host, by PyTorch's `save_on_cpu`, for one block of three."""
    forward = loop.model.blocks[1].forward

    def on_host(hidden: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            result: torch.Tensor = forward(hidden)
        return result

    loop.model.blocks[1].forward = on_host
    return loop.step


class Interruption(Exception):
    """What the program below raises in its own backward pass."""


def interrupted(loop: Loop) -> Step:
    """Fails in the middle of every third forward or backward pass, catches that, and trains on."""

    def fail() -> None:
        raise Interruption

    def fail_forward(module: nn.Module, inputs: Any) -> None:
        raise Interruption

    def step() -> torch.Tensor:
        where = loop.steps % 6
        loop.steps += 1
        block = loop.model.blocks[1]
        with_hooks = {
            1: lambda: block.register_forward_pre_hook(fail_forward),
            4: lambda: block.register_full_backward_hook(lambda module, into, out: fail()),
        }
        handle = with_hooks[where]() if where in with_hooks else None
        try:
            return loop.step()
        except Interruption:
            return torch.tensor(-1.0, device=loop.device)
        finally:
            if handle is not None:
                handle.remove()

    return step


LOOPS: dict[str, Build] = {
    "gradient-accumulation": looped(accumulating),
    "grad-scaler": looped(scaled),
    "autocast": looped(cast),
    "double-backward": looped(penalized),
    "torch-func": looped(functional_gradients),
    "two-optimizers": looped(adversarial),
    "validation": looped(validating),
    "hooks": looped(hooked),
    "prefetch-on-a-stream": looped(prefetching),
    "fed-by-a-thread": looped(fed_by_a_thread),
    "save-on-cpu": looped(offloading),
    "save-and-copy": looped(saving),
    "exception-in-mid-step": looped(interrupted),
}
