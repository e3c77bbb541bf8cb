"""What each rank did, as a report like any other step's."""

from runtime.device import SimDevice
from solvers.ir.report import Report, Span

COMMUNICATION = "communication"
"""How the lanes of a report begin on which ranks exchange something."""

LANES = {"comm": COMMUNICATION, "host": "host worker"}
"""How lanes begin, by the kind of what is done on them; streams' begin with `stream`."""


def rank_reports(sim: SimDevice, ranks: int) -> list[Report]:
    """A report for each rank, from the trace and the memory of its device: lanes are its streams."""
    spans: list[list[Span]] = [[] for _ in range(ranks)]
    ends = [0] * ranks
    for action, record in enumerate(sim.trace()):
        spans[record.device].append(
            Span(
                action=action,
                lane=f"{LANES.get(record.kind, 'stream')} {record.stream}",
                label=record.name,
                start_us=record.start_ns / 1e3,
                end_us=record.end_ns / 1e3,
            )
        )
        ends[record.device] = max(ends[record.device], record.end_ns)
    return [
        Report(
            name=f"rank {rank}",
            how="executed",
            source=f"device sim:{rank}, hardware {sim.hardware.name}",
            makespan_us=ends[rank] / 1e3,
            peak_bytes=sim.at(rank).memory().peak_bytes,
            spans=tuple(spans[rank]),
        )
        for rank in range(ranks)
    ]
