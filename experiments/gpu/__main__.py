"""The command behind `make gpu`."""

import sys

from experiments.gpu.driver import main

if __name__ == "__main__":
    sys.exit(main())
