"""What can be wrong with declarations, as far as it can be known without Spark."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

from pulsar_lakehouse.contracts.checks import Mode
from pulsar_lakehouse.contracts.functions import wrong_calls
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.sources import Source
from pulsar_lakehouse.contracts.topics import Topic, in_full, is_by_message, table_name
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.expectations.gold import enriched
from pulsar_lakehouse.expectations.silver import latest
from pulsar_lakehouse.expectations.sql_tables import declared
from pulsar_lakehouse.expectations.suites import Suite
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.header import CHECK, INCREMENTAL, PUBLISH
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.functions import Function, calls_in
from pulsar_lakehouse.tables.declared import NAME

IN_PULSAR = re.compile(r"(persistent://[^/,\s]+/[^/,\s]+/)?[^/,\s]([^/,]*[^/,\s])?")
"""A topic's own name. Slashes part the names in a full one; the Pulsar source takes several with commas between."""
PATTERN = re.compile(r"(persistent://[\w=:.-]+/[\w=:.-]+/)?[^/]+", re.ASCII)
"""A pattern of such names. Only what follows the last slash is one, as the broker lists the topics of one namespace."""
Place = Callable[[object], str]
"""Tells where a declaration is."""
Claims = list[tuple[str, object, str, str]]
"""Names, the declarations that claim them, where they do, and as what, such as `topic`."""
KINDS = {"publish_to": "topic", "publish: topic": "topic", "publish: postgres": "table in Postgres"}
"""What is published to, by how it is declared."""
DAYS = ("dedup_days", "retry_days", "correction_days")


def mistakes_of(declaration: Entity | Enrichment | Function) -> Iterator[str]:
    """What is wrong with one declaration, whatever else there is: a line for each mistake."""
    if isinstance(declaration, Function):
        return  # it would not have been made
    source = declaration.source if isinstance(declaration, Entity) else None
    yield from _topic(declaration.topic) if source is None else _source(source)
    for name in declaration.columns:
        if not NAME.fullmatch(name):
            yield f"columns: {name}: must be a name of lower-case letters, digits and _, after a letter"
    yield from _entity(declaration) if isinstance(declaration, Entity) else _enrichment(declaration)


OWN_TABLES = (
    "bronze.erasures",
    "bronze.losses",
    "bronze.schemas",
    "bronze.writer_schemas",
    "gold.backfills",
    "gold.refreshes",
)
"""Tables in the layers of declared ones that each lakehouse has."""


def mistakes_together(pipeline: Pipeline, place: Place) -> Iterator[str]:
    """What is wrong with declarations because of others: a line for each mistake."""
    yield from _twice(pipeline, place)
    known = ", ".join(entity.name for entity in pipeline.entities) or "none"
    for enrichment in pipeline.enrichments:
        for join in enrichment.joins:
            if join.entity not in pipeline.entities:
                line = f"{join.entity.name} is at the top level of no file; there are {known}"
                yield f"{place(enrichment)}: {join.kind} {join.name}: {line}"
    for table in pipeline.sql_tables:
        yield from (f"{place(table)}: {line}" for line in _suite(declared, table))
    if pipeline.functions:
        yield from _wrong_calls(pipeline, place)


