"""Random graphs, hardware, schedules, reports and rows: documents that hold their form."""

from typing import Literal, get_args

import msgspec
from hypothesis import strategies as st

from solvers.ir import Action, Device, Hardware, Link, Op, OpGraph, Report, Row, Schedule, Span, Tensor
from solvers.ir.graph import Phase, TensorKind
from solvers.ir.schedule import Do
from tests.strategies import names, tensor_ids


@st.composite
def schedules(draw: st.DrawFn, max_actions: int = 6) -> Schedule:
    """Actions of any kind on a few lanes, waiting for earlier ones only."""
    lanes = draw(st.lists(st.sampled_from(["0.compute", "0.out", "0.in", "1.comm", "0.host"]), min_size=1, unique=True))
    ids = draw(st.lists(st.integers(0, 99), max_size=max_actions, unique=True))
    dos: list[Do] = list(get_args(Do))
    optional = st.none() | st.integers(0, 9)
    directions: list[Literal["forward", "backward"]] = ["forward", "backward"]
    actions = tuple(
        Action(
            id=name,
            lane=draw(st.sampled_from(lanes)),
            do=draw(st.sampled_from(dos)),
            op=draw(optional),
            microbatch=draw(optional),
            direction=draw(st.just(msgspec.UNSET) | st.sampled_from(directions)),
            peer=draw(st.just(msgspec.UNSET) | st.integers(0, 9)),
            data=tuple(draw(st.lists(tensor_ids, max_size=2))),
            bytes=draw(st.integers(0, 99)),
            after=tuple(draw(st.lists(st.sampled_from(ids[:number]), max_size=2, unique=True))) if number else (),
        )
        for number, name in enumerate(ids)
    )
    return Schedule(lanes=tuple(lanes), actions=actions)


@st.composite
def graphs(draw: st.DrawFn, max_ops: int = 4, max_tensors: int = 4) -> OpGraph:
    """Any consistent operator graph."""
    count = draw(st.integers(1, max_ops))
    index = st.integers(0, count - 1)
    tensors = tuple(
        Tensor(
            id=name,
            bytes=draw(st.integers(0, 9)),
            born=draw(st.none() | index),
            uses=tuple(sorted(draw(st.lists(index, max_size=3)))),
            saved=draw(st.booleans()),
            kind=draw(st.sampled_from(get_args(TensorKind))),
        )
        for name in draw(st.lists(tensor_ids, max_size=max_tensors, unique=True))
    )
    some = st.lists(st.sampled_from([t.id for t in tensors]), max_size=3).map(tuple) if tensors else st.just(())
    ops = st.builds(
        Op,
        name=names,
        phase=st.sampled_from(get_args(Phase)),
        time_us=st.integers(0, 9),
        inputs=some,
        outputs=some,
        flops=st.none() | st.integers(0, 9),
    )
    return OpGraph(
        name=draw(names),
        ops=tuple(draw(st.lists(ops, min_size=count, max_size=count))),
        tensors=tensors,
        memory_bytes=tuple(draw(st.lists(st.integers(0, 99), min_size=count, max_size=count))),
        source=draw(names),
        layer_of_op=draw(st.none() | st.lists(st.none() | index, min_size=count, max_size=count).map(tuple)),
    )


@st.composite
def hardwares(draw: st.DrawFn) -> Hardware:
    """One to three devices with links of every duplex."""
    listed = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    rates = st.integers(1, 10**12)
    devices = tuple(
        Device(
            name=name,
            memory_bytes=draw(st.integers(0, 10**12)),
            flops_per_s=draw(st.dictionaries(names, rates, max_size=2)),
            bytes_per_s=draw(rates),
            launch_us=draw(st.floats(0, 100)),
            efficiency=draw(st.dictionaries(names, st.floats(0.01, 1), max_size=2)),
        )
        for name in listed
    )
    ends = st.sampled_from([*listed, "host"])
    duplexes: list[Literal["full", "half", "simplex"]] = ["full", "half", "simplex"]
    link = st.builds(
        Link, a=ends, b=ends, bytes_per_s=rates, latency_us=st.floats(0, 9), duplex=st.sampled_from(duplexes)
    )
    return Hardware(
        name=draw(names), devices=devices, links=tuple(draw(st.lists(link, max_size=2))), source=draw(names)
    )


moments = st.floats(0, 1e6)
reports: st.SearchStrategy[Report] = st.builds(
    Report,
    name=names,
    how=st.sampled_from(["simulated", "executed"]),
    source=names,
    makespan_us=moments,
    peak_bytes=st.integers(0, 99),
    stall_us=st.dictionaries(names, moments, max_size=2),
    spans=st.lists(
        st.builds(Span, action=st.integers(0, 9), lane=st.just("0.in"), label=names, start_us=moments, end_us=moments),
        max_size=2,
    ).map(tuple),
    memory=st.lists(st.tuples(moments, st.integers(0, 99)), max_size=2).map(tuple),
)
"""Reports that hold their form (their numbers need not agree with each other)."""

rows: st.SearchStrategy[Row] = st.builds(
    Row,
    experiment=names,
    asked=st.dictionaries(names, st.none() | st.integers() | names, max_size=2),
    outcome=st.sampled_from(["ok", "infeasible", "out-of-memory", "timeout", "error"]),
    figures=st.dictionaries(names, moments, max_size=2),
    provenance=names,
    commit=st.none() | names,
    seed=st.integers(0, 99),
    reason=st.none() | names,
)
"""Any row."""
