"""The printed model: what it allows that the semantics do not."""

from msgspec.structs import replace

from solvers.ir import LayerOp, Limits, RecomputeLayerProblem, Window
from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.printed import compare_printed, dependency_violations, printed
from tests.solvers.recompute.layer.brute_force import random_problem
from tests.solvers.recompute.layer.real import SHAPES, costs, stage


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False, needed: bool = True) -> LayerOp:
    return LayerOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm, needed=needed)


CHAIN = RecomputeLayerProblem(
    name="a chain behind a collective",
    layers=1,
    inflight_microbatches=3,
    last_stage=False,
    budget_bytes=14,
    static_bytes=0,
    layer_input_bytes=1,
    windows=(Window(name="w", phase="backward", time_us=5),),
    ops=(op(4, 9, comm=True, needed=False), op(5, 9, 0), op(1, 1, 1, needed=False)),
)
"""Op 1 fits the window, but its input is a communication, which runs on the critical path, later than the window."""


def test_a_child_runs_before_its_parent() -> None:
    """Printed: op 1 in the window, the collective after it (and the paper recomputes it for 4 us all the same).

    Corrected: storing op 1 takes 27 bytes, so both are recomputed on the critical path: 4 + 5 us, 3 + 18 bytes. The
    printed plan needs 3 + 9 + 2·9.
    """
    (row,) = compare_printed([CHAIN], engine="cpsat")
    assert (row.printed_us, row.corrected_us, row.violations, row.unneeded, row.over_bytes) == (4, None, 1, 0, 16)
    (row,) = compare_printed([replace(CHAIN, budget_bytes=21)], engine="cpsat")
    assert row.corrected_us == 9
    assert row.error == (4 - 9) / 9


def test_violations_are_pairs_in_the_wrong_order() -> None:
    policy = Policy(stored=(), recomputed=((1, 0), (2, 0)))
    assert dependency_violations(CHAIN, policy) == 1
    assert dependency_violations(CHAIN, Policy((0,), ((1, 0), (2, 0)))) == 0
    assert dependency_violations(CHAIN, Policy((), ((0, 1), (1, 0), (2, 1)))) == 1


def test_the_products_are_exact() -> None:
    """Equation (3) with the products: every op is stored, or recomputed in exactly one phase."""
    model, stored, hidden = printed(random_problem(7, max_ops=5))
    assert model.integer.all()
    assert hidden.shape[1] == len(stored)


def test_real_layers_show_both_errors() -> None:
    """Too optimistic where children precede parents, too pessimistic where unneeded ops must be recomputed."""
    problems = [stage(costs(*shape), 8, 4, position) for shape in SHAPES[1:4] for position in (0.02, 0.1)]
    rows = compare_printed(problems, limits=Limits(time_s=30))
    assert all(row.violations for row in rows)
    errors = [row.error for row in rows if row.error is not None]
    assert min(errors) < -0.05
    assert max(errors) > 0.05
