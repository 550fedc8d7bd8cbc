"""`lakehouse audit`: who did what, and when."""

from dataclasses import dataclass
from typing import Annotated

import typer

from pulsar_lakehouse.audit import Entry, entries
from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.terminal import one_line


@dataclass(frozen=True, kw_only=True)
class Audit:
    entries: list[Entry]


def audit_command(
    last: Annotated[int, typer.Option(min=1, help="So many of the newest entries.")] = 50,
    unmasked: Annotated[bool, typer.Option("--unmasked", help="Only of those who could see personal data.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show who erased, released, discarded, retried, rebuilt and restored what, and who ran which SQL."""
    found = [each for each in entries(load_settings()) if each.unmasked or not unmasked][-last:]
    if as_json:
        shapes.show(Audit(entries=found))
        return
    if not found:
        report.say("There is no entry yet")
    for each in found:
        report.say(one_line(f"{each.at}  {each.who}{'  (unmasked)' if each.unmasked else ''}  {each.did}"))
