"""What measured times depend on; nothing that names the machine."""

import os
import platform
from importlib.metadata import version


def machine() -> dict[str, str | int | None]:
    """Processor type, cores, and the versions of Python and torch."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }
