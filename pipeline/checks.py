"""What can be wrong with declarations, as far as it can be known without Spark."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from textwrap import shorten
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from expectations.suites import Suite
from gold.enrichment.declaration import Enrichment, Lookup
from lakehouse.contracts.topics import Topic
from pipeline.declared import Pipeline
from silver.entity import Entity

NAME = re.compile(r"[a-z]\w*", re.ASCII)
OF_STATE = ("deleted_at", "sequence", "valid_from", "valid_until", "given")
"""Columns that silver adds to those of an entity."""
OF_FACTS = (
    *("position", "reason", "missing_entity", "missing_key", "missing_merged", "attempts", "waiting_since"),
    *("duplicate_of", "found_at", "message"),
)
"""Columns that gold and quarantine add to those of facts."""
Claims = list[tuple[str, object]]
"""Names, and the declarations that claim them."""
DAYS = ("dedup_days", "retry_days", "correction_days")


def mistakes_of(declared: Entity | Enrichment | Suite) -> Iterator[str]:
    """What is wrong with one declaration, whatever else there is: a line for each mistake."""
    wrong = list(_wrong_types(declared))
    if wrong or isinstance(declared, Suite):
        yield from wrong
        return
    yield from _topic(declared.topic)
    yield from _columns(declared.columns, taken=OF_STATE if isinstance(declared, Entity) else OF_FACTS)
    yield from _typed(declared)
    yield from _entity(declared) if isinstance(declared, Entity) else _enrichment(declared)


def mistakes_together(pipeline: Pipeline) -> Iterator[tuple[object, str]]:
    """What is wrong with declarations because of others: the declaration, and a line for each of its mistakes."""
    claimed = list(_twice(pipeline))
    yield from claimed
    entities = {entity.name: entity for entity in pipeline.entities}
    for enrichment in pipeline.enrichments:
        for lookup in enrichment.lookups:
            for line in _lookup_of(lookup, entities):
                yield enrichment, f"lookup {lookup.name}: {line}"
    if not claimed:
        yield from _suites(pipeline)


def _suites(pipeline: Pipeline) -> Iterator[tuple[object, str]]:
    known = {suite.table for suite in (*pipeline.suites, *pipeline.sql_suites)}
    seen: set[str] = set()
    for suite in pipeline.own_suites:
        if suite.table not in known:
            yield suite, f"{suite.table}: no table of this project"
        if suite.table in seen:
            yield suite, f"{suite.table}: there are two suites for it; give one the rules of both"
        seen.add(suite.table)


def _wrong_types(declared: Any) -> Iterator[str]:
    """Arguments of another type than declared, in a declaration and in those that it consists of."""
    hints = get_type_hints(type(declared))
    for each in fields(declared):
        value, hint = getattr(declared, each.name), hints[each.name]
        if not _fits(value, hint):
            given = value if isinstance(value, str) else shorten(repr(value), 60, placeholder="...")
            yield f"{each.name}: {given}: must be {_wanted(hint)}"
            continue
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Lookup):
                yield from (f"lookup {part.name}: {line}" for line in _wrong_types(part))
            elif isinstance(part, Topic):
                yield from (f"topic {part.name}: {line}" for line in _wrong_types(part))


def _fits(value: object, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items()
        )
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _wanted(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in inner)
    if origin is tuple:
        one = _wanted(inner[0]).removeprefix("a ").removeprefix("an ")
        example = '"id"' if inner[0] is str else "..."
        return f"a tuple of {one}s, such as ({example},), with the comma"
    if origin is Mapping:
        return "a dict of texts by name" if inner == (str, str) else "a dict"
    if origin in (Union, UnionType):
        return " or ".join(_wanted(each) for each in inner)
    words = {str: "a text", int: "a whole number", bool: "True or False", type(None): "None"}
    return words.get(hint) or f"a {hint.__name__}"


def _topic(topic: Topic) -> Iterator[str]:
    if not NAME.fullmatch(topic.name):
        yield f"topic {topic.name}: must be named in lower case, such as orders: its tables have the name, too"
    if not topic.fields:
        yield f"topic {topic.name}: has no fields"
    for name in _repeated(topic.fields.names):
        yield f"topic {topic.name}: field {name} is there twice, as SQL does not tell upper from lower case"


def _columns(columns: Mapping[str, str], *, taken: Iterable[str]) -> Iterator[str]:
    if not columns:
        yield "columns: there are none"
    for name, sql in columns.items():
        if not NAME.fullmatch(name):
            yield f"columns: {name}: must be a name of lower-case letters, digits and _, after a letter"
        if name in taken:
            yield f"columns: {name}: the tables have a column of that name already; use another"
        if not sql.strip():
            yield f"columns: {name}: has no SQL"
    for name in _repeated(columns):
        yield f"columns: {name} is there twice, as SQL does not tell upper from lower case"


def _typed(declared: Entity | Enrichment) -> Iterator[str]:
    flat = declared.types
    while flat != (flat := re.sub(r"<[^<>]*>|\([^()]*\)", "", flat)):
        pass
    typed = [part.split()[0].strip("`:") for part in flat.split(",") if part.split()]
    for name in declared.columns:
        if name not in typed:
            yield f"types: {name} is missing, which is a column"
    for name in typed:
        if name not in declared.columns:
            yield f"types: {name} is not a column; there are {', '.join(declared.columns)}"


def _entity(entity: Entity) -> Iterator[str]:
    if entity.key not in entity.columns:
        yield _no_column("key", entity.key, entity.columns)
    if entity.keep_deleted < 0:
        yield f"keep_deleted: {entity.keep_deleted}: must be 0 or more days"
    if not entity.deleted_at.strip():
        yield "deleted_at: has no SQL; leave it out if nothing is deleted"


def _enrichment(facts: Enrichment) -> Iterator[str]:
    if not facts.keys:
        yield "keys: there are none: name the columns that identify a fact"
    for argument, name in (*(("keys", key) for key in facts.keys), ("event_time", facts.event_time)):
        if name not in facts.columns:
            yield _no_column(argument, name, facts.columns)
    yield from (f"keys: {name} is there twice" for name in _repeated(facts.keys))
    if facts.event_time in facts.keys:
        yield f"event_time: {facts.event_time} is one of keys: a fact that is sent again would be another one"
    if not NAME.fullmatch(facts.day):
        yield f"day: {facts.day}: must be a name of lower-case letters, digits and _, after a letter"
    if not facts.lookups:
        yield "lookups: there are none: name the entities to join with"
    for lookup in facts.lookups:
        yield from (f"lookup {lookup.name}: {line}" for line in _lookup(lookup, facts))
    for name in _repeated((*dict.fromkeys(map(str.lower, facts.columns)), *facts.states, facts.day)):
        yield f"{name}: two columns of gold would have this name; rename a column, a lookup or day"
    yield from (f"{name}: {days}: must be 0 or more days" for name in DAYS if (days := getattr(facts, name)) < 0)
    yield from (f"rules: {name}: has no SQL" for name, sql in facts.rules.items() if not sql.strip())


def _lookup(lookup: Lookup, facts: Enrichment) -> Iterator[str]:
    if not NAME.fullmatch(lookup.name):
        yield "must be named in lower case, such as user: gold has a column of that name"
    if lookup.name in OF_FACTS:
        yield "gold and quarantine have a column of that name already; use another"
    if lookup.on not in facts.columns:
        yield _no_column("on", lookup.on, facts.columns)


def _lookup_of(lookup: Lookup, entities: Mapping[str, Entity]) -> Iterator[str]:
    entity = entities.get(lookup.entity)
    if entity is None:
        yield f"entity: {lookup.entity}: no such entity; there are {', '.join(entities) or 'none'}"
        return
    if lookup.key not in entity.columns:
        yield _no_column("key", lookup.key, entity.columns)
    elif lookup.key != entity.key:
        yield f"key: {lookup.key} does not identify a row of {entity.name}: must be {entity.key}"
    if lookup.is_as_of and (entity.ignore_null_updates or not entity.keeps_history):
        yield f'join: "as_of" needs a history of whole updates, which {entity.name} does not keep'


def _twice(pipeline: Pipeline) -> Iterator[tuple[object, str]]:
    """Topics and tables that two declarations claim."""
    declared: tuple[Entity | Enrichment, ...] = (*pipeline.entities, *pipeline.enrichments)
    topics: Claims = [(each.topic.name, each) for each in declared]
    topics += [(each.publish_to, each) for each in pipeline.enrichments if each.publish_to]
    topics += [(table.topic, table) for table in pipeline.sql_tables if table.topic]
    tables: Claims = [(each, facts) for facts in pipeline.enrichments for each in (facts.gold_table, facts.shadow)]
    tables += [(table.name, table) for table in pipeline.sql_tables]
    # Entities of one topic are told by the topic; here are those named like the history of another.
    tables += [(name, each) for name, each in {each.table.name: each for each in pipeline.entities}.items()]
    tables += [(name, each) for name, each in {each.history.name: each for each in pipeline.entities}.items()]
    targets: Claims = [(each.postgres.removeprefix("public."), each) for each in pipeline.sql_tables if each.postgres]
    for what, claimed in (("topic", topics), ("table", tables), ("table in Postgres", targets)):
        seen: set[str] = set()
        for name, claimant in claimed:
            if name in seen:
                yield claimant, f"{name}: another declaration has this {what} already"
            seen.add(name)


def _no_column(argument: str, name: str, columns: Iterable[str]) -> str:
    return f"{argument}: {name} is not a column; there are {', '.join(columns)}"


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
