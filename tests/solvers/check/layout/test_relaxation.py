"""The relaxation of `layout`: every decision's own run is a point of it, which is what certificates rest on."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.layout.judge import judge_layout
from solvers.check.layout.relaxation import LayoutRelaxation
from solvers.ir import LayoutBlock, LayoutChunk, LayoutPlan, LayoutProblem
from solvers.ir.layout import Policy
from tests.solvers.check.layout.runs import row_keys, values_of_run
from tests.solvers.layout.brute_force import decisions, random_problem
from tests.strategies import layout_plans, layout_problems


class Judge:
    """The rows of a problem, and which of them a decision's run breaks."""

    def __init__(self, problem: LayoutProblem) -> None:
        self.problem, self.relaxation = problem, LayoutRelaxation(problem, 10**6)
        found = {key: self.relaxation.rows.get(key) for key in row_keys(problem)}
        self.rows = {key: row for key, row in found.items() if row is not None}
        assert len(self.rows) > 15 * len(problem.blocks)

    def broken(self, plan: LayoutPlan) -> list[str]:
        """Rows and columns, with their limits."""
        values, found = values_of_run(self.problem, plan), []
        for key, row in self.rows.items():
            total = sum(weight * values[column] for column, weight in row.weights.items())
            if (row.lower is not None and total < row.lower) or (row.upper is not None and total > row.upper):
                found.append(f"{key}: {row.lower} ≤ {total} ≤ {row.upper}")
        for key, value in values.items():
            column = self.relaxation.columns[key]
            most = values["finish"] if column.upper == 10**6 else column.upper
            found += [] if 0 <= value <= most else [f"{key} is {value} of {most}"]
        return found


def test_every_decision_of_tiny_problems_is_a_point() -> None:
    judged = 0
    for seed in range(150):
        problem = random_problem(seed)
        judge = Judge(problem)
        for plan in list(decisions(problem))[seed % 13 :: 13]:
            if judge_layout(problem, plan).clean:
                assert judge.broken(plan) == [], (seed, plan)
                judged += 1
    assert judged > 700


@settings(max_examples=100)
@given(st.data(), layout_problems(max_blocks=7, max_chunks=6))
def test_decisions_of_longer_problems_are_points(data: st.DataObject, problem: LayoutProblem) -> None:
    plan = data.draw(layout_plans(problem))
    if judge_layout(problem, plan).clean:
        assert Judge(problem).broken(plan) == []


def _chain(chance: random.Random) -> LayoutProblem:
    """Blocks whose swap-outs outlast forwards, of even or uneven times; nothing else takes any but a first load."""
    interval = chance.choice((1, 2, 2, 3))
    chunk = LayoutChunk(
        trainable=False,
        load_us=chance.choice((0, 40)),
        gather_us=0,
        reduce_us=0,
        offload_us=0,
        cpu_update_us=0,
        allreduce_us=0,
        device_update_us=0,
        persistent_bytes=0,
        host_bytes=1,
    )
    blocks = tuple(
        LayoutBlock(
            name="block",
            forward_us=chance.choice((10, 10, 10, 0, 3, 5, 20)),
            backward_us=1,
            activation_bytes=10,
            input_bytes=1,
            forward_transient_bytes=0,
            backward_transient_bytes=0,
            chunks=(0,),
            swap_out_us=chance.choice((15, 15, 15, 5, 10, 20, 30, 50)),
            swap_in_us=1,
        )
        for _ in range(interval + chance.randint(3, 8))
    )
    return LayoutProblem(
        name="chain",
        device_bytes=1000,
        host_bytes=1000,
        ranks=1,
        fixed_bytes=0,
        chunk_bytes=1,
        interval=interval,
        overlap_update=True,
        chunks=(chunk,),
        blocks=blocks,
    )


def test_swapped_neighbours_hold_forwards_up_no_longer_than_rows_say() -> None:
    """Many rows are met with nothing to spare by runs that pairs hold up."""
    chance, met = random.Random(0), 0
    for _ in range(400):
        problem = _chain(chance)
        relaxation = LayoutRelaxation(problem, 10**6)
        keys = [f"awaited/{k}" for k in range(len(problem.blocks))]
        rows = [row for row in map(relaxation.rows.get, keys) if row is not None]
        for _ in range(5):
            policies: tuple[Policy, ...] = tuple(chance.choice(("swap", "swap", "keep")) for _ in problem.blocks)
            values = values_of_run(problem, LayoutPlan(persistent=(), buffers=1, policies=policies))
            spare = [sum(weight * values[key] for key, weight in row.weights.items()) for row in rows]
            assert min(spare) >= 0, (problem, policies)
            held_up = [values[f"queued/{k}"] > values[f"end/{k}"] + forwards(problem, k) for k in range(len(rows))]
            met += sum(up and not left for up, left in zip(held_up, spare, strict=True))
    assert met > 100


def forwards(problem: LayoutProblem, k: int) -> int:
    """The forwards behind block k up to the one that awaits its swap-out."""
    return sum(block.forward_us for block in problem.blocks[k + 1 : k + 2 + problem.interval])


def test_rows_and_columns_that_are_not_there() -> None:
    problem = random_problem(3)
    relaxation = LayoutRelaxation(problem, 1000)
    blocks, chunks = len(problem.blocks), len(problem.chunks)
    rows = (
        "compute/0/0",
        f"compute/{2 * blocks}/1",
        "out/0/1",
        "reduce/0/1",
        f"found/{chunks}",
        "peak/0/2",
        "room",
        "",
    )
    columns = (f"end/{2 * blocks}", f"swap/{blocks}", "finish/0", "end", f"persistent/{chunks}")
    assert [key for key in rows if relaxation.rows.get(key) is not None] == []
    assert [key for key in columns if relaxation.columns.get(key) is not None] == []
