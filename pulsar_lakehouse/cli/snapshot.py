"""`lakehouse snapshot`: name the present versions of all tables, and go back to them."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.jobs import snapshots
from pulsar_lakehouse.jobs.steps import open_lake, open_lake_between_rounds
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of a snapshot.")]


@app.command()
def create(name: Annotated[str, typer.Argument(help="A name for the snapshot, such as before-upgrade.")]) -> None:
    """Note the present versions of all tables. Their files are kept until the snapshot is dropped."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    with open_lake_between_rounds(settings, pipeline.written) as lake:
        made = snapshots.create(lake, pipeline, name)
    report.say(f"{name}: {len(made.tables)} tables, {sum(each.rows for each in made.tables.values()):,} rows")


@app.command("list")
def list_snapshots(as_json: AsJson = False) -> None:
    """Show all snapshots, and the size of files that are kept only for them."""
    settings = load_settings()
    tables = snapshots.restorable(pipeline_of(settings))
    found = [
        shapes.Snapshot(
            snapshot=each.name,
            created_at=each.created_at,
            tables=len(each.tables),
            rows=sum(table.rows for table in each.tables.values()),
            bytes_kept=snapshots.held_bytes(settings, each, tables),
        )
        for each in snapshots.snapshots(settings)
    ]
    if as_json:
        shapes.show(shapes.Snapshots(snapshots=found))
        return
    report.rows(
        ["snapshot", "created", "tables", "rows", "MB kept for it"],
        [
            (each.snapshot, each.created_at, each.tables, f"{each.rows:,}", f"{each.bytes_kept / 1e6:,.1f}")
            for each in found
        ],
    )


@app.command()
def diff(
    name: Name,
    other: Annotated[str, typer.Argument(help="Another snapshot. Default: the tables as they are now.")] = "",
) -> None:
    """Compare the versions and rows of each table in a snapshot with those in another one, or now."""
    report.rows(
        ["table", "versions", "rows", "difference"],
        [
            (
                each.table,
                " → ".join(str(at.version) if at else "none" for at in (each.before, each.after)),
                " → ".join(f"{count:,}" for count in each.rows),
                f"{each.rows[1] - each.rows[0]:+,}",
            )
            for each in snapshots.diff(load_settings(), name, other)
        ],
    )


@app.command()
def restore(name: Name) -> None:
    """Bring silver, gold and waiting facts back to a snapshot; bronze stays. After a crash, run it again.

    The next run reads all of bronze, and does again what came after the snapshot.
    """
    settings = load_settings()
    pipeline = pipeline_of(settings)
    snapshot = snapshots.named(settings, name)
    snapshots.refuse_lost(settings, pipeline, snapshot)  # before Spark starts
    with open_lake(settings, writes=pipeline.written) as lake:
        for line in snapshots.restore(lake, pipeline, snapshot):
            report.say(line)
    report.say("`lakehouse run` does again what came after the snapshot, and `lakehouse refresh` the tables in SQL")


@app.command()
def drop(name: Name) -> None:
    """Forget a snapshot, so that `lakehouse maintain` can remove the files that only it needs."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    snapshots.named(settings, name)
    with open_lake_between_rounds(settings, pipeline.written) as lake:
        snapshots.drop(lake, pipeline, name)
    report.say(f"{name} is dropped")
