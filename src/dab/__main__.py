"""`python -m dab` is the command `dab`."""

import sys

from dab.cli import main

if __name__ == "__main__":
    sys.exit(main())
