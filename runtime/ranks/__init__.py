"""Several devices as one torch.distributed program: ranks as threads of this process, or as processes (README.md)."""

from runtime.ranks.meeting import Mismatch
from runtime.ranks.processes import join, leave, rank_device, rank_report
from runtime.ranks.threads import RankRun, Stuck, run_ranks
from runtime.ranks.turns import Deadlock

__all__ = ["Deadlock", "Mismatch", "RankRun", "Stuck", "join", "leave", "rank_device", "rank_report", "run_ranks"]
