"""Erase a person: the messages, and all that was made from them in any table, topic or Postgres.

The positions of the messages are recorded first, in `bronze.erasures`. Each step after that only removes what these
positions name, or can be repeated. So whatever an erasure is killed in, the next one completes it.
"""

import getpass
import hashlib
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pulsar_lakehouse import disk
from pulsar_lakehouse.bronze.erasures import DONE, ERASURE, ERASURES, PARTS, REQUESTED, erased_messages, unfinished
from pulsar_lakehouse.bronze.losses import LOSSES
from pulsar_lakehouse.bronze.schemas import SCHEMAS, WRITER_SCHEMAS
from pulsar_lakehouse.contracts.decoding import MALFORMED, positions
from pulsar_lakehouse.contracts.malformed import is_same_row, position_in
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.expectations.results import RESULTS
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, Enrichment
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.stages import enrich_messages
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS
from pulsar_lakehouse.gold.sql.refresh import FAILED, REFRESHES
from pulsar_lakehouse.jobs.delivery import publishing, refreshing
from pulsar_lakehouse.jobs.maintenance import rewriting
from pulsar_lakehouse.jobs.person import Keys, keys_of, messages_of, unreadable_among
from pulsar_lakehouse.jobs.snapshots import drop, snapshots
from pulsar_lakehouse.jobs.steps import as_written, enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.progress import CONSOLE, spinner
from pulsar_lakehouse.pulsar.topic_admin import request_compaction
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import merge_batch
from pulsar_lakehouse.spark.frames import cached, frame_of
from pulsar_lakehouse.spark.session_settings import session_settings
from pulsar_lakehouse.storage import has_tables
from pulsar_lakehouse.tables.declared import KEEP, USER_METADATA
from pulsar_lakehouse.tables.direct import append_values, write_checksums
from pulsar_lakehouse.tables.lake import APPEND_ONLY, Lake
from pulsar_lakehouse.tables.old_files import remove_old_files, remove_old_log
from pulsar_lakehouse.tables.stored import stored_table, table_names

EXAMPLES = r"(?s), such as .*"
"""In the results of validations: the example of a failing row."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the tables hold of a person."""

    keys: Keys
    messages: DataFrame
    """Rows of `message`, a `bronze.erasures.ERASED`, in memory."""
    tables: Mapping[str, int]
    """By table: the rows made from the messages."""
    unreadable: int
    """Malformed messages that can be anybody's."""
    snapshots: Sequence[str]
    """Those that would be dropped, as all are."""


@dataclass(frozen=True)
class Place:
    """A table that has rows made from the messages of a topic."""

    bronze: str
    table: str
    same: str
    """SQL over `held`, a row of the table, and `gone`, a message."""


def places_of(pipeline: Pipeline) -> Iterator[Place]:
    """Bronze comes first: what has left it can't come back by a stream."""
    at_position = _same("held.position", PARTS)
    for topic in pipeline.bronze:
        yield Place(topic.bronze_table, topic.bronze_table, _same("held", PARTS))
    for topic in pipeline.landed:
        for table in (MALFORMED, ACTIONS):
            yield Place(topic.bronze_table, table.name, f"held.topic = '{topic.name}' AND {at_position}")
    for entity in pipeline.entities:
        for table in (entity.table, *([entity.history] if entity.keeps_history else [])):
            # A ledger is in one partition.
            yield Place(entity.topic.bronze_table, table.name, _same("held.sequence", PARTS[1:]))
    for each in pipeline.enrichments:
        for name in each.places:
            yield Place(each.topic.bronze_table, name, at_position)
        for match in each.matches:  # its facts are placed again, without the erased partner
            yield Place(match.entity.topic.bronze_table, each.gold_table, _has_partner(match))


def _existing(lake: Lake, pipeline: Pipeline) -> Iterator[Place]:
    """The places that are there. `quarantine.actions` is made when somebody first asks for something."""
    return (place for place in places_of(pipeline) if lake.table(place.table).exists())


def _has_partner(match: Match) -> str:
    """SQL over a row of gold: whether a message made one of its partners."""
    is_one = _same(f"held.`{match.name}`.sequence", PARTS[1:])
    is_any = f"exists(held.`{match.name}`, each -> {_same('each.sequence', PARTS[1:])})"
    return is_one if match.each == "first" else is_any


def _same(held: str, parts: tuple[str, ...]) -> str:
    return " AND ".join(f"{held}.{part} = gone.{part}" for part in parts)


