"""The entry point of the `lakehouse` command. It imports modules late, so that Ctrl-C never shows a stack trace."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    os.umask(0o077)  # other users can't read what this process and its children write
    try:
        from pulsar_lakehouse.engine.forked import run_forked

        run_forked()
    except KeyboardInterrupt:
        sys.exit(130)
    run()


def run() -> NoReturn:
    """Run the command in this process, and end it."""
    try:
        from pulsar_lakehouse.errors import LakehouseError
        from pulsar_lakehouse.terminal import one_line

        try:
            from pulsar_lakehouse.cli.commands import main
        except LakehouseError as error:  # such as a wrong declaration
            sys.stderr.write(one_line(f"lakehouse: {error}") + "\n")
            sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
