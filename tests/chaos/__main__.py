import typer

from tests.chaos.run import chaos

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(chaos)
app()