def find(lake: Lake, pipeline: Pipeline, entity: Entity, key: str) -> Found:
    """What was made from the messages of a person. Messages that have not been merged or enriched yet count, too."""
    keys = keys_of(lake, pipeline, entity, key)
    messages = frame_of(lake.spark, messages_of(lake, pipeline, keys).toArrow())
    tables = Counter[str]()
    for place in _existing(lake, pipeline):
        gone = messages.select("message.*").where(F.col("bronze") == place.bronze)
        tables[place.table] += _rows_among(lake, place.table, F.broadcast(gone), place.same).count()
    return Found(
        keys=keys,
        messages=messages,
        tables={name: rows for name, rows in tables.items() if rows},
        unreadable=unreadable_among(lake, pipeline, keys),
        snapshots=[each.name for each in snapshots(lake.settings)],
    )


def _rows_among(lake: Lake, name: str, gone: DataFrame, same: str) -> DataFrame:
    """The rows of a table that are the `same` as one of `gone`."""
    return lake.table(name).read().alias("held").join(gone.alias("gone"), on=F.expr(same), how="left_semi")


def forget(lake: Lake, pipeline: Pipeline, entity: Entity, key: str, *, now: bool) -> list[Path]:
    """Erase a person, after any erasures that were not completed; returns the certificates.

    With `now`, files and logs of older versions are removed at once. This process must hold all leases.
    """
    certificates = []
    CONSOLE.say("First, what has landed is merged and enriched")
    bring_up_to_date(lake, pipeline)
    if lake.table(ERASURES.name).exists():
        delete_erased(lake, pipeline)  # what has come back, as from a backup
        certificates += [complete(lake, pipeline, request) for request in unfinished(lake)]
    found = find(lake, pipeline, entity, key)
    if found.tables:
        remove_requests(lake, found.keys)
        request = record(lake, found, subject=f"{entity.name}:{key}", now=now)
        certificates.append(complete(lake, pipeline, request))
    return certificates


def remove_requests(lake: Lake, keys: Keys) -> None:
    """Remove the requests for backfills that name one of the keys. Without facts, there are none."""
    if not lake.table(BACKFILLS.name).exists():
        return
    named = [(entity, key) for entity, of_entity in keys.items() for key in of_entity]
    gone = lake.spark.createDataFrame(named, "entity STRING, key STRING")
    _delete(lake, BACKFILLS.name, gone, "held.entity = gone.entity AND held.key = gone.key")


def record(lake: Lake, found: Found, *, subject: str, now: bool) -> str:
    """Record what is to be erased, in one commit; returns the request's id."""
    request = str(uuid.uuid4())
    lake.create(ERASURES)
    row = found.messages.agg(F.collect_list("message").alias("messages")).select(
        F.lit(request).alias("request"),
        F.lit(REQUESTED).alias("event"),
        F.lit(hashlib.sha256(f"{request}:{subject}".encode()).hexdigest()).alias("subject"),
        "messages",
        F.lit(json.dumps(dict(found.tables))).alias("tables"),
        F.lit(found.unreadable).cast("bigint").alias("unreadable"),
        F.lit(now).alias("is_now"),
        F.current_timestamp().alias("at"),
        F.lit(getpass.getuser()).alias("requested_by"),
    )
    lake.table(ERASURES.name).append(row.withColumn("tables", F.from_json("tables", "MAP<STRING, BIGINT>")))
    return request


def complete(lake: Lake, pipeline: Pipeline, request: str) -> Path:
    """Do what a request still lacks, and write its certificate; returns the path of that.

    Raises LakehouseError if a topic of its messages is not declared any more.
    """
    events = lake.table(ERASURES.name).read().where(F.col("request") == request)
    [asked] = events.where(F.col("event") == REQUESTED).collect()
    topics = {message.bronze for message in asked.messages}
    if undeclared := topics - {topic.bronze_table for topic in pipeline.landed}:
        raise LakehouseError(f"{min(undeclared)}: messages of it are to be erased: declare its topic again")
    tables = _holding(lake, pipeline, topics)
    delete_erased(lake, pipeline)
    for each in pipeline.enrichments:
        if not topics.isdisjoint((each.topic.bronze_table, *(one.entity.topic.bronze_table for one in each.matches))):
            lake.table(each.shadow).remove()
            decide_again(lake, each)
    remove_examples(lake)
    for snapshot in snapshots(lake.settings):
        drop(lake, pipeline, snapshot.name)
        CONSOLE.say(f"Dropped the snapshot {snapshot.name}: to restore it would bring the person back")
    CONSOLE.say("What was made from the erased rows is recomputed")
    bring_up_to_date(lake, pipeline)
    seal(lake, tables, request)
    # When a stream starts, it plans its last batch again: that has to begin after the commits that erased rows.
    CONSOLE.say("The streams pass the commits that erased rows")
    bring_up_to_date(lake, pipeline)
    compacted = compact_topics(lake, pipeline)
    if asked.is_now:
        purge_versions(lake.settings, tables)
    path = write_certificate(lake.settings, pipeline, asked, compacted)
    append_values(lake.settings, ERASURES.name, [{"request": request, "event": DONE, "at": datetime.now(UTC)}])
    return path


