"""`python -m pellucid`, and `pellucid`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Ctrl-C while it is imported, in the first half second, also ends in one word."""
    try:
        from pellucid.cli import main as command_line
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":  # the processes that a training starts import this file too
    main()
