"""What a profile by shapes alone cannot know of kernels' temporaries, in words of its source."""

from collections import Counter
from collections.abc import Iterator

import torch

from runtime.device import shapes_only
from runtime.device.setup import CURRENT
from runtime.device.temporaries import about_rules
from solvers.ir.graph import NOT_MEASURED, OTHER_KERNELS


def doubtful_temporaries(device: torch.device) -> Counter[str]:
    """Calls so far by operator whose temporaries no exact rule and no measurement gave; none where there are bytes."""
    return CURRENT[-1].doubtful_temporaries() if shapes_only(device) else Counter()


def temporaries_remarks(device: torch.device, before: Counter[str]) -> Iterator[str]:
    """What was estimated since `before`, and where this process's kernels are others than those of the table."""
    if not shapes_only(device):
        return
    since = doubtful_temporaries(device) - before
    if since:
        yield f"{NOT_MEASURED}: {since.total()} calls ({', '.join(sorted(since))}), so that memory is an estimate there"
    about = about_rules()
    table = f"{about['threads']} thread, {about['cpu_capability']}"
    here = f"{torch.get_num_threads()} thread, {torch.backends.cpu.get_cpu_capability()}"
    if here != table:
        yield f"{OTHER_KERNELS} on {table}, and this process has {here.replace(' thread', ' threads')}"