def topics_twice(pipeline: Pipeline, place: Place, namespace: str = "") -> Iterator[str]:
    """The declarations whose topic another one has, too, if the pipeline has this namespace: a line for each.

    The names within it are compared with full ones only if it is known.
    """
    home = f"persistent://{namespace}/"
    of_topics: tuple[Entity | Enrichment, ...] = (*_changelogs(pipeline), *pipeline.enrichments)
    of_kinds: dict[str, object] = {}  # kinds of one topic share it
    topics: Claims = []
    for each in of_topics:
        names = () if isinstance(each.topic.topic, re.Pattern) else each.topic.own_names
        for name in (in_full(name, namespace) for name in names):
            topics.append((name, of_kinds.setdefault(name, each) if each.topic.where else each, place(each), "topic"))
    topics += [
        (f"{home}{facts.publish_to}", facts, place(facts), "publish_to")
        for facts in pipeline.enrichments
        if facts.publish_to
    ]
    topics += [
        (f"{home}{table.topic}", table, table.at_entry(PUBLISH), "publish: topic")
        for table in pipeline.sql_tables
        if table.topic
    ]
    yield from _claimed_twice([(name.removeprefix(home), of, at, what) for name, of, at, what in topics])
    for each in of_topics:
        if isinstance(each.topic.topic, re.Pattern):
            for name, _, at, what in (claim for claim in topics if each.topic.lands(claim[0], namespace)):
                matched = f"matches {name.removeprefix(home)}, the {KINDS.get(what, what)} of {at}: choose another"
                yield f"{place(each)}: topic {each.topic.own_name}: {matched}"
    for first, each in combinations((each for each in of_topics if isinstance(each.topic.topic, re.Pattern)), 2):
        if _overlap(first.topic, each.topic, namespace):
            of_first = f"matches topics of {first.topic.own_name}, the topic of {place(first)}: choose another"
            yield f"{place(each)}: topic {each.topic.own_name}: {of_first}"
    for each in of_topics:
        full = Counter(in_full(name, namespace) for name in set(each.topic.own_names))
        again = (name.removeprefix(home) for name, count in full.items() if count > 1)
        yield from (f"{place(each)}: topic {each.topic.name}: topic: {name} is there twice" for name in again)


def _overlap(one: Topic, other: Topic, namespace: str) -> bool:
    """Whether two patterns match a topic in common, as far as examples of each can tell."""
    of_one, of_other = ([in_full(name, namespace) for name in _examples(each.own_name)] for each in (one, other))
    return any(other.lands(name, namespace) for name in of_one) or any(one.lands(name, namespace) for name in of_other)


def _examples(pattern: str) -> Iterator[str]:
    """Names that a pattern matches, one for each of its choices, if it has nothing else but `.*` and `.+`."""
    if choices := re.search(r"\((?:\?:)?([^()]*)\)", pattern):
        for each in choices[1].split("|"):
            yield from _examples(pattern[: choices.start()] + each + pattern[choices.end() :])
    else:
        yield re.sub(r"\.[*+]", "x", pattern).replace("\\", "")


def _kinds_twice(declared: Iterable[Entity | Enrichment], place: Place) -> Iterator[str]:
    """The kinds of a topic that have the name of another topic, or the condition of another kind: a line for each."""
    seen: dict[tuple[str, str], Entity | Enrichment] = {}
    for each in declared:
        topic, condition = each.topic, " ".join(each.topic.where.split())
        for what, said in (("name", topic.name), (f"where of {topic.own_name}", condition)):
            other = seen.setdefault((what, said), each)
            if said and other is not each and (topic.where or other.topic.where):
                yield f"{place(each)}: topic {topic.name}: {what}: {said}: is that of {place(other)}: choose another"


def _kinds_mixed(declared: Iterable[Entity | Enrichment], place: Place) -> Iterator[str]:
    """The kinds that have the name of what lands, or would be taken for another kind: a line for each."""
    kinds = [each for each in declared if each.topic.where]
    names = {each.topic.landing_name: each.topic.own_name for each in kinds}
    by_fields: dict[str, Topic] = {}
    for each in kinds:
        topic = each.topic
        at = f"{place(each)}: topic {topic.name}"
        if topic.name in names:
            yield f"{at}: name: all kinds of {names[topic.name]} land in bronze.{topic.name}: choose another"
        if is_by_message(topic.where):
            continue
        first = by_fields.setdefault(topic.landing_name, topic)
        if (topic.encoding, topic.envelope, topic.is_array) != (first.encoding, first.envelope, first.is_array):
            yield f"{at}: where: {topic.where}: {first.name} reads payloads in another way: tell both by the message"


def _changelogs(pipeline: Pipeline) -> Iterator[Entity]:
    """The entities whose state a topic has."""
    return (each for each in pipeline.entities if each.source is None)


