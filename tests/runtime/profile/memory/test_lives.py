"""What the program itself holds: seen when it comes and goes, and counted whatever blocks do with it."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from runtime.blocks.saved import Boundaries, SavedStorages
from runtime.device import SimDevice
from runtime.profile.memory import profile_memory
from runtime.profile.memory.lives import Lives
from tests.runtime.profile.memory.models import Doubled, Stack, task
from tests.runtime.profile.memory.test_peaks import assert_predicted, mixes


class Remembering(Stack):
    """Every result stays in a list until the model returns, as for `output_hidden_states`."""

    def forward(self, data: Tensor) -> Tensor:
        self.results: list[Tensor] = []
        result = super().forward(data)
        del self.results
        return result

    def between(self, number: int, hidden: Tensor, given: Tensor) -> Tensor:
        self.results.append(hidden)
        return hidden


class Multiplied(Stack):
    """What goes into block 0 is a factor behind block 2, whose result is saved outside all blocks then."""

    def forward(self, data: Tensor) -> Tensor:
        self.factor = self.first(data)
        result = super().forward(data)
        del self.factor
        return result

    def between(self, number: int, hidden: Tensor, given: Tensor) -> Tensor:
        return hidden * self.factor if number == 2 else hidden


class Tabled(Doubled):
    """Saves a table that is no argument, parameter or buffer."""

    table: list[Tensor]

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden) * self.table[0]


def tabled() -> nn.Module:
    """All blocks share one table."""
    model = Stack(5, block=Tabled)
    Tabled.table = [torch.rand(512, 64).to("sim")]
    return model


def nested() -> nn.Module:
    """The outer sequence holds what it gave to the inner one, which is the first block's input."""
    return nn.Sequential(nn.Linear(32, 64), nn.Sequential(*[Doubled(64) for _ in range(5)]), nn.Linear(64, 10))


MODELS = {
    "results in a list": lambda: Remembering(5),
    "saved between blocks": lambda: Multiplied(5),
    "a table": tabled,
    "a sequence in a sequence": nested,
}


@pytest.fixture(autouse=True)
def without_tables() -> Iterator[None]:
    """The table belongs to a class, which outlives the test."""
    yield
    Tabled.table = []


@pytest.mark.parametrize("kind", MODELS)
def test_what_the_program_holds_counts(kind: str, sim: SimDevice) -> None:
    torch.manual_seed(0)
    work = task(MODELS[kind](), torch.randn(512, 32), optimizer=False)
    profile = profile_memory(work.model, work.step, sim.device)
    assert_predicted(profile, work, mixes(5, 8), sim)


def test_a_tensor_says_when_it_goes() -> None:
    """Two objects on one storage: the later one counts; the second of the same object does not."""
    boundaries, segments = Boundaries(), [3]
    lives = Lives(boundaries, lambda: segments[0])
    one = torch.zeros(4)
    other = one.view(2, 2).detach()
    number = boundaries.add(one)
    for tensor in (one, other, one):
        lives.watch(number, tensor, 1)
    segments[0] = 5
    del one, tensor
    assert lives.spans == {number: (1, None)}
    segments[0] = 8
    del other
    assert lives.spans == {number: (1, 8)}


def test_storages_that_nobody_tells_of_are_asked_for() -> None:
    """The youngest is asked for each time, the others when it has gone."""
    boundaries = Boundaries()
    lives = Lives(boundaries, lambda: 0)
    table, *copies = (torch.zeros(4) for _ in range(3))
    numbers = [boundaries.add(tensor) for tensor in (table, *copies)]
    for number in numbers:
        lives.ask(number, 2)
    lives.end_expired(3)
    copies.clear()
    lives.end_expired(4)
    assert lives.spans == {numbers[0]: (2, None), numbers[1]: (2, 4), numbers[2]: (2, 4)}


def test_all_are_asked_when_a_cache_is_dropped() -> None:
    """Though the youngest is still there, as somebody else holds it."""
    boundaries = Boundaries()
    lives = Lives(boundaries, lambda: 0)
    copies = [torch.zeros(4) for _ in range(2)]
    first, second = (boundaries.add(tensor) for tensor in copies)
    for number in (first, second):
        lives.ask(number, 2)
    del copies[0]
    lives.end_expired(4)
    assert lives.asked == {first, second}
    lives.end_expired(5, all_at_once=True)
    assert lives.asked == {second}
    assert lives.spans == {first: (2, 5), second: (2, None)}


def test_what_a_block_saves_is_shared_or_its_own() -> None:
    boundaries = Boundaries()
    given, inside, table = (torch.zeros(size) for size in (100, 200, 300))
    number = boundaries.add(given)
    saved = SavedStorages(boundaries, {table.untyped_storage()._cdata}, given.device)
    for tensor in (given, inside, table, inside.view(20, 10)):
        saved.pack(tensor)
    assert saved.split() == ((number,), (1024,))  # 800 bytes, in pieces of 512
    (outliving,) = set(saved.number_outliving()) - {number}
    assert saved.split() == ((number, outliving), ())
