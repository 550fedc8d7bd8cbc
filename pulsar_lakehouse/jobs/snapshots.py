"""Snapshots: named sets of table versions, to which silver, gold and the waiting facts can go back.

What can't be made again stays as it is: bronze, which the broker may not have any more, and what people decided. A
restore leaves streams without checkpoints, so the next run reads all of bronze, and does again what came afterwards.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import obstore
from obstore.store import ObjectStore
from pydantic import TypeAdapter

from pulsar_lakehouse.bronze.erasures import ERASURES
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.writes import remove
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.session_settings import session_settings
from pulsar_lakehouse.storage import folder, put
from pulsar_lakehouse.tables.declared import EACH_TABLE, USER_METADATA
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import existing_tables, is_stored, stored_table

FOLDER = ".snapshots"
"""Beside the tables, so that maintenance from every home that shares them knows what to keep."""

LOG_RETENTION, FOR_EVER = "delta.logRetentionDuration", "interval 1000 weeks"
"""While there are snapshots, the logs of restorable tables are kept: a version can't be read without its log."""


@dataclass(frozen=True, kw_only=True)
class Version:
    id: str
    """Delta's id of the table. A table that was made again has another one."""
    version: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    name: str
    created_at: datetime
    tables: Mapping[str, Version]


def restorable(pipeline: Pipeline) -> list[str]:
    """The tables that a restore changes, in its order: state, quarantine, gold.

    So a fact whose tables are restored only in part is in two of them, or in none although it is in bronze. The next
    run corrects either.
    """
    states = []
    for each in pipeline.entities:
        states += [each.history.name, each.table.name] if each.keeps_history else [each.table.name]
    quarantine = [table.name for each in pipeline.enrichments for table in (each.duplicates, each.waiting)]
    return [*states, *quarantine, *(each.gold_table for each in pipeline.enrichments)]


def create(lake: Lake, pipeline: Pipeline, name: str) -> Snapshot:
    """Note the present version of each table under this name. This process must hold the leases of all streams.

    Raises ConfigurationError for a name that is taken, or that is none, and if there are no tables.
    """
    if not re.fullmatch(r"[\w-][\w.-]*", name):
        raise ConfigurationError(f"{name}: must be a name of letters, digits, dots, dashes and underscores")
    _keep_logs(lake, pipeline, FOR_EVER)
    made = Snapshot(name=name, created_at=datetime.now(UTC), tables=present(lake.settings))
    if not made.tables:
        raise ConfigurationError(f"{lake.settings.warehouse_root} has no tables yet: `lakehouse run` creates them")
    add(lake.settings, made)
    return made


def add(settings: Settings, snapshot: Snapshot) -> None:
    """Add a snapshot to those of all homes with these tables. Raises ConfigurationError if its name is taken."""
    content = TypeAdapter(Snapshot).dump_json(snapshot, indent=2)
    try:
        put(settings, settings.warehouse_root, _path(snapshot.name), content, replace=False)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{snapshot.name}: there is a snapshot of this name: drop it, or choose another"
        ) from error


def drop(lake: Lake, pipeline: Pipeline, name: str) -> None:
    """Forget a snapshot. `lakehouse maintain` then removes files that only it needed."""
    snapshot = named(lake.settings, name)
    if snapshots(lake.settings) == [snapshot]:
        _keep_logs(lake, pipeline, EACH_TABLE[LOG_RETENTION])
    obstore.delete(_warehouse(lake.settings), _path(name))


def _keep_logs(lake: Lake, pipeline: Pipeline, how_long: str) -> None:
    for table in map(lake.table, restorable(pipeline)):
        if table.exists():
            table.set_properties({LOG_RETENTION: how_long})


def snapshots(settings: Settings) -> list[Snapshot]:
    """All snapshots, oldest first."""
    store, kept = _warehouse(settings), []
    for path in [file["path"] for batch in obstore.list(store, FOLDER) for file in batch]:
        with suppress(FileNotFoundError):  # dropped meanwhile
            kept.append(TypeAdapter(Snapshot).validate_json(bytes(obstore.get(store, path).bytes())))
    return sorted(kept, key=lambda each: each.created_at)


def named(settings: Settings, name: str) -> Snapshot:
    """The snapshot of this name. Raises ConfigurationError if there is none."""
    kept = {each.name: each for each in snapshots(settings)}
    if name not in kept:
        raise ConfigurationError(f"{name}: no such snapshot; there are {', '.join(kept) or 'none'}")
    return kept[name]


