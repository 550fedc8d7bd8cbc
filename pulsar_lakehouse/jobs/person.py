"""Find what the tables hold of a person, or of anything else that has a key: its keys, and its messages.

A person is a key of an entity, the keys that it was merged with, and the keys of other entities through which a lookup
leads to the person, such as the accounts of a customer. The person's messages are the changes of these keys, and the
facts that look up one of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.erasures import ERASED, PARTS
from pulsar_lakehouse.contracts.decoding import MALFORMED, Decoding, decode_if_readable
from pulsar_lakehouse.contracts.keys import key_text
from pulsar_lakehouse.contracts.topics import is_by_message
from pulsar_lakehouse.gold.enrichment.backfill import Scope, is_meant
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.survivors import follow, leading_to, mapping_of, merges_of
from pulsar_lakehouse.jobs.steps import as_written
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake

Keys = Mapping[str, frozenset[str]]
"""Keys as text, by the name of their entity."""


def keys_of(lake: Lake, pipeline: Pipeline, entity: Entity, key: str) -> Keys:
    """The keys that belong to the person with this key of the entity."""
    lookups = [lookup for each in pipeline.enrichments for lookup in each.lookups]
    keys = {lookup.entity.name: frozenset[str]() for lookup in lookups} | {entity.name: frozenset([key])}
    known: dict[str, frozenset[str]] = {}
    while keys != known:
        known = dict(keys)
        for lookup in lookups:
            if of_entity := keys[lookup.entity.name]:
                keys[lookup.entity.name] |= _merged_with(lake, lookup, of_entity)
        for lookup, leading in (pair for each in pipeline.enrichments for pair in _leading(each)):
            if of_entity := keys[lookup.entity.name]:
                keys[leading.entity.name] |= _through(lake, lookup, leading, of_entity)
    return {name: of_entity for name, of_entity in keys.items() if of_entity}


def _merged_with(lake: Lake, lookup: Lookup, keys: frozenset[str]) -> set[str]:
    """The survivors of the keys, and all keys that were merged into these."""
    if lookup.merged_into is None or not lake.table(lookup.table).exists():
        return set()
    merges = mapping_of(merges_of(lake.table(lookup.table).pin(), lookup=lookup))
    texts = {str(key): str(into) for key, into in merges.items()}
    survivors = {follow(key, merges=texts, limit=lookup.max_merges).survivor for key in keys}
    return leading_to(survivors, merges=texts, limit=lookup.max_merges)


def _leading(enrichment: Enrichment) -> Iterator[tuple[Lookup, Lookup]]:
    """The lookups whose whole key is in the row of an earlier one, with that one."""
    known = {lookup.name: lookup for lookup in enrichment.lookups}
    for lookup in enrichment.lookups:
        if len(lookup.through) == 1 and all("." in path for path in lookup.paths):
            yield lookup, known[lookup.through[0]]


def _through(lake: Lake, lookup: Lookup, leading: Lookup, keys: frozenset[str]) -> set[str]:
    """The keys of `leading` whose latest row has one of the keys of `lookup`."""
    name = leading.entity.table.name
    if not lake.table(name).exists():
        return set()
    row = lake.table(name).read()
    rows = row.select(F.struct(*row.columns).alias(leading.name)).where(lookup.own_key.isin(*keys))
    of_rows = rows.select(key_text([F.col(leading.name)[column] for column in leading.entity.keys]).alias("key"))
    return {found.key for found in of_rows.collect() if found.key is not None}


def messages_of(lake: Lake, pipeline: Pipeline, keys: Keys) -> DataFrame:
    """The messages that belong to the keys, as rows of `message`, an ERASED."""
    changes = [_changes(lake, each, keys[each.name]) for each in pipeline.entities if each.name in keys]
    looking = (each for each in pipeline.enrichments if any(lookup.entity.name in keys for lookup in each.lookups))
    return reduce(DataFrame.union, [*changes, *(_facts(lake, each, keys) for each in looking)])


def unreadable_among(lake: Lake, pipeline: Pipeline, keys: Keys) -> int:
    """The number of malformed messages of the person's topics whose key can't be read: they can be anybody's."""
    changes = [_keyed(lake, each) for each in pipeline.entities if each.name in keys]
    facts = [_own(lake, each, keys) for each in pipeline.enrichments if _direct(each, keys)]
    nobody = [rows.where(F.size(F.array_compact("keys")) == 0) for rows in (*changes, *facts)]
    message = [F.col("position")[part].alias(part) for part in PARTS]
    malformed = lake.table(MALFORMED.name).read().select(*message)
    unread = reduce(DataFrame.union, (rows.select(*message) for rows in nobody))
    return malformed.join(unread, on=list(PARTS), how="left_semi").distinct().count()


