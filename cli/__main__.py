"""The entry point of the `lakehouse` command. It imports nothing before it can be interrupted without a stack trace."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    os.umask(0o077)  # what is written, also by what this starts, is for this user alone
    try:
        from lakehouse.errors import LakehouseError
        from lakehouse.handover import take
        from lakehouse.terminal import one_line

        try:
            take()
            from cli.commands import main
        except LakehouseError as error:  # such as a declaration that is wrong
            sys.stderr.write(one_line(f"lakehouse: {error}") + "\n")
            sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    del sys.path[0]  # this folder, as of any script: its modules are not to be taken for packages of the same name
    main()
