"""Where the command `bayplan` begins: Ctrl-C ends it with one line, while its modules are still being imported too."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of `bayplan`; the result is the exit code."""
    try:
        from experiments.command_line import bayplan, run

        return run(bayplan, "bayplan", list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        print("bayplan: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
