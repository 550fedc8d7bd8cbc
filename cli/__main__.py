"""The entry point of the `lakehouse` command. It imports modules late, so that Ctrl-C never shows a stack trace."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    os.umask(0o077)  # other users can't read what this process and its children write
    try:
        from lakehouse.errors import LakehouseError
        from lakehouse.handover import take
        from lakehouse.terminal import one_line

        try:
            take()
            from cli.commands import main
        except LakehouseError as error:  # such as a wrong declaration
            sys.stderr.write(one_line(f"lakehouse: {error}") + "\n")
            sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    del sys.path[0]  # this folder: else cli/airflow.py would be imported instead of the package airflow
    main()
