"""`runtime.device.undeclared_writes` lists exactly what PyTorch's operators write and do not declare."""

import pytest
import torch

from runtime.device import SimDevice, use_sim
from runtime.device.undeclared_writes import UNDECLARED_WRITES, UNDECLARED_WRITES_OF_OTHER_DEVICES
from tests.csrc.sim.opinfo.copies import Copies
from tests.csrc.sim.opinfo.programs import seed
from tests.csrc.sim.opinfo.sweep import Plan, programs
from tests.csrc.sim.opinfo.undeclared import Found, watched_writes

SHARDS = 4
LISTED: Found = {op: set(write.arguments) for op, write in UNDECLARED_WRITES.items()}


def found_in(plan: Plan) -> tuple[Found, int]:
    """The undeclared writes of a plan's programs on the CPU, and how many of them ran."""
    found: Found = {}
    ran = 0
    for program in programs(plan):
        copies = Copies("cpu")
        seed(program.number)
        try:
            with watched_writes(found):
                program.run(copies)
            ran += 1
        except Exception:  # samples that the CPU refuses, and those that cannot be looked at
            continue
    return found, ran


def batch_norms(training: bool) -> Found:
    """The same of the operators that a batch norm is made of, each called by itself."""
    found: Found = {}
    mean, variance, batch = torch.zeros(3), torch.ones(3), torch.arange(24.0).view(2, 3, 4)
    aten = torch.ops.aten
    with watched_writes(found):
        aten.batch_norm(batch, None, None, mean, variance, training, 0.1, 1e-5, False)
        aten._batch_norm_impl_index(batch, None, None, mean, variance, training, 0.1, 1e-5, False)
        aten.native_batch_norm(batch, None, None, mean, variance, training, 0.1, 1e-5)
        aten.instance_norm(batch, None, None, mean, variance, training, 0.1, 1e-5, False)
        if training:
            aten.batch_norm_update_stats(batch, mean, variance, 0.1)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", [0, *(pytest.param(shard, marks=pytest.mark.soak) for shard in range(1, SHARDS))])
def test_samples_write_nothing_else(shard: int) -> None:
    """Every operator in `make soak`, a quarter of them here."""
    found, ran = found_in(Plan(shard=(shard, SHARDS)))
    assert ran >= 300
    assert all(arguments <= LISTED.get(op, set()) for op, arguments in found.items()), found


@pytest.mark.filterwarnings("ignore")
def test_everything_listed_is_written() -> None:
    found, _ = found_in(Plan(operators="batch_norm|instance_norm|BatchNorm|LSTM", samples=4))
    for op, arguments in batch_norms(training=True).items():
        found.setdefault(op, set()).update(arguments)
    assert found == LISTED


def test_the_conditions_hold() -> None:
    """Without them nothing is written, but by `batch_norm_update_stats`, which has none."""
    assert batch_norms(training=False) == {}
    for op, write in (UNDECLARED_WRITES | UNDECLARED_WRITES_OF_OTHER_DEVICES).items():
        packet = getattr(torch.ops.aten, op.removeprefix("aten::"))
        names = {argument.name: argument for argument in packet.default._schema.arguments}
        assert all(names[argument].alias_info is None for argument in write.arguments)
        assert write.condition is None or str(names[write.condition].type) == "bool"


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_no_sample_writes_anything_else() -> None:
    found, ran = found_in(Plan(samples=None))
    assert ran >= 20_000
    assert all(arguments <= LISTED.get(op, set()) for op, arguments in found.items()), found


def test_a_write_that_is_hidden_is_found() -> None:
    """The finder sees an operator that writes; and not one that says so."""
    library = torch.library.Library("bayplan_finder", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in ("hides(Tensor counts) -> Tensor", "tells(Tensor(a!) counts) -> Tensor"):
        library.define(schema)  # type: ignore[no-untyped-call]
        name = schema.partition("(")[0]
        library.impl(name, lambda counts: counts.add_(1).sum(), "CPU")  # type: ignore[no-untyped-call]
    found: Found = {}
    with watched_writes(found):
        torch.ops.bayplan_finder.hides(torch.zeros(3))
        torch.ops.bayplan_finder.tells(torch.zeros(3))
    assert found == {"bayplan_finder::hides": {"counts"}}


@pytest.mark.parametrize("training", [True, False])
def test_sim_races_statistics_only_where_they_are_written(sim: SimDevice, training: bool) -> None:
    """Two streams that do not wait for each other may read the same statistics, and may not both move them."""
    device = use_sim(sim.hardware, races="record")
    mean, variance, batch = (each.to("sim") for each in (torch.zeros(3), torch.ones(3), torch.ones(2, 3, 4)))
    torch.accelerator.synchronize()
    torch.nn.functional.batch_norm(batch, mean, variance, training=training)
    with torch.Stream(device="sim"):
        torch.nn.functional.batch_norm(batch, mean, variance, training=training)
    assert [race.second.op for race in device.races()] == (["native_batch_norm"] * 2 if training else [])
