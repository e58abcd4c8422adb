"""``python -m kbert`` is the command ``kbert``."""

import sys

from kbert.cli import main

if __name__ == "__main__":
    sys.exit(main())
