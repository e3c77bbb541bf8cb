"""What rows and titles say of an experiment."""

from pathlib import Path

from experiments.cluster.settings import read_cluster_settings
from experiments.cluster.words import about, provenance


def test_lives_are_told_by_their_number_length_and_failures() -> None:
    settings = read_cluster_settings(["experiment=ft_32", "seeds=7", "hours=1.5", "rate_per_h=0.05"]).settings
    assert about(settings) == f"{settings.shape} on 8 pipelines of 4, 7 times 1.5 h, 5 % an hour"
    assert provenance(settings) == (
        f"simulated, times by roofline of {settings.shape} on hardware {settings.cluster}, "
        f"{settings.gb_per_s:g} GB/s between nodes; nothing was executed"
    )


def test_plans_are_told_by_what_is_lost_and_a_trace_by_its_name(tmp_path: Path) -> None:
    plans = read_cluster_settings(["experiment=ft_scale", "grid=4x2", "lost=3"]).settings
    assert about(plans) == f"{plans.shape} on 4 pipelines of 2, 3 lost"
    trace = tmp_path / "spring.csv"
    trace.touch()
    told = read_cluster_settings(["experiment=ft_32", f"trace={trace}"]).settings
    assert about(told) == f"{told.shape} on 8 pipelines of 4, trace spring.csv"
