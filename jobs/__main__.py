"""The entry point of the `lakehouse` command. It imports nothing before it can be interrupted without a stack trace."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from lakehouse.errors import LakehouseError
        from lakehouse.terminal import one_line

        try:
            from jobs.cli import main
        except LakehouseError as error:  # a declaration is wrong
            sys.exit(one_line(f"lakehouse: {error}"))
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
