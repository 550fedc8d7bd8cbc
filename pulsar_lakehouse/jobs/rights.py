"""Who may read what of a project: its columns with personal data, and the readers that follow from the settings."""

from collections import defaultdict
from collections.abc import Iterable

from pulsar_lakehouse.access import EACH, Personal, Reader, is_within, sql_users
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.expectations.results import RESULTS
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS, SqlTable
from pulsar_lakehouse.jobs.lineage.flows import Names, column_names
from pulsar_lakehouse.jobs.lineage.origins import is_unfollowed, origins_in_select
from pulsar_lakehouse.pipeline.checks import OWN_TABLES
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import LAYERS, table_names

IN_BRONZE = ("key", "payload", "properties")
IN_MALFORMED = ("key", "payload", "reason")
"""The columns with messages as they came. A reason quotes what is wrong with them."""


def sql_users_of(settings: Settings) -> dict[str, Reader]:
    """The users of the SQL endpoint. Raises ConfigurationError for wrong grants."""
    pipeline = pipeline_of(settings)
    personal, declared, stored = personal_columns(pipeline), declared_tables(pipeline), [*table_names(settings)]
    return sql_users(settings, personal, declared, layers=LAYERS, stored=stored)


def declared_tables(pipeline: Pipeline) -> set[str]:
    silver = {name for each in pipeline.entities for name in (each.table.name, each.history.name)}
    gold = {name for each in pipeline.enrichments for name in (*each.places, each.shadow)}
    others = {each.name for each in (MALFORMED, SQL_ROWS, ACTIONS, RESULTS)} | {*OWN_TABLES}
    in_sql = {each.name for each in pipeline.sql_tables}
    return {each.bronze_table for each in pipeline.bronze} | silver | gold | in_sql | others


def personal_columns(pipeline: Pipeline) -> Personal:
    """By table: the columns with personal data, as declared, and all that are made from them."""
    found: dict[str, set[str]] = defaultdict(set)
    for entity in pipeline.entities:
        for table in (entity.table, entity.history):
            found[table.name].update(entity.personal)
        if entity.personal:
            _add_messages(found, entity.topic)
    for facts in pipeline.enrichments:
        for name in facts.places:
            found[name].update(facts.personal)
        found[facts.gold_table].update(_joined(facts))
        sides = ("before", "after")
        found[facts.shadow] = {f"{side}.{path}" for side in sides for path in found[facts.gold_table]}
        if facts.personal:
            _add_messages(found, facts.topic)
    names = column_names(pipeline) if any(found.values()) else {}
    for in_sql in pipeline.sql_tables:
        if any(found.get(source) for source in in_sql.sources):
            found[in_sql.name].update(_selected(in_sql, names, found))
            found[SQL_ROWS.name].update(("keys", "reason"))
    return {name: tuple(sorted(columns)) for name, columns in found.items() if columns}


def _add_messages(found: dict[str, set[str]], topic: Topic) -> None:
    found[topic.bronze_table].update(IN_BRONZE)
    found[MALFORMED.name].update(IN_MALFORMED)


def _joined(facts: Enrichment) -> Iterable[str]:
    for join in facts.joins:
        if isinstance(join, Match) and join.each == "all":
            yield from [join.name] if join.entity.personal else []
        else:
            yield from (f"{join.name}.{name}" for name in join.entity.personal)


def _selected(table: SqlTable, names: Names, found: dict[str, set[str]]) -> Iterable[str]:
    """The columns of a SELECT that use personal data; all of them if it can't be followed."""
    origins = origins_in_select(table, names)
    if not origins or EACH in origins:
        return [EACH]
    return [
        name
        for name, origin in origins.items()
        if is_unfollowed(origin)
        or any(
            (column == EACH and found.get(source)) or is_within(found.get(source, ()), column)
            for source, column in origin.columns
        )
    ]
