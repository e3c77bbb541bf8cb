"""The certified tree: rows as the checker knows them, a bound at any moment, and few leaves where blocks are alike."""

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from solvers.check.layout.bound import add_up_tree
from solvers.check.layout.relaxation import LayoutRelaxation
from solvers.engines import Answer, LinearModel, solve
from solvers.engines.model import Basis
from solvers.ir import LayoutProblem, Limits, Status
from solvers.layout.answers import floor_us
from solvers.layout.evaluate import instance
from solvers.layout.exact.bound import OF_BYTES, BoundTree
from solvers.layout.exact.model import relaxation
from tests.solvers.layout.brute_force import random_problem
from tests.solvers.layout.exact.test_solver import paper_row
from tests.solvers.layout.test_instances import generated

ALONE = ("buffers", "checkpoints", "swaps", "persistents", "peak", "gradients", "finish")


def ask(model: LinearModel, basis: Basis | None) -> Answer:
    """A linear program's optimum."""
    return solve(model, Limits(time_s=20), "highs", basis=basis)


def keys_of(model: LinearModel) -> list[str]:
    """The checker's names of the columns."""
    names = [model.column_names[column] for column in range(model.columns)]
    return [name if name in ALONE else name.replace("[", "/").rstrip("]") for name in names]


@pytest.mark.parametrize("queue_us", [None, 10**9])
@pytest.mark.parametrize("problem", [*map(random_problem, range(40)), paper_row("gpt2-1b", "protrain-3090", 64)])
def test_the_model_has_the_rows_and_columns_of_the_checker(problem: LayoutProblem, queue_us: int | None) -> None:
    """Two independent readings of the README are the same numbers; `short` is the model's own, and 0."""
    model = relaxation(instance(problem), byte=1.0, queue_us=queue_us).model
    theirs = LayoutRelaxation(problem, 10**9)
    keys = keys_of(model)
    keys = [key if key in ALONE or "/" in key else f"{key}/0" for key in keys]
    names = [model.row_names[number] for number in range(model.rows)]
    assert len(set(names)) == model.rows > 12 * len(problem.blocks)
    for number, name in enumerate(names):
        row, entries = theirs.rows[name], slice(model.row_start[number], model.row_start[number + 1])
        ours = dict(zip(map(keys.__getitem__, model.row_index[entries]), model.row_value[entries], strict=True))
        ours.pop("short/0", None)
        assert ours == {key: weight for key, weight in row.weights.items() if weight}, name
        limits = (-math.inf if row.lower is None else row.lower, math.inf if row.upper is None else row.upper)
        assert (model.row_lower[number], model.row_upper[number]) == limits, name
    for number, key in enumerate(keys):
        if key != "short/0" and np.isfinite(model.upper[number]):
            assert theirs.columns[key].upper == model.upper[number], key


def test_memory_is_stated_in_larger_units_for_the_engine_alone() -> None:
    problem = paper_row("gpt2-1b", "protrain-3090", 64)
    fine, coarse = relaxation(instance(problem), byte=1.0), relaxation(instance(problem))
    assert coarse.byte < 2**-10
    names = [fine.model.row_names[number] for number in range(fine.model.rows)]
    of_bytes = np.array([name.split("/")[0] in OF_BYTES for name in names])
    assert np.array_equal(fine.model.row_lower[of_bytes] * coarse.byte, coarse.model.row_lower[of_bytes])
    assert np.array_equal(fine.model.row_lower[~of_bytes], coarse.model.row_lower[~of_bytes])


@pytest.mark.parametrize(
    ("hardware", "batch", "end_us", "bound_us"),
    [("protrain-a100", 8, 113_482, 113_482), ("protrain-3090", 64, 3_731_020, 3_723_912)],
)
def test_a_few_leaves_prove_much_of_the_rows_of_table_4(hardware: str, batch: int, end_us: int, bound_us: int) -> None:
    """Sums of alike blocks and chunks are split, not blocks one by one; the plans' ends are those of `exact-layout`."""
    problem = paper_row("gpt2-1b", hardware, batch)
    tree = BoundTree(instance(problem), end_us)
    tree.run(ask, lambda: False)
    assert tree.bound_us == bound_us
    text = json.dumps(tree.certificate())
    assert len(tree.leaves) <= 8 and len(text) < 20_000
    assert add_up_tree(problem, json.loads(text)) == ([], bound_us)


def test_stopped_at_any_moment_it_has_a_certificate() -> None:
    problem = paper_row("gpt2-1b", "protrain-3090", 8)
    bounds = []
    for most in (0, 2, 8):
        tree, asked = BoundTree(instance(problem), 430_013), [0]

        def done(asked: list[int] = asked, most: int = most) -> bool:
            asked[0] += 1
            return asked[0] > most

        tree.run(ask, done)
        assert add_up_tree(problem, tree.certificate()) == ([], tree.bound_us)
        bounds.append(tree.bound_us)
    assert bounds == sorted(bounds)
    assert floor_us(instance(problem)) < bounds[0] < bounds[-1]


def test_an_engine_that_gives_up_leaves_what_was_proved() -> None:
    problem, calls = paper_row("gpt2-1b", "protrain-3090", 8), [0]

    def tired(model: LinearModel, basis: Basis | None) -> Answer:
        calls[0] += 1
        answer = ask(model, basis)
        return answer if calls[0] < 4 else replace(answer, status=Status.UNKNOWN, row_duals=None)

    tree = BoundTree(instance(problem), 430_013)
    tree.run(tired, lambda: False)
    assert calls[0] >= 4
    assert add_up_tree(problem, tree.certificate()) == ([], tree.bound_us)
    nothing = BoundTree(instance(problem), 430_013)
    nothing.run(tired, lambda: False)
    assert (nothing.bound_us, nothing.leaves) == (0, [])


def test_leaves_without_a_decision_prove_all_that_is_asked() -> None:
    """Of a device too small for anything: every leaf's memory costs more than the end that is asked for."""
    problem = msgspec.structs.replace(random_problem(7), device_bytes=3)
    tree = BoundTree(instance(problem), 500)
    tree.run(ask, lambda: False)
    assert tree.bound_us >= 500
    assert add_up_tree(problem, tree.certificate())[1] == 501
    assert all(abs(dual) < 2**62 for leaf in tree.leaves for dual in leaf.duals.values())


def test_the_queue_behind_swap_ins_proves_what_sums_cannot() -> None:
    """Row D of table 4: the tree over sums ends at 3,452,147; this one has passed it after a few splits."""
    problem = generated("layout-gpt2-10b-3090")
    tree, asked = BoundTree(instance(problem), 3_554_303, queue=True), [0]

    def done() -> bool:
        asked[0] += 1
        return asked[0] > 32

    tree.run(ask, done)
    assert tree.bound_us > 3_475_000
    assert add_up_tree(problem, json.loads(json.dumps(tree.certificate()))) == ([], tree.bound_us)
