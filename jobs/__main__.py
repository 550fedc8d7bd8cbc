"""The entry point of the `lakehouse` command. It imports nothing before it can be interrupted without a stack trace."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from jobs.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