def present(settings: Settings) -> dict[str, Version]:
    """The present version of each table."""
    return {
        name: Version(id=str(table.metadata().id), version=table.version(), rows=table.count())
        for name, table in existing_tables(settings)
    }


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A table in a snapshot and afterwards; None where there was none."""

    table: str
    before: Version | None
    after: Version | None

    @property
    def rows(self) -> tuple[int, int]:
        before, after = (each.rows if each else 0 for each in (self.before, self.after))
        return before, after


def diff(settings: Settings, name: str, other: str = "") -> list[Difference]:
    """Each table in a snapshot, and in another one or, without its name, now."""
    before = named(settings, name).tables
    after = named(settings, other).tables if other else present(settings)
    return [
        Difference(table=table, before=before.get(table), after=after.get(table)) for table in sorted({*before, *after})
    ]


def held_versions(settings: Settings, name: str) -> list[int]:
    """The versions of a table that snapshots need, so that no file of them may be removed."""
    kept = (each.tables.get(name) for each in snapshots(settings))
    return sorted({each.version for each in kept if each and _is_same(settings, name, each)})


def refuse_lost(settings: Settings, pipeline: Pipeline, snapshot: Snapshot) -> None:
    """Raises ConfigurationError if a table can't go back to its version in the snapshot, or must not."""
    if is_stored(settings, ERASURES.name):
        [(erased_at,)] = query(settings, f'SELECT max("at") FROM {ERASURES.name}').fetchall()
        if erased_at is not None and erased_at > snapshot.created_at:
            raise ConfigurationError(f"{snapshot.name}: it has data that was erased since: drop it")
    for name in restorable(pipeline):
        if (kept := snapshot.tables.get(name)) is None:
            continue
        if not _is_same(settings, name, kept):
            raise ConfigurationError(
                f"{snapshot.name}: {name} was made again since, as by `lakehouse rebuild`: it can't go back"
            )
        there = {file["path"] for files in obstore.list(folder(settings, settings.table_path(name))) for file in files}
        if gone := sorted(_sizes(settings, name, kept.version).keys() - there):
            raise ConfigurationError(f"{snapshot.name}: {name} can't go back: {gone[0]} is gone")


def restore(lake: Lake, pipeline: Pipeline, snapshot: Snapshot) -> Iterator[str]:
    """Bring tables back to a snapshot; yields a line for each. This process must hold the leases of all streams.

    A crash leaves tables that the next run, or another restore, makes whole: checkpoints go first, so that no stream
    takes for done what its tables may lack.
    """
    refuse_lost(lake.settings, pipeline, snapshot)
    forget_checkpoints(lake, pipeline)
    because = {USER_METADATA: f"a restore of {snapshot.name}"}
    for name in restorable(pipeline):
        if kept := snapshot.tables.get(name):
            with session_settings(lake.spark, because):
                go_back(lake, name, kept.version)
            yield f"{name}: as in version {kept.version}, {kept.rows:,} rows"
    with session_settings(lake.spark, because):
        for facts in pipeline.enrichments:
            keep_discarded(lake, facts)
        judge_again(lake)


def forget_checkpoints(lake: Lake, pipeline: Pipeline) -> None:
    for stream in (
        *(each.gold_table for each in pipeline.enrichments),
        *(each.table.name for each in pipeline.entities),
    ):
        lake.files.delete(lake.settings.checkpoint_path(stream))


def go_back(lake: Lake, name: str, version: int) -> None:
    """In a new commit, so that readers of the change feed see it too."""
    if lake.table(name).version != version:
        lake.table(name).delta.restoreToVersion(version)


def keep_discarded(lake: Lake, facts: Enrichment) -> None:
    """Remove facts that were discarded since the snapshot from where they were then."""
    if all(lake.table(name).exists() for name in facts.places):
        discarded = lake.table(facts.discarded.name).read().select("position")
        remove(lake, [facts.gold_table, facts.waiting.name], discarded)


def judge_again(lake: Lake) -> None:
    """Empty the malformed messages: all are read again, and today's contracts may accept some of them."""
    if lake.table(MALFORMED.name).exists():
        lake.table(MALFORMED.name).delta.delete()


def _is_same(settings: Settings, name: str, kept: Version) -> bool:
    """Whether the table is there, and was not made again."""
    return is_stored(settings, name) and str(stored_table(settings, name).metadata().id) == kept.id


def _warehouse(settings: Settings) -> ObjectStore:
    return folder(settings, settings.warehouse_root)


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def held_bytes(settings: Settings, snapshot: Snapshot, tables: Iterable[str]) -> int:
    """The bytes of files that the snapshot needs, but the present tables don't."""
    size = 0
    for name in tables:
        if (kept := snapshot.tables.get(name)) and _is_same(settings, name, kept):
            then, now = _sizes(settings, name, kept.version), _sizes(settings, name)
            size += sum(then[file] for file in then.keys() - now.keys())
    return size


def _sizes(settings: Settings, name: str, version: int | None = None) -> dict[str, int]:
    """The sizes in bytes of the files of a version, by path; by default, of the present one."""
    table = stored_table(settings, name)
    if version is not None:
        table.load_as_version(version)
    files = table.get_add_actions()
    return dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))
