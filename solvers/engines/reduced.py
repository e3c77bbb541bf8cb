"""A model without the columns that its limits fix: engines are asked only for what is open."""

from dataclasses import replace

import numpy as np

from solvers.engines.model import BoolArray, LinearModel, Names


def without_fixed(model: LinearModel) -> tuple[LinearModel, BoolArray]:
    """The model in its open columns, those whose limits differ, and which these are.

    What fixed columns add to a row is taken from its limits, what they cost goes into the offset; rows without an open
    column are left out, so a model that such a row makes infeasible must not be given. A solution of the one is, with
    the fixed columns at their limits, one of the other, at the same objective.
    """
    is_open = model.lower != model.upper
    held = ~is_open[model.row_index]
    paid = np.bincount(
        model.entry_rows[held], (model.row_value * model.lower[model.row_index])[held], minlength=model.rows
    )
    kept = np.bincount(model.entry_rows[~held], minlength=model.rows)
    rows = kept > 0
    reduced = replace(
        model,
        cost=model.cost[is_open],
        offset=model.offset + float(model.cost[~is_open] @ model.lower[~is_open]),
        lower=model.lower[is_open],
        upper=model.upper[is_open],
        integer=model.integer[is_open],
        row_start=np.concatenate(([0], np.cumsum(kept[rows]))),
        row_index=(np.cumsum(is_open) - 1)[model.row_index[~held]],
        row_value=model.row_value[~held],
        row_lower=(model.row_lower - paid)[rows],
        row_upper=(model.row_upper - paid)[rows],
        column_names=Names((0,), ("open",), int(is_open.sum())),
        row_names=Names((0,), ("row",), int(rows.sum())),
    )
    return reduced, is_open
