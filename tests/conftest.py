"""What all tests share: no deadlines on noisy machines, repeatable examples, one thread for torch, long files first."""

import gc
import os
from collections.abc import Iterator

import hypothesis
import pytest

# A shared machine is slower at times, which is no failure; in CI a random example would fail the next change instead.
hypothesis.settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Sums in parallel come in another order: bit-identity is a promise about one thread."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def no_seeds_for_absent_devices() -> Iterator[None]:
    """For devices that are not there `torch.manual_seed` keeps each seed with a printed stack, which takes long."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                patch.setattr(device, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture
def plain_sim() -> Iterator[None]:
    """The simulated accelerator, which a test sets up as it likes; afterwards it is as by default."""
    from runtime.device import use_sim
    from tests.accelerators import prepare_sim

    reason = prepare_sim()
    if reason is not None:
        pytest.skip(reason)
    yield
    use_sim()


@pytest.fixture(autouse=True, scope="module")
def nothing_stays_on_the_device() -> Iterator[None]:
    """What one file's tests left on the simulated device would count in the budgets and peaks of the files after it.

    So would what they left page-locked on the host; what is idle there goes back, as executors keep it until `close`.
    """
    before = bytes_on_the_device() + page_locked_bytes()
    yield
    left = bytes_on_the_device() + page_locked_bytes()
    if left > before:
        from runtime.device.settling import settled

        left = settled(bytes_on_the_device) + page_locked_bytes()
        if left > before:
            gc.unfreeze()  # what was set aside while it was in use may be garbage by now
            left = settled(bytes_on_the_device) + page_locked_bytes()
    assert left <= before, f"{left - before} bytes stay on the device or page-locked: what holds tensors there?"
    with_bytes_again()
    set_aside()


def pytest_collection_finish() -> None:
    """What thousands of tests and their modules consist of is no garbage: many tests collect, none need look at it."""
    set_aside()


def set_aside() -> None:
    """Let the collector of garbage leave alone what is alive now."""
    gc.collect()
    gc.freeze()


def with_bytes_again() -> None:
    """A file that trained shapes only leaves a device with bytes to the next one."""
    import torch

    from runtime.device import shapes_only, use_sim

    if torch._C._get_privateuse1_backend_name() == "sim" and shapes_only(torch.device("sim")):
        use_sim()


def bytes_on_the_device() -> int:
    """By tensors on the simulated device; 0 where no test has asked for it."""
    import torch

    if torch._C._get_privateuse1_backend_name() != "sim":
        return 0
    return int(torch.accelerator.memory_stats("sim")["allocated_bytes.all.current"])


def page_locked_bytes() -> int:
    """Of the simulated device's tensors, once what is idle went back; 0 where no test has asked for it."""
    import torch

    if torch._C._get_privateuse1_backend_name() != "sim":
        return 0
    from runtime.device.native import core

    core.trim_host()
    return int(core.host_stats().held_bytes)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where workers share the tests, files with a slow one are begun first: begun last, one would keep all waiting."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
        items.sort(key=lambda item: item.path not in slow)
