"""Where a run of `make gpu` takes place: driver, Python, cores, memory, disk, C library; no name of a host."""

import os
import platform
import shutil
import subprocess
import sys

QUERY = "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max,power.limit,clocks.max.sm"
ASKING_S = 8.0


def driver() -> str:
    """What the driver says of its GPUs, or why it says nothing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "nvidia-smi is not installed: no NVIDIA driver"
    try:
        done = subprocess.run(
            [tool, f"--query-gpu={QUERY}", "--format=csv"], capture_output=True, text=True, timeout=ASKING_S
        )
    except subprocess.TimeoutExpired:
        return f"nvidia-smi gave no answer within {ASKING_S:.0f} s"
    return done.stdout.strip() or f"nvidia-smi ended with {done.returncode}: {done.stderr.strip()}"


def main() -> int:
    """Print it all; never fails."""
    print(driver())
    print(f"Python {sys.version.split()[0]} ({platform.machine()}), {os.cpu_count()} cores, {platform.libc_ver()[1]}")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    print(f"{memory / 2**30:.1f} GiB of memory, {shutil.disk_usage('.').free / 2**30:.1f} GiB of disk free")
    compiler = shutil.which("c++")
    print(f"{'a' if compiler else 'no'} C++ compiler, {'a' if shutil.which('ninja') else 'no'} ninja")
    return 0


if __name__ == "__main__":
    sys.exit(main())
