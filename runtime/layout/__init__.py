"""ProTrain executed: chunks of model states travel, blocks keep, swap or checkpoint, and the host updates masters."""

from runtime.layout.report import LayoutReport
from runtime.layout.wrap import report, unwrap, wrap

__all__ = ["LayoutReport", "report", "unwrap", "wrap"]
