"""`lakehouse check`: whether the files of tables are as they were written."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.arguments import chosen
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.damage import DamagedError
from pulsar_lakehouse.inspection.file_checks import Checked, check_table
from pulsar_lakehouse.jobs.rebuild import cure
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.stored import table_names


def check_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Such as silver.users. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read all files of tables, and compare them with their checksums and with the log; exit with 78 if one is damaged.

    Each damaged file is told with what heals it. Does not start Spark.
    """
    settings = load_settings()
    pipeline = pipeline_of(settings)
    names = chosen(tables, {name: name for name in table_names(settings)}, lacking="no such table; there are")
    found = list(_checked(settings, names))
    if as_json:
        shapes.show(shapes.Check(tables=[_shape(pipeline, each) for each in found]))
    else:
        _show(pipeline, found)
    if damaged := [fault for each in found for fault in each.faults]:
        of = len({fault.table for fault in damaged})
        raise DamagedError(f"damaged: {len(damaged):,} {_many(len(damaged), 'file')} of {of:,} {_many(of, 'table')}")


def _checked(settings: Settings, names: Iterable[str]) -> Iterator[Checked]:
    columns = SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn(), TimeElapsedColumn()
    with Progress(*columns, console=CONSOLE, disable=not CONSOLE.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        for name in names:
            progress.update(bar, description=f"Checking {name}")
            yield check_table(settings, name, progress=lambda size: progress.advance(bar, size))


def _show(pipeline: Pipeline, found: Iterable[Checked]) -> None:
    rows = []
    for each in found:
        size, damaged = f"{each.bytes / 1e6:,.1f}", f"{len(each.faults):,}"
        rows.append((each.table, f"{each.files:,}", size, f"{each.unsummed:,}", damaged))
        for fault in each.faults:
            report.say(f"✗ {fault.table}: {fault.file} {fault.what}: {cure(pipeline, fault.table)}", "red")
    columns = ("table", "files", "MB", "without checksums", "damaged")
    report.OUT.print(report.grid(columns, rows, numbers=True))


def _shape(pipeline: Pipeline, each: Checked) -> shapes.CheckedTable:
    healed = cure(pipeline, each.table)
    return shapes.CheckedTable(
        table=each.table,
        files=each.files,
        bytes=each.bytes,
        without_checksums=each.unsummed,
        damaged=[shapes.DamagedFile(file=fault.file, problem=fault.what, cure=healed) for fault in each.faults],
    )


def _many(number: int, what: str) -> str:
    return what if number == 1 else f"{what}s"