def delete_erased(lake: Lake, pipeline: Pipeline) -> None:
    """Delete all that was made from messages that were erased, or are to be erased.

    With the rows of a message go those of other keys: silver gets the state of these from the messages that are left.
    """
    with spinner("Erasing"), cached(erased_messages(lake)) as gone:
        for place in _existing(lake, pipeline):
            _delete(lake, place.table, gone.where(F.col("bronze") == place.bronze), place.same)
        touched = {row.bronze for row in gone.select("bronze").distinct().collect()}
        for entity in pipeline.entities:
            if entity.topic.rows and entity.topic.bronze_table in touched:
                left = lake.table(entity.topic.bronze_table).pin().rows
                merge_batch(lake, as_written(lake, entity), left)


def _holding(lake: Lake, pipeline: Pipeline, topics: set[str]) -> list[str]:
    """The tables that can hold something made from messages of these topics, if they exist."""
    names = [place.table for place in places_of(pipeline) if place.bronze in topics]
    names += [*(table.name for table in pipeline.sql_tables), SQL_ROWS.name, BACKFILLS.name, RESULTS.name]
    return [name for name in dict.fromkeys(names) if lake.table(name).exists()]


def _delete(lake: Lake, name: str, gone: DataFrame, same: str) -> None:
    """Delete the rows that are the `same` as one of `gone`. Its values are not in the commit, as a predicate's are."""
    if _rows_among(lake, name, gone, same).isEmpty():
        return
    _allow_changes(lake, name)
    with session_settings(lake.spark, {USER_METADATA: ERASURE}):
        lake.table(name).delta.alias("held").merge(gone.alias("gone"), same).whenMatchedDelete().execute()


def _allow_changes(lake: Lake, name: str) -> None:
    """Let rows of an append-only table be changed, until it is sealed."""
    if lake.table(name).delta_property(APPEND_ONLY) == "true":
        lake.table(name).set_properties({APPEND_ONLY: "false"})


def decide_again(lake: Lake, enrichment: Enrichment) -> None:
    """Place the facts that repeat an erased one: the first of them is no duplicate any more.

    Tables are pinned: what is cached of them would otherwise change while the facts are placed.
    """
    bronze = lake.table(enrichment.topic.bronze_table).pin().rows
    enrichment = as_written(lake, enrichment)
    landed = bronze.transform(positions, decoding=enrichment.decoding)
    duplicates = lake.table(enrichment.duplicates.name).pin().rows
    first = landed.select(F.col("position").alias("duplicate_of"))
    orphans = duplicates.join(first, on="duplicate_of", how="left_anti").select("position")
    _delete(lake, enrichment.duplicates.name, orphans, "held.position = gone.position")
    malformed = lake.table(MALFORMED.name).pin().rows.where(F.col("topic") == enrichment.topic.name)
    placed = malformed.select(position_in(enrichment.topic))
    for name in enrichment.places:
        placed = placed.union(lake.table(name).pin().rows.select("position"))
    placed = placed.withColumnRenamed("position", "_placed")
    is_placed = is_same_row(F.col("position"), F.col("_placed"), enrichment.topic)
    left = landed.join(placed, on=is_placed, how="left_anti").select("position.*")
    with cached(bronze.join(left, on=list(PARTS), how="left_semi")) as messages:
        if not messages.isEmpty():
            enrich_messages(lake, enrichment, messages)


def remove_examples(lake: Lake) -> None:
    """Remove all examples of failing rows from the results of validations, and the report."""
    shutil.rmtree(lake.settings.report.parent, ignore_errors=True)
    results, has_example = lake.table(RESULTS.name), F.col("observed").contains(", such as ")
    if results.exists() and not results.read().where(has_example).isEmpty():
        _allow_changes(lake, RESULTS.name)
        results.delta.update(has_example, {"observed": F.regexp_replace("observed", EXAMPLES, "")})


def bring_up_to_date(lake: Lake, pipeline: Pipeline) -> None:
    """Let everything that is made from other tables follow these: silver, gold, SQL tables, topics and Postgres."""
    catch_up(lake.settings, merging(lake, pipeline.entities))
    catch_up(lake.settings, enriching(lake, pipeline.enrichments))
    made = [table for table in pipeline.sql_tables if lake.table(table.name).exists()]
    for done in refreshing(lake, made):
        if done.kind == FAILED:
            raise LakehouseError(f"{done.table}: {done.reason}: it may hold what is to be erased, so correct it first")
    if published := [each for topic, each in pipeline.published.items() if _is_published(lake, topic)]:
        catch_up(lake.settings, publishing(lake, published))