def _changes(lake: Lake, entity: Entity, keys: frozenset[str]) -> DataFrame:
    is_of_key = F.arrays_overlap("keys", F.array(*map(F.lit, sorted(keys))))
    return _erased(lake, entity.topic.bronze_table, _keyed(lake, entity).where(is_of_key))


def _keyed(lake: Lake, entity: Entity) -> DataFrame:
    """The position of each message or row, and as `keys` its key and a single row's message key, as far as readable."""
    entity = as_written(lake, entity)
    messages, decoding = lake.table(entity.topic.bronze_table).read(), _with_unread(entity.decoding)
    read = messages.transform(decode_if_readable, decoding=decoding, names=entity.keys)
    key = key_text([F.col(name) for name in entity.keys])
    own = [] if entity.topic.rows else ["message.key"]
    return read.select("message.position", F.array(*own, key).alias("keys"))


def _facts(lake: Lake, enrichment: Enrichment, keys: Keys) -> DataFrame:
    """The facts whose message has one of the keys, and those that stand in gold, or wait, with one of them."""
    places = []
    if direct := _direct(enrichment, keys):
        own = _own(lake, enrichment, keys)
        is_own = (F.col("keys")[place].isin(*keys[each.entity.name]) for place, each in enumerate(direct))
        places.append(own.where(reduce(Column.__or__, is_own)).select("position"))
    for name in (enrichment.gold_table, enrichment.waiting.name, enrichment.discarded.name):
        rows = lake.table(name).read()
        places.append(rows.where(_uses(enrichment, rows, keys)).select("position"))
    return _erased(lake, enrichment.topic.bronze_table, reduce(DataFrame.union, places))


def _direct(enrichment: Enrichment, keys: Keys) -> list[Lookup]:
    """The lookups of the keys' entities whose own keys are columns of the fact."""
    return [each for each in enrichment.lookups if each.entity.name in keys and not each.through]


def _own(lake: Lake, enrichment: Enrichment, keys: Keys) -> DataFrame:
    """The position of each message, and as `keys` those of its direct lookups, as far as readable."""
    enrichment, direct = as_written(lake, enrichment), _direct(enrichment, keys)
    messages, decoding = lake.table(enrichment.topic.bronze_table).read(), _with_unread(enrichment.decoding)
    names = list(dict.fromkeys(path for each in direct for path in each.paths))
    read = messages.transform(decode_if_readable, decoding=decoding, names=names)
    return read.select("message.position", F.array(*(each.own_key for each in direct)).alias("keys"))


def _with_unread(decoding: Decoding) -> Decoding:
    """Also of messages that can't be read and count as another kind, if fields tell kinds: they may be of this one."""
    topic = decoding.topic
    if not topic.kinds or is_by_message(topic.where):
        return decoding
    kinds = tuple((name, where) for name, where in topic.kinds if where == topic.where or is_by_message(where))
    return replace(decoding, topic=replace(topic, kinds=kinds))


def _uses(enrichment: Enrichment, rows: DataFrame, keys: Keys) -> Column:
    """Whether a row of gold or of the waiting facts uses one of the keys."""
    used = []
    for entity, key in ((entity, key) for entity, of_entity in keys.items() for key in sorted(of_entity)):
        leading = {each.name: {key} if each.entity.name == entity else set() for each in enrichment.lookups}
        used.append(is_meant(Scope(entity=entity, key=key), enrichment, rows, leading))
    return reduce(Column.__or__, used)


def _erased(lake: Lake, bronze: str, positions: DataFrame) -> DataFrame:
    """The messages at these positions."""
    same = positions.select("position.*").distinct()
    found = lake.table(bronze).read().select("topic", *PARTS).join(same, on=list(PARTS), how="left_semi")
    message = F.struct(F.lit(bronze).alias("bronze"), "topic", *PARTS).cast(ERASED)
    return found.select(message.alias("message"))