def _claimed_twice(claimed: Claims) -> Iterator[str]:
    seen: dict[str, tuple[object, str, str]] = {}
    for name, claimant, place, what in claimed:
        other, there, taken_as = seen.setdefault(name, (claimant, place, what))
        if other is not claimant:
            yield f"{place}: {what} {name}: is the {KINDS.get(taken_as, taken_as)} of {there}: choose another"
        elif taken_as != what:
            yield f"{place}: {what} {name}: is the topic that it is made from: choose another"


EXACT = "the same messages must give the same rows, whenever they come"


def _wrong_calls(pipeline: Pipeline, place: Place) -> Iterator[str]:
    """Functions of one name, and calls with which something is wrong."""
    names: Claims = [(each.name, each, place(each), "function") for each in pipeline.functions]
    yield from _claimed_twice(names)
    declared: tuple[Entity | Enrichment, ...] = (*pipeline.entities, *pipeline.enrichments)
    for each in declared:
        for call in calls_in(each.topic.where):
            why = f"{call.function.name} may fail, and then no kind could be told: use fields, or the message"
            yield f"{place(each)}: topic {each.topic.name}: where: {each.topic.where}: {why}"
        for what, sql, needs in _sql_of(each):
            yield from (f"{place(each)}: {what}: {line}" for line in wrong_calls(sql, needs=needs))
    for table in pipeline.sql_tables:
        for name, check in table.checks.items():
            needs = "" if check.mode is Mode.WARN else EXACT
            at = table.at_entry(CHECK, name)
            yield from (f"{at}: check {name}: {line}" for line in wrong_calls(check.sql, needs=needs))
        needs = "declare `refresh: full`, or avoid it" if table.refresh == INCREMENTAL else ""
        for call in calls_in(table.sql):
            at = f"{table.at}:{table.sql.count(chr(10), 0, call.start) + 1}"
            text = table.sql[call.start : call.end]
            yield from (f"{at}: {line}" for line in wrong_calls(text, needs=needs, in_aggregates=True))


def _sql_of(declared: Entity | Enrichment) -> Iterator[tuple[str, str, str]]:
    """The SQL of a declaration: what it is, and why it must give the same value each time, if it must."""
    yield from ((f"column {name}", sql, EXACT) for name, sql in declared.columns.items())
    yield f"topic {declared.topic.name}: rows", declared.topic.rows, EXACT
    if isinstance(declared, Entity):
        yield from (("deleted_at", declared.deleted_at, EXACT), ("occurred_at", declared.occurred_at, EXACT))
    else:
        merges = ((f"lookup {each.name}: merged_into", each.merged_into or "") for each in declared.lookups)
        yield from ((what, sql, EXACT) for what, sql in merges if sql)
    for name, check in declared.checks.items():
        yield f"check {name}", check.sql, "" if check.mode is Mode.WARN else EXACT


def _suite(make: Callable[[Any], Suite], of: object) -> Iterator[str]:
    """What is wrong with the checks of a table together with the rules that it has anyway."""
    try:
        make(of)
    except ConfigurationError as error:
        yield str(error)


def _topic(topic: Topic) -> Iterator[str]:
    if not NAME.fullmatch(topic.name):
        named = f'Topic("{table_name(topic.name)}", topic="{topic.own_name}", ...)'
        yield f"topic {topic.name}: its tables need a name of lower-case letters, digits and _: declare {named}"
    yield from (f"topic {topic.name}: topic: {line}" for line in _names(topic))
    if not topic.fields:
        yield f"topic {topic.name}: has no fields"
    for name in _repeated(topic.fields.names):
        yield f"topic {topic.name}: field {name} is there twice, as SQL does not tell upper from lower case"


def _names(topic: Topic) -> Iterator[str]:
    """What is wrong with its names in Pulsar."""
    names = topic.own_names
    if isinstance(topic.topic, re.Pattern):
        if not PATTERN.fullmatch(names[0]):
            right = "a pattern of names such as orders-.*, or of full ones such as persistent://sales/eu/orders-.*"
            yield f"{names[0]}: must be {right}"
        elif "://" in names[0] and "|" in _outside_groups(names[0]):
            yield f"{names[0]}: put the choices in parentheses, as in persistent://sales/eu/(orders|refunds)-.*"
        return
    if not names:
        yield '(): is empty: name the topics, such as ("orders-eu", "orders-us")'
    for name in names:
        if "*" in name:
            yield f'{name}: a pattern of names is re.compile("{name}")'
        elif not IN_PULSAR.fullmatch(name):
            yield f"{name}: must be a name such as orders-v1, or a full one such as persistent://sales/eu/orders-v1"
    yield from (f"{name} is there twice" for name, count in Counter(names).items() if count > 1)


