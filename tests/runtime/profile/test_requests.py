"""What a program asks of the device's allocator: in which operator, on which stream, and for which tensor."""

import pytest
import torch

from runtime.device import use_sim
from runtime.profile import record_requests, record_step
from solvers.ir import InvalidInput

pytestmark = pytest.mark.usefixtures("plain_sim")


def test_requests_say_operator_stream_and_tensor() -> None:
    """What the profiler reports: a side stream's allocation, and which request made the tensor of the graph."""
    device = use_sim().device
    side = torch.Stream(device=device)
    data = torch.ones(1000, device=device)
    side.wait_stream(torch.accelerator.current_stream())

    def step() -> None:
        made = data + 1
        with side:
            data * 2
        del made

    step()
    done = record_step(step, device, warmup=0)
    large = [request for request in done.requests if abs(request.bytes) == 4096]
    assert [(request.bytes, request.op) for request in large] == [(4096, 0), (4096, 1), (-4096, None), (-4096, None)]
    assert large[0].stream != large[1].stream
    made = [name for name, request in done.request_of.items() if done.requests[request] == large[0]]
    assert [done.graph.tensor(name).born for name in made] == [0]
    _, early = record_requests(step, device)
    assert [request.bytes for request in early.requests] == [request.bytes for request in done.requests]
    assert early.operator_ids == done.operator_ids


def test_a_cpu_has_no_segments_to_record() -> None:
    with pytest.raises(InvalidInput, match="device cpu has no allocator"):
        record_requests(lambda: None, torch.device("cpu"))
