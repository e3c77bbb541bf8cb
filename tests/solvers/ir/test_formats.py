"""formats.md tells of every field that a file can have, and every number of it that is cited exists."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from solvers.ir import (
    codec,
    graph,
    hardware,
    joint,
    layout,
    partition,
    pipeline,
    recompute,
    replan,
    report,
    requests,
    schedule,
    swap,
)
from solvers.kinds import KINDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "solvers" / "ir" / "formats.md").read_text(encoding="utf-8")
SECTIONS = {title.split(".")[0]: text for title, text in re.findall(r"^## (\d+\..*)\n((?:(?!## ).*\n)*)", PAGE, re.M)}
RECORDS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "2": (codec.PlanFile,),
    "3": (swap.SwapProblem, swap.SwapOp, swap.SwapTensor, swap.SwapLink, swap.SwapPlan, swap.Swap),
    "4": (recompute.RecomputeGraphProblem, recompute.RecomputeOp, recompute.RecomputeGraphPlan),
    "5": (
        recompute.RecomputeLayerProblem,
        recompute.Window,
        recompute.LayerOp,
        recompute.RecomputeLayerPlan,
        recompute.LayerGroup,
    ),
    "6": (partition.PartitionProblem, partition.PartitionPlan),
    "7": (
        replan.ReplanProblem,
        replan.CurrentState,
        replan.CurrentPipeline,
        replan.Hosts,
        replan.ReplanPlan,
        replan.NewPipeline,
        replan.Transfer,
    ),
    "8": (layout.LayoutProblem, layout.LayoutChunk, layout.LayoutBlock, layout.LayoutPlan),
    "9": (graph.OpGraph, graph.Op, graph.Tensor, graph.Launch, requests.StepRequests, requests.HeldRun),
    "10": (hardware.Hardware, hardware.Device, hardware.Link),
    "11": (schedule.Schedule, schedule.Action),
    "12": (report.Report, report.Span),
    "13": (report.Row,),
    "14": (joint.JointProblem, joint.JointOp, joint.JointPlan, joint.JointSwap),
    "15": (pipeline.PipelineProblem, pipeline.PipelineStage, pipeline.PipelinePlan, pipeline.StagePolicies),
}


@pytest.mark.parametrize("section", RECORDS)
def test_every_field_is_told_of(section: str) -> None:
    written = " ".join([*re.findall(r"`([^`]*)`", SECTIONS[section]), *re.findall(r"`([^`]*)`", SECTIONS["2"])])
    words = set(re.findall(r"\w+", written))
    for record in RECORDS[section]:
        missing = [name for name in record.__struct_encode_fields__ if name not in words]
        assert missing == [], f"section {section} of formats.md does not tell of these fields of {record.__name__}"


def test_every_action_is_told_of() -> None:
    written = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", SECTIONS["11"]))))
    assert set(get_args(schedule.Do)) <= written


def test_every_kind_has_a_section() -> None:
    for kind in KINDS:
        assert f". Kind `{kind}`: " in PAGE


def test_every_number_cited_exists() -> None:
    known = set(SECTIONS) | set(re.findall(r"\*\*(\d+\.\d+)\b", PAGE))
    folders = ("solvers", "runtime", "experiments", "csrc", "conf", "tests")
    texts = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    for path in [*texts, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for cited in re.findall(
            r"formats\.md`?\]?(?:\([^)]*\))?,? (?:section )?(\d+(?:\.\d+)?)", path.read_text("utf-8")
        ):
            assert cited in known, f"{path.relative_to(ROOT)} cites formats.md {cited}"
