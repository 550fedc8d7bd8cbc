import signal

import typer

from tests.chaos.run import chaos

signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(chaos)
app()
