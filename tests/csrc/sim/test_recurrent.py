"""Recurrent networks give the CPU's bits, whichever of its formulas it takes, forward and backward."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, unpack_sequence

from runtime.device import SimDevice

Build = Callable[..., torch.nn.Module]
NETWORKS: dict[str, Build] = {
    "rnn": torch.nn.RNN,
    "rnn with relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
    "gru": torch.nn.GRU,
    "lstm": torch.nn.LSTM,
    "lstm with projections": lambda *sizes, **options: torch.nn.LSTM(*sizes, proj_size=4, **options),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers with dropout": {"num_layers": 2, "dropout": 0.5},
    "both directions": {"bidirectional": True, "num_layers": 2},
    "without biases, batch first": {"bias": False, "batch_first": True},
}
CASES = {f"{name}, {how}": (NETWORKS[name], OPTIONS[how]) for name, how in product(NETWORKS, OPTIONS)}


def trained(net: torch.nn.Module, words: Any, leaf: Tensor) -> list[Tensor]:
    """Output, last states, and the gradients of the input and all parameters, on the CPU."""
    out, last = net(words)
    rows = out if isinstance(out, Tensor) else out.data
    states = list(last) if isinstance(last, tuple) else [last]
    (rows.square().sum() + sum(state.sum() for state in states)).backward()
    gradients = [leaf.grad, *(parameter.grad for parameter in net.parameters())]
    assert all(gradient is not None for gradient in gradients)
    return [each.detach().cpu() for each in [rows, *states, *gradients] if each is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("build", "options"), CASES.values(), ids=CASES)
def test_sequences(sim: SimDevice, build: Build, options: dict[str, Any], dtype: torch.dtype) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        net = build(8, 16, **options).to(dtype).to(device)
        words = torch.randn(5, 3, 8, dtype=dtype).to(device).requires_grad_()
        return trained(net, words, words)

    for mine, cpus in zip(run("sim"), run("cpu"), strict=True):
        assert mine.stride() == cpus.stride() and torch.equal(mine, cpus)


@pytest.mark.parametrize(("build", "options"), CASES.values(), ids=CASES)
def test_packed_sequences(sim: SimDevice, build: Build, options: dict[str, Any]) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        net = build(8, 16, **{**options, "batch_first": False}).to(device)
        words = torch.randn(5, 4, 8).to(device).requires_grad_()
        packed = pack_padded_sequence(words, torch.tensor([3, 5, 1, 3]), enforce_sorted=False)
        results = trained(net, packed, words)
        return results + [each.detach().cpu() for each in unpack_sequence(packed)]

    assert all(torch.equal(mine, cpus) for mine, cpus in zip(run("sim"), run("cpu"), strict=True))


@pytest.mark.parametrize("build", [torch.nn.RNNCell, torch.nn.GRUCell, torch.nn.LSTMCell])
@pytest.mark.parametrize("bias", [True, False])
def test_single_steps(sim: SimDevice, build: Build, bias: bool) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        cell = build(8, 16, bias=bias).to(device)
        words = torch.randn(3, 8).to(device).requires_grad_()
        states = cell(words)
        for _ in range(2):
            states = cell(words, states)
        hidden = states if isinstance(states, Tensor) else torch.cat(states)
        hidden.square().sum().backward()  # type: ignore[no-untyped-call]
        assert words.grad is not None
        return [each.detach().cpu() for each in (hidden, words.grad)] + [
            parameter.grad.cpu() for parameter in cell.parameters() if parameter.grad is not None
        ]

    assert all(torch.equal(mine, cpus) for mine, cpus in zip(run("sim"), run("cpu"), strict=True))


@pytest.mark.parametrize("build", [torch.nn.GRU, torch.nn.LSTM])
def test_an_empty_sequence_is_refused(sim: SimDevice, build: Build) -> None:
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0 in RNN"):
        build(8, 16).double().to("sim")(torch.zeros(0, 3, 8, dtype=torch.float64, device="sim"))
