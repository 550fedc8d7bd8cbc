"""The steps of the pipeline, in their order. Each catches up with what the previous ones have written.

1. land: topics to bronze (`landing`)
2. merge: changelogs to silver (`merging`)
3. enrich: facts to gold (`enriching`)
4. reconcile: compare what landed with what the tables hold (`reconcile_all`)
5. validate: evaluate the rules of the tables (`expectations.validation`)
6. refresh: bring the tables declared in SQL up to date (`delivery.refreshing`)
7. publish: gold to its topics (`delivery.publishing`); a table declared in SQL is published by its refresh
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_lakehouse.bronze.accepted_losses import accept_losses
from pulsar_lakehouse.bronze.compaction import with_compacted
from pulsar_lakehouse.bronze.erasures import with_erasures
from pulsar_lakehouse.bronze.kinds import reconcile_kinds
from pulsar_lakehouse.bronze.landing import bronze_table, has_landed, land
from pulsar_lakehouse.bronze.losses import LOSSES
from pulsar_lakehouse.bronze.partitions import ask_broker, held_by
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.bronze.schemas import keep_schemas, kept_schemas, with_schemas
from pulsar_lakehouse.bronze.small_backlogs import land_small_backlog
from pulsar_lakehouse.bronze.sources import SourceLanding, with_snapshot
from pulsar_lakehouse.bronze.warehouse_claims import claim_subscription
from pulsar_lakehouse.contracts.decoding import MALFORMED, Decoding
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.sources import Source
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, Enrichment
from pulsar_lakehouse.gold.enrichment.enrich import create_tables as create_gold
from pulsar_lakehouse.gold.enrichment.enrich import enrich
from pulsar_lakehouse.gold.enrichment.matches import now
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.gold.enrichment.succession import Succession
from pulsar_lakehouse.jobs.lineage import flows
from pulsar_lakehouse.jobs.lineage.backend import close_backend
from pulsar_lakehouse.jobs.lineage.runs import prepare
from pulsar_lakehouse.jobs.new_data import Look, is_little, new_snapshot
from pulsar_lakehouse.jobs.overdue import expire, overdue
from pulsar_lakehouse.jobs.questions import facts_that_ask, question, unanswered
from pulsar_lakehouse.jobs.streams import Outcome, Stream, catch_up, failures_noted, raise_all
from pulsar_lakehouse.leases.holders import Kind
from pulsar_lakehouse.leases.leases import Lease, lease_between_rounds, write_lease
from pulsar_lakehouse.local.broker import endpoint, healthy_endpoint
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import CONSOLE, spinner
from pulsar_lakehouse.pulsar.topic_names import topics_in_pulsar
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import create_tables as create_silver
from pulsar_lakehouse.silver.merge import merge
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.spark.parallel import side_by_side
from pulsar_lakehouse.spark.session import for_short_run, start_spark
from pulsar_lakehouse.tables.lake import Lake

Declared = TypeVar("Declared", Entity, Enrichment)
Making = TypeVar("Making", bound=Callable[..., list[Stream]])


@contextmanager
def open_lake(
    settings: Settings,
    *,
    writes: Sequence[str],
    lands: Sequence[Topic] = (),
    command: str = "",
    kind: Kind = "step",
) -> Iterator[Lake]:
    """The lake in a Spark session that holds the leases of `writes`. Raises BusyError if another process has one.

    `command` is what that process would see as the holder; by default, the command line.
    """
    lease = write_lease(settings, writes, command=command, kind=kind)
    with lease as held, open_lake_with(settings, held, lands=lands) as lake:
        yield lake


@contextmanager
def open_lake_between_rounds(settings: Settings, tables: Sequence[str], *, kind: Kind = "step") -> Iterator[Lake]:
    """Like `open_lake`, but also while `lakehouse run --every` has the tables: its next round waits for the end.

    For commands that no step may write beside.
    """
    with lease_between_rounds(settings, tables, kind=kind) as lease, open_lake_with(settings, lease) as lake:
        yield lake


@contextmanager
def open_lake_with(settings: Settings, lease: Lease, *, lands: Sequence[Topic] = ()) -> Iterator[Lake]:
    """The lake in a Spark session that holds the lease as long as its JVM lasts.

    Spark starts for a short run if tables and the backlogs of the topics that it `lands` are small.
    """
    prepare()
    is_short = lease.kind != "rounds" and is_little(settings, lands)
    with spinner("Starting Spark"):
        own = for_short_run(settings) if is_short else settings
        spark = start_spark(own, inherited=lease.files, may_borrow=lease.kind != "rounds")
    try:
        yield Lake(spark, settings)
    finally:
        close_backend()


def require(lake: Lake, tables: Iterable[str], *, made_by: str) -> None:
    """Raises LakehouseError for the first table that is not there yet."""
    for table in tables:
        if not lake.table(table).exists():
            raise LakehouseError(f"{table} is not there yet: run `lakehouse {made_by}` first")


def landing(lake: Lake, topics: Sequence[Topic], *, accept_loss: bool = False, take_over: bool = False) -> list[Stream]:
    """Streams that land topics. With `accept_loss`, lost messages are recorded first, so that landing can continue.

    With `take_over`, subscriptions that serve another warehouse serve this one from now on. Raises PermanentError if
    there is such a one without it.
    """
    if not topics:
        return []
    with failures_noted(lake.settings, [f"land {topic.name}" for topic in topics]):
        broker = healthy_endpoint(lake.settings)
        reaches = [Reach(lake.settings, topic, broker, take_over) for topic in topics]
        for topic in topics:
            if not topic.is_several:  # each of which its reach claims
                claim_subscription(topic, broker, lake.settings, take_over=take_over)
        for topic in topics if accept_loss else ():
            for loss in accept_losses(lake, topic, broker):
                CONSOLE.say(f"{loss}: accepted, see {LOSSES.name}")
        for topic in topics:
            try:
                there = topics_in_pulsar(topic, broker, lake.settings)
            except BrokerError as error:  # which is the trouble of the topic's own stream
                CONSOLE.say(f"{topic.name}: {error}")
                continue
            for one in there:
                keep_schemas(lake, one, broker)  # at first, as others can merge before all has landed
    return [
        Stream(
            f"land {topic.name}",
            partial(land, lake, reach),
            flows.landed(topic),
            partial(has_landed, lake, reach),
            at_once=partial(land_small_backlog, lake, reach),
            blame=reach.blame,
            left_out=reach.told,
        )
        for topic, reach in zip(topics, reaches, strict=True)
    ]


def landing_sources(
    lake: Lake, entities: Sequence[Entity], *, always: bool = False, accept_deletes: bool = False
) -> list[Stream]:
    """Streams that land sources: those of which a snapshot is due or, with `always`, all.

    With `accept_deletes`, a snapshot may lack any number of rows.
    """
    return [
        Stream(
            f"land {entity.name}",
            None,
            flows.landed(entity.topic, entity.origins),
            at_once=SourceLanding(lake, entity.source, entity.source_keys, always, accept_deletes),
        )
        for entity in entities
        if isinstance(entity.source, Source)
    ]


def landing_services(
    lake: Lake, pipeline: Pipeline, entities: Sequence[Entity], *, again: bool = False
) -> list[Stream]:
    """Streams that ask services what facts wait for, and land their answers.

    With `again`, they are asked again where an answer was malformed.
    """
    if not entities:
        return []
    from pulsar_lakehouse.bronze.services import ServiceLanding  # takes 0.1 s

    return [
        Stream(
            f"land {entity.name}",
            None,
            flows.landed(entity.topic, entity.origins),
            at_once=ServiceLanding(
                lake, entity.source, partial(unanswered, lake.settings, pipeline, entity, again=again)
            ),
        )
        for entity in entities
        if isinstance(entity.source, Service)
    ]


def merging(lake: Lake, entities: Sequence[Entity]) -> list[Stream]:
    return [
        Stream(
            f"merge {entity.name}",
            partial(_merge, lake, entity),
            flows.merged(entity),
            kept_for=partial(kept_schemas, lake.settings, entity.topic),
        )
        for entity in entities
    ]


def enriching(lake: Lake, enrichments: Sequence[Enrichment]) -> list[Stream]:
    successions = [Succession() for _ in enrichments]
    return [
        Stream(
            f"enrich {facts.topic.name}",
            partial(_enrich, lake, facts, succession),
            flows.enriched(facts),
            succession.caught_up,
            kept_for=partial(kept_schemas, lake.settings, facts.topic),
            prepare=partial(expire, lake.settings, facts),
        )
        for facts, succession in zip(enrichments, successions, strict=True)
    ]


def _merge(lake: Lake, entity: Entity) -> DataStreamWriter:
    return merge(lake, as_written(lake, entity))


def _enrich(lake: Lake, facts: Enrichment, succession: Succession) -> DataStreamWriter:
    return enrich(lake, as_written(lake, facts), succession)


def as_written(lake: Lake, declared: Declared) -> Declared:
    """The declaration, with the schemas that its topic's messages were written with, and all kinds of these.

    The messages of a source have neither.
    """
    if isinstance(declared, Entity) and declared.source is not None:
        return declared
    topic = with_schemas(lake.settings, declared.topic)
    if topic.where:
        topic = replace(topic, kinds=pipeline_of(lake.settings).kinds_of(topic.bronze_table) or topic.kinds)
    return replace(declared, topic=topic)


def _as_counted(lake: Lake, facts: Enrichment) -> Enrichment:
    """The facts as their messages are counted: those of kinds, and with many rows, are decoded for it."""
    return facts if facts.topic.is_plain else as_written(lake, facts)


def reconcile_all(lake: Lake) -> list[Reconciliation]:
    """Compare what landed with what the tables hold, topic by topic."""
    pipeline = pipeline_of(lake.settings)
    reconciliations: list[Callable[[], Reconciliation]] = [
        *(partial(reconcile_entity, lake, as_written(lake, entity)) for entity in pipeline.entities),
        *(partial(reconcile_facts, lake, _as_counted(lake, each)) for each in pipeline.enrichments),
    ]
    with spinner("Comparing what landed with what the tables hold"):
        done = side_by_side(reconciliations)
        whole = [(topic, each) for topic, each in zip(pipeline.landed, done, strict=True) if not topic.where]
        whole += [(topic, reconcile_kinds(lake, topic, decodings(lake, topic))) for topic in pipeline.with_kinds]
        counted = [each for topic, each in zip(pipeline.landed, done, strict=True) if topic.where]
        counted += [with_erasures(lake, topic, with_compacted(lake, topic, each)) for topic, each in whole]
    sources = {each.name: each.source for each in pipeline.sources if isinstance(each.source, Source)}
    return [with_snapshot(lake, source, each) if (source := sources.get(each.topic)) else each for each in counted]


def decodings(lake: Lake, topic: Topic) -> list[Decoding]:
    """How the kinds of a topic are decoded."""
    pipeline = pipeline_of(lake.settings)
    found = [as_written(lake, each).decoding for each in pipeline.entities]
    found += [as_written(lake, each).decoding for each in pipeline.enrichments]
    return [each for each in found if each.topic.bronze_table == topic.bronze_table]


def run_all(lake: Lake, *, refused: list[ConfigurationError] | None = None) -> Iterator[Outcome]:
    """Land, merge and enrich what is new; yields the outcome of each stream when its step is done.

    Then services are asked for what the facts wait for, until there is nothing to ask or no answer comes.
    `refused` is as in `run_landed`.
    """
    pipeline = pipeline_of(lake.settings)
    asks = landing_services(lake, pipeline, pipeline.services)
    services = {entity.name: stream for entity, stream in zip(pipeline.services, asks, strict=True)}
    lands = [*landing(lake, pipeline.topics), *landing_sources(lake, pipeline.sources), *services.values()]
    yield from catch_up(lake.settings, lands)
    yield from run_landed(lake, refused=refused)
    yield from ask_services(lake, pipeline, services)


def ask_services(lake: Lake, pipeline: Pipeline, services: Mapping[str, Stream]) -> Iterator[Outcome]:
    """Ask services for what facts wait for, merge the answers and enrich the facts, as often as answers come.

    `services` are the streams that ask, by the name of the entity. Tables that can't follow their declaration are left
    as they are: the steps before have told why.
    """
    entities = [each for each in pipeline.services if each.name in services]
    while asked := [each for each in entities if question(lake.settings, pipeline, each)]:
        done = catch_up(lake.settings, [services[each.name] for each in asked])
        yield from done
        landed = {outcome.name for outcome in done if outcome.rows}
        answered = [each for each in asked if services[each.name].name in landed]
        if not answered:
            return
        yield from catch_up(lake.settings, merging(lake, answered), refused=[])
        facts = {each.topic.name: each for entity in answered for each in facts_that_ask(pipeline, entity)}
        yield from catch_up(lake.settings, enriching(lake, [*facts.values()]), refused=[])


def run_landed(lake: Lake, *, refused: list[ConfigurationError] | None = None) -> Iterator[Outcome]:
    """Merge and enrich what has landed, as `run_all` does.

    Tables that can't follow their declaration are left as they are. Why is added to `refused`; without it,
    ConfigurationError says so at the end.
    """
    pipeline, errors = pipeline_of(lake.settings), list[ConfigurationError]() if refused is None else refused
    yield from catch_up(lake.settings, merging(lake, pipeline.entities), refused=errors)
    yield from catch_up(lake.settings, enriching(lake, pipeline.enrichments), refused=errors)
    if refused is None:
        raise_all(errors)


def steps_of_state(lake: Lake) -> list[list[Stream]]:
    """The streams that land and merge changelogs, step by step, but for those of topics that have facts, too."""
    pipeline = pipeline_of(lake.settings)
    with_facts = _tables_of_facts(pipeline)
    topics = [topic for topic in pipeline.topics if topic.bronze_table not in with_facts]
    entities = [entity for entity in pipeline.entities if entity.topic.bronze_table not in with_facts]
    lands = [*landing(lake, topics), *landing_sources(lake, pipeline.sources)]
    lands += landing_services(lake, pipeline, pipeline.services)
    return [lands, merging(lake, entities)]


def steps_of_facts(lake: Lake) -> list[list[Stream]]:
    """The streams that land and enrich facts, step by step. Changelogs of the same topics are merged in between."""
    pipeline = pipeline_of(lake.settings)
    with_facts = _tables_of_facts(pipeline)
    topics = [topic for topic in pipeline.topics if topic.bronze_table in with_facts]
    entities = [entity for entity in pipeline.entities if entity.topic.bronze_table in with_facts]
    return [landing(lake, topics), merging(lake, entities), enriching(lake, pipeline.enrichments)]


def _tables_of_facts(pipeline: Pipeline) -> set[str]:
    """The bronze tables in which facts land. A topic with kinds may have changelogs, too, and lands once."""
    return {facts.topic.bronze_table for facts in pipeline.enrichments}


def look_around(lake: Lake) -> Look:
    """The state of topics and tables: while it stays equal, no step has anything new to read."""
    pipeline = pipeline_of(lake.settings)
    broker = endpoint(lake.settings)
    partitions = {
        f"topic {partition}": (ledgers.last, ledgers.created, ledgers.cursor(topic.subscription) is None)
        for topic in pipeline.topics
        for partition, ledgers in held_by(ask_broker(lake.settings, broker, topic)).items()
    }
    sources = {f"source {each.name}": new_snapshot(lake.settings, each) for each in pipeline.sources}
    ended = {f"intervals of {topic}": now() for topic in overdue(lake.settings, pipeline.enrichments)}
    return partitions | sources | ended | lake.versions((*pipeline.written, ACTIONS.name, BACKFILLS.name))


def create_tables(lake: Lake) -> None:
    """Create the tables of silver, gold and quarantine, empty, as their streams would. Existing ones do not change."""
    pipeline = pipeline_of(lake.settings)
    for entity in pipeline.entities:
        create_silver(lake, entity)
    for enrichment in pipeline.enrichments:
        create_gold(lake, enrichment)


def declared_columns(pipeline: Pipeline) -> dict[str, str]:
    """Columns, as DDL, of the tables that SQL files can read, whether they exist yet or not. Needs a Spark session."""
    tables = [*(bronze_table(topic) for topic in pipeline.landed), MALFORMED, BACKFILLS]
    tables += [table for entity in pipeline.entities for table in (entity.table, entity.history)]
    for enrichment in pipeline.enrichments:
        states = {each.name: each.entity.table.schema for each in enrichment.joins}
        tables += [enrichment.gold(states), enrichment.waiting, enrichment.duplicates, enrichment.discarded]
    return {table.name: table.ddl for table in tables}
