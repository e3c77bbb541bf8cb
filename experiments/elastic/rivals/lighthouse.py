"""torchft's lighthouse in a process of its own, as it says much: `… FOLDER REPLICAS SILENT_MS`."""

import sys
import time
from pathlib import Path

from torchft.coordination import LighthouseServer

ADDRESS = "lighthouse"


def main(folder: Path, replicas: int, silent_ms: int) -> None:
    """Writes its address into the folder, and serves until it is ended.

    All but one replica are enough for a quorum, others are waited for while their hearts beat.
    """
    server = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=max(1, replicas - 1), join_timeout_ms=silent_ms, quorum_tick_ms=50,
        heartbeat_timeout_ms=silent_ms,
    )  # fmt: skip
    whole = folder / f".{ADDRESS}"
    whole.write_text(server.address())
    whole.replace(folder / ADDRESS)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
