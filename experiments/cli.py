"""Where the command `bayplan` begins: Ctrl-C ends it with one line, while its modules are still being imported too."""

import os
import sys
from collections.abc import Sequence

COMPLETE = "_BAYPLAN_COMPLETE"
"""What a shell sets when it asks for completions."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of `bayplan`; the result is the exit code."""
    if "TORCHELASTIC_RUN_ID" in os.environ or "RANK" in os.environ:
        # A rank of torchrun's: what PyTorch's sockets tell with stack traces, Bayplan tells in a sentence.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    try:
        from experiments.command_line import bayplan, run

        if COMPLETE in os.environ and argv is None:
            from experiments.commands.completion import complete

            return complete(bayplan, os.environ[COMPLETE])
        return run(bayplan, "bayplan", list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        print("bayplan: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
