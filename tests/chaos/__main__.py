import signal

import typer

from tests.chaos.run import chaos

signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all started processes are ended
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(chaos)
app()
