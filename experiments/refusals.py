"""Programs that are started by `python -m`: bad input becomes one line of stderr and exit code 2, as in `bayplan`."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps

from solvers.ir.errors import InvalidInput

Main = Callable[..., int]
"""Words of a command line, or None for this process's own, to an exit code."""


def refusing(main: Main) -> Main:
    """The same program, which says what it refuses (an input, or a place the system does not let it use)."""

    @wraps(main)
    def told(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except InvalidInput as error:
            sentence = str(error)
        except OSError as error:
            sentence = f"the system refused ({error}): choose another place"
        print(" ".join(sentence.split()), file=sys.stderr)
        return 2

    return told
