"""Settings of a pipeline experiment: every fault is one sentence that names the remedy."""

import pytest

from experiments.pipeline.settings import make_pipeline, make_systems, read_pipeline_settings
from solvers.ir import InvalidInput
from solvers.partition.policies import SYSTEMS, System


def test_the_cluster_gives_the_split() -> None:
    settings = read_pipeline_settings(["experiment=lynx", "cluster=lynx-pcie", "shape=gpt-7b"]).settings
    pipeline = make_pipeline(settings)
    assert (pipeline.parallelism.tensor, pipeline.parallelism.pipeline) == (2, 4)
    assert pipeline.budget_bytes == pipeline.machine.device().memory_bytes


def test_everything_can_be_overridden() -> None:
    words = ["tensor=2", "pipeline=3", "microbatch=4", "microbatches=5", "sequence=512", "memory_gib=1.5"]
    words += [
        "sequence_parallel=true",
        "systems.lynx=heu/dp/cooldown",
        "+systems.mine=heu-mix/bound/all",
        "~systems.full",
    ]
    settings = read_pipeline_settings(["experiment=lynx", *words]).settings
    pipeline, systems = make_pipeline(settings), make_systems(settings)
    cut = pipeline.parallelism
    assert (cut.tensor, cut.pipeline, cut.microbatch, cut.microbatches, cut.sequence_parallel) == (2, 3, 4, 5, True)
    assert pipeline.shape.sequence == 512 and pipeline.budget_bytes == 3 * 2**29
    assert systems["lynx"] == System("heu", "dp", "cooldown")
    assert "full" not in systems
    assert systems["mine"] == System("heu-mix", "bound", "all")


def test_the_shipped_systems_are_the_papers_and_ours() -> None:
    systems = make_systems(read_pipeline_settings(["experiment=lynx"]).settings)
    assert {name: systems[name] for name in SYSTEMS} == SYSTEMS
    assert systems["bayplan"] == System("heu-pair", "bound", "cooldown")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("shape=gpt-7", "there is no shape 'gpt-7': did you mean 'gpt-7b'?"),
        ("cluster=lynx-nvlnk", "there is no hardware 'lynx-nvlnk': did you mean 'lynx-nvlink'?"),
        ("systems.lynx=heu/greedy", "there is no cut of systems.lynx 'greedy': did you mean 'greedy-lynx'?"),
        ("systems.lynx=heuu", "there is no policy of systems.lynx 'heuu': did you mean 'heu'?"),
        ("systems.lynx=heu/dp/cool", "there is no hide of systems.lynx 'cool': did you mean 'cooldown'?"),
        ("systems.lynx=heu/dp/all/x", "systems.lynx is 'heu/dp/all/x': write POLICY/CUT/HIDE, as in heu/dp/cooldown"),
        ("clster=lynx-pcie", "there is no setting 'clster': did you mean 'cluster'?"),
        ("detail=lyn", "there is no system 'lyn': did you mean 'lynx'?"),
        ("microbatch=0", "microbatch is 0, outside 1…65536: choose a value inside"),
        ("memory_gib=nan", "memory_gib is nan, outside 0…1048576: choose a value inside"),
        ("name=a/b", "name is 'a/b', which names no folder: use letters, digits, - and _"),
        ("kind=training", "kind is 'training', but this experiment is of the kind 'pipeline': leave it out"),
        ("tensor=3", "tensor is 3, which does not divide the 40 heads of gpt-13b: choose a divisor"),
        ("microbatch=1,2", "'microbatch=1,2' holds several values: add -m to sweep over them"),
    ],
)
def test_bad_input_is_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        settings = read_pipeline_settings(["experiment=lynx", override]).settings
        make_systems(settings)
        make_pipeline(settings)
    assert str(fault.value) == sentence