def _is_published(lake: Lake, topic: str) -> bool:
    return lake.files.exists(lake.settings.checkpoint_path(f"published.{topic}"))


def compact_topics(lake: Lake, pipeline: Pipeline) -> list[str]:
    """Ask the broker to compact the topics to which gold was published; returns their names."""
    topics = [topic for topic in pipeline.published_topics if _is_published(lake, topic)]
    for topic in topics:
        request_compaction(topic, endpoint(lake.settings), lake.settings)
    return topics


def seal(lake: Lake, tables: list[str], request: str) -> None:
    """End the log of each table with a commit and a checkpoint that have nothing of the rows that were erased."""
    for name in tables:
        is_open = lake.table(name).delta_property(APPEND_ONLY) == "false"
        lake.table(name).set_properties({APPEND_ONLY: "true"} if is_open else {"lakehouse.erasure": request})
        table = stored_table(lake.settings, name)
        table.create_checkpoint()
        write_checksums(table)


def purge_versions(settings: Settings, tables: list[str]) -> None:
    """Remove the files and the logs of all older versions of the tables."""
    with rewriting(settings):  # others must not be about to commit a file
        for name in tables:
            remove_old_files(settings, name, keep=timedelta())
            remove_old_log(settings, name, keep=timedelta())


def write_certificate(settings: Settings, pipeline: Pipeline, asked: Row, compacted: list[str]) -> Path:
    """Write what was erased, and what remains to be done where, as JSON; returns the path."""
    now = datetime.now(UTC)
    topics = sorted({message.topic for message in asked.messages})
    removed = now if asked.is_now else now + KEEP
    certificate = {
        "request": asked.request,
        "subject": f"sha256 of {asked.request}:<entity>:<key> = {asked.subject}",
        "requested_at": asked["at"].astimezone(UTC).isoformat(timespec="seconds"),
        "requested_by": asked.requested_by,
        "completed_at": now.isoformat(timespec="seconds"),
        "messages": len(asked.messages),
        "rows": dict(sorted(asked.tables.items())),
        "recomputed": [table.name for table in pipeline.sql_tables],
        "postgres": [str(table.postgres) for table in pipeline.sql_tables if table.postgres],
        "compacted_topics": compacted,
        "older_versions": {
            "leave_at": removed.isoformat(timespec="seconds"),
            "by": "this command" if asked.is_now else "the first `lakehouse maintain` after that",
        },
        "unreadable_messages": asked.unreadable,
        "beyond": list(_beyond(settings, pipeline, topics, compacted)),
    }
    path = settings.home / "erasures" / f"{asked.request}.json"
    disk.write(path, f"{json.dumps(certificate, indent=2)}\n".encode())
    return path


def _beyond(settings: Settings, pipeline: Pipeline, topics: list[str], compacted: list[str]) -> Iterator[str]:
    """What an erasure does not reach, and what to do there."""
    for topic in topics:
        shown = f"`pulsar-admin topics get-retention {topic}`; set-retention shortens it"
        yield f"{topic} keeps the messages as long as its retention says: {shown}"
    for topic in compacted:
        yield f"the topic {topic} keeps what was published, for readers that don't read it compacted: see its retention"
    for topic in sorted(set(pipeline.published_topics) - set(compacted)):
        yield f"the topic {topic} has no checkpoint here, so it was not reached: delete it if it has messages"
    for table in sorted(set(table_names(settings)) - _known(pipeline)):
        yield f"{table} is not declared, so it was not searched: delete its folder, if nobody needs it"
    if has_tables(settings):
        yield "the object store keeps older versions of objects if the bucket has versioning: let them expire"
    if any(table.postgres for table in pipeline.sql_tables):
        yield "Postgres: rows of old transactions until VACUUM, its log, and its backups"
    yield (
        "logs, and the reasons of failures, can quote values: empty `<home>/logs`, `<home>/records` and "
        "`<home>/lineage`, Airflow's logs, and what a backend of OpenLineage has"
    )
    yield f"notes that people wrote about others, in {ACTIONS.name} and {BACKFILLS.name}, can mention the person"
    yield "copies: backups of the tables, and what readers have stored elsewhere"


def _known(pipeline: Pipeline) -> set[str]:
    """The tables that an erasure reaches, and those that have nothing of any person."""
    reached = {place.table for place in places_of(pipeline)} | {table.name for table in pipeline.sql_tables}
    own = {each.name for each in (ACTIONS, BACKFILLS, ERASURES, LOSSES, REFRESHES, RESULTS, SQL_ROWS)}
    own |= {SCHEMAS.name, WRITER_SCHEMAS.name}
    return reached | own | {each.shadow for each in pipeline.enrichments}