def _outside_groups(pattern: str) -> str:
    """What a pattern has outside of parentheses and brackets."""
    left = re.sub(r"\\.|\[\^?\]?[^]]*\]", "", pattern)
    while (inner := re.sub(r"\([^()]*\)", "", left)) != left:
        left = inner
    return left


def _source(source: Source | Service) -> Iterator[str]:
    if not NAME.fullmatch(source.name):
        right = "a name of lower-case letters, digits and _, such as"
        yield f"name: {source.name}: must be {right} {table_name(source.name)}"
    if not source.columns:
        yield "fields: there are none: name the columns that are read"
    for name in _repeated(source.columns.names):
        yield f"field {name} is there twice, as SQL does not tell upper from lower case"
    yield from source.mistakes()


def _entity(entity: Entity) -> Iterator[str]:
    if entity.keep_deleted < 0:
        yield f"keep_deleted: {entity.keep_deleted}: must be 0 or more days"
    if not entity.deleted_at.strip():
        yield "deleted_at: has no SQL; leave it out if nothing is deleted"
    if not entity.occurred_at.strip():
        yield "occurred_at: has no SQL; leave it out if the message's own time counts"
    yield from _suite(latest, entity)


def _enrichment(facts: Enrichment) -> Iterator[str]:
    if not facts.keys:
        yield "keys: there are none: name the columns that identify a fact"
    for argument, name in (*(("keys", key) for key in facts.keys), ("event_time", facts.event_time)):
        if name not in facts.columns:
            yield f"{argument}: {name} is not a column; there are {', '.join(facts.columns)}"
    yield from (f"keys: {name} is there twice" for name in _repeated(facts.keys))
    if not NAME.fullmatch(facts.day):
        yield f"day: {facts.day}: must be a name of lower-case letters, digits and _, after a letter"
    for join in facts.joins:
        if not NAME.fullmatch(join.name):
            yield f"{join.kind} {join.name}: must be named in lower case, such as user: gold has a column of that name"
    yield from (f"{name}: {days}: must be 0 or more days" for name in DAYS if (days := getattr(facts, name)) < 0)
    yield from _suite(enriched, facts)


def _twice(pipeline: Pipeline, place: Place) -> Iterator[str]:
    """Topics and tables that two declarations claim, or a declaration and the lakehouse itself."""
    of_topics: tuple[Entity | Enrichment, ...] = (*_changelogs(pipeline), *pipeline.enrichments)
    tables: list[tuple[str, object]]
    tables = [(each, facts) for facts in pipeline.enrichments for each in (facts.gold_table, facts.shadow)]
    tables += [(table.name, table) for table in pipeline.sql_tables]
    # Declarations of one topic are told by the topic; here are those of another topic, or named like another's history.
    tables += {each.topic.own_name: (each.topic.bronze_table, each) for each in of_topics}.values()
    tables += [(each.topic.bronze_table, each) for each in pipeline.sources]
    tables += list({each.table.name: each for each in pipeline.entities}.items())
    tables += list({each.history.name: each for each in pipeline.entities}.items())
    for name, claimant in tables:
        if name in OWN_TABLES:
            yield f"{place(claimant)}: {name}: the lakehouse itself has a table of this name: choose another"
    yield from topics_twice(pipeline, place)
    yield from _kinds_twice(of_topics, place)
    yield from _kinds_mixed(of_topics, place)
    yield from _claimed_twice([(name, claimant, place(claimant), "table") for name, claimant in tables])
    yield from _claimed_twice(
        [
            (table.postgres.removeprefix("public."), table, table.at_entry(PUBLISH), "publish: postgres")
            for table in pipeline.sql_tables
            if table.postgres
        ]
    )


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
