"""`python -m experiments.temporaries [FILE]`: measures kernels' temporaries and writes the table of rules.

It takes about a minute. One thread, as the tests run: kernels that give each thread a buffer take more with several.
"""

import sys
from pathlib import Path

import torch

from experiments.temporaries.fit import rule_of, without_tried
from experiments.temporaries.measure import measured
from experiments.temporaries.programs import programs
from runtime.device.temporaries import TABLE, write_rules

ABOUT = "What kernels of device sim take of its memory while they run, beside their results; all sizes in bytes."


def main(arguments: list[str]) -> int:
    """Measures, fits, writes; prints how many rules are exact and the farthest residual."""
    place = Path(arguments[0]) if arguments else TABLE
    torch.set_num_threads(1)
    calls = measured(programs())
    rules = {signature: without_tried(signature, rule_of(found)) for signature, found in calls.items()}
    about: dict[str, str | int] = {
        "about": ABOUT,
        "command": "python -m experiments.temporaries",
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    write_rules(place, rules, about)
    off = {signature: rule for signature, rule in rules.items() if rule.farthest_bytes}
    taking = sum(bool(rule.terms) for rule in rules.values())
    print(f"{len(rules)} signatures, {taking} of them take memory, {len(off)} not by an exact rule: {place}")
    for signature, rule in sorted(off.items(), key=lambda item: -item[1].farthest_bytes)[:10]:
        print(f"  {rule.farthest_bytes:>9} bytes off at most, of {rule.calls} calls: {signature}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
