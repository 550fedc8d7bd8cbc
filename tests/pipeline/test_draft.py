"""What is drafted of a topic: from its schema, or from its messages. Each draft is a declaration that can be loaded."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.draft import draft, names_of
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.pulsar.topic_contents import Contents, Sampled


def contents(topic: str, *messages: tuple[str | None, Any], schema: Any = None, encoding: str = "JSON") -> Contents:
    """`messages` are keys and payloads."""
    sample = tuple(Sampled(key, None if value is None else json.dumps(value).encode()) for key, value in messages)
    registered = RegisteredSchema(version=3, type=encoding, data=json.dumps(schema)) if schema else None
    return Contents(topic=topic, schema=registered, sample=sample)


def record(record_name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": record_name,
        "fields": [{"name": each, "type": kind} for each, kind in fields.items()],
    }


def loaded(folder: Path, *drafts: Contents) -> Pipeline:
    (folder / "declarations").mkdir()
    for each in drafts:
        (folder / "declarations" / f"{each.topic}.py").write_text(draft(each, each.topic))
    return load(folder / "declarations").pipeline


def pair(data: str, *, of_key: str, of_value: str) -> RegisteredSchema:
    types = {"key.schema.type": of_key, "value.schema.type": of_value, "kv.encoding.type": "SEPARATED"}
    return RegisteredSchema(version=0, type="KEY_VALUE", data=data, properties=types)


USERS = contents(
    "users",
    ("1", {"id": 1, "firstName": "Ada", "createdAt": 1767225600000, "tags": None}),
    ("1", {"id": 1, "firstName": "Ada L.", "createdAt": 1767225600000}),
    ("2", None),
)


def test_messages_whose_key_is_a_field_are_an_entity() -> None:
    assert (
        draft(USERS, "users")
        == '''\
"""A draft of the topic users, from 2 of its messages."""

from pulsar_lakehouse import Entity, Topic

# Each message has a key, the id: it is taken for the state of that key.
# If messages are events, which replace none, declare an Enrichment instead.
USERS = Entity(
    topic=Topic(
        "users",
        """
            id BIGINT NOT NULL,
            firstName STRING,
            createdAt TIMESTAMP_MILLIS
        """,
        # Not declared: tags: such as null
    ),
    key="id",
    columns="""
        id,
        firstName AS first_name,
        createdAt AS created_at
    """,
    # If a field says since when the key is deleted, name it: deleted_at="deletedAt"
    # If a field orders the messages of a key better than their event time, name it: sequence_by="version"
)
'''
    )


def test_messages_without_keys_are_facts() -> None:
    sales = contents("sales", *((None, {"saleId": n, "price": n / 2, "soldAt": 1767225600000}) for n in (1, 2)))
    assert (
        draft(sales, "sales")
        == '''\
"""A draft of the topic sales, from 2 of its messages."""

from pulsar_lakehouse import Enrichment, Topic

# The messages have no keys: they are taken for events.
# If a message replaces earlier ones of its key, declare an Entity instead.
SALES = Enrichment(
    topic=Topic(
        "sales",
        """
            saleId BIGINT NOT NULL,
            price DOUBLE,
            soldAt TIMESTAMP_MILLIS
        """,
    ),
    columns="""
        saleId AS sale_id,
        price,
        soldAt AS sold_at
    """,
    # Which columns tell a duplicate from another event?
    keys=("sale_id",),
    # When did it happen?
    event_time="sold_at",
    day="sold_date",
    # Which entities does an event belong to? Such as Lookup(entity=STORES, on="store_id")
    lookups=(),
)
'''
    )


def test_facts_without_an_id_and_a_time_have_those_of_the_message(tmp_path: Path) -> None:
    [clicks] = loaded(tmp_path, contents("clicks", ("ada", {"page": "/"}), ("ada", {"page": "/"}))).enrichments
    assert (clicks.keys, clicks.event_time, clicks.day) == (("message_id",), "event_time", "event_date")
    assert list(clicks.columns) == ["page", "message_id", "event_time"]


@pytest.mark.parametrize("encoding", [Encoding.JSON, Encoding.AVRO])
def test_a_registered_schema_gives_the_fields(tmp_path: Path, encoding: Encoding) -> None:
    schema = record(
        "Person", id="long", name=["null", "string"], height=["null", "float"], age="int", member="boolean", hat="null"
    )
    [facts] = loaded(tmp_path, contents("people", schema=schema, encoding=encoding)).enrichments
    assert (facts.topic.record, facts.topic.encoding) == ("Person", encoding)
    assert [(each.name, each.dataType.simpleString(), each.nullable) for each in facts.topic.fields] == [
        ("id", "bigint", False),
        ("name", "string", True),
        ("height", "double", True),
        ("age", "int", False),
        ("member", "boolean", False),
    ]


def test_a_schema_without_messages_says_so() -> None:
    text = draft(contents("people", schema=record("People", id="long")), "people")
    assert "# There is no message yet." in text
    assert "from version 3 of its JSON schema" in text


def test_the_key_of_payloads_that_are_not_json_is_guessed(tmp_path: Path) -> None:
    schema = record("People", id="long", city=["null", "string"])
    avro = Contents(
        topic="people",
        schema=RegisteredSchema(version=0, type="AVRO", data=json.dumps(schema)),
        sample=(Sampled("7", b"\x0e\x02\x08Bonn"),),
    )
    assert loaded(tmp_path, avro).entities[0].key == "id"


@pytest.mark.parametrize(
    ("keys", "payload", "key", "encoding"),
    [
        (["a"], {"id": "a"}, "id", "TEXT"),
        (["7"], {"id": 7}, "id", "TEXT"),
        (["Nw=="], {"id": 7}, "id", "BYTES"),
        (['[7,"EUR"]'], {"id": 7, "currency": "EUR"}, ("id", "currency"), "TEXT"),
        (['{"id": 7}'], {"id": 7}, "id", "JSON"),
        (['{"id": 7, "shop": "a"}'], {"at": 1}, ("id", "shop"), "JSON"),
        (["eyJpZCI6IDd9"], {"at": 1}, "id", "BYTES"),
    ],
)
def test_how_keys_are_written(
    tmp_path: Path, keys: list[str], payload: dict[str, Any], key: str | tuple[str, ...], encoding: str
) -> None:
    [entity] = loaded(tmp_path, contents("odd", *((each, payload) for each in keys))).entities
    assert (entity.key, entity.topic.key_encoding) == (key, encoding)


@pytest.mark.parametrize("key", ["b", '{"id": 8}', '{"id": {"nested": 7}}', "[7]", '["x"]', "Yg=="])
def test_keys_that_are_no_field_are_those_of_events(tmp_path: Path, key: str) -> None:
    assert len(loaded(tmp_path, contents("odd", (key, {"id": 7}))).enrichments) == 1


def test_each_topic_has_tables_of_its_own() -> None:
    topics = ["user-events", "UserEvents", "user_events", "users", "users_history", "schemas", "2026", "größe", "___"]
    assert names_of(contents(each) for each in topics) == {
        "user-events": "user_events_3",
        "UserEvents": "user_events_2",
        "user_events": "user_events",
        "users": "users",
        "users_history": "users_history_2",
        "schemas": "schemas_2",
        "2026": "topic_2026",
        "größe": "gr_e",
        "___": "topic",
    }


def test_names_that_sql_or_tables_have_are_changed(tmp_path: Path) -> None:
    payload = {"id": 1, "order": 2, "select": 3, "deletedAt": "x", "some-thing": 3, "größe": 4, "1st": 5, "null": 6}
    [odd] = loaded(tmp_path, contents("odd", ("1", payload))).entities
    assert dict(odd.columns) == {
        "id": "id",
        "order": "order",
        "select": "`select`",
        "odd_deleted_at": "deletedAt",
        "some_thing": "`some-thing`",
        "gr_e": "`größe`",
        "odd_1st": "`1st`",
        "null": "`null`",
    }


def test_a_field_that_can_not_be_declared_is_a_comment() -> None:
    text = draft(
        contents("odd", ("1", {"id": 1, "message": "x", "mixed": 1, "none": None}), ("1", {"mixed": "x"})), "odd"
    )
    assert [line.strip() for line in text.splitlines() if "Not declared" in line] == [
        '# Not declared: message: such as "x"',
        '# Not declared: mixed: such as "x"',
        "# Not declared: none: such as null",
    ]


@pytest.mark.parametrize("name", ['"""\nevil()\n"""', "x\revil()", 'x" + evil() + "', "x\\", "x`, y", "{evil}"])
def test_no_name_of_a_field_or_topic_becomes_code(name: str) -> None:
    topic = f"odd{name}odd".replace(",", "")
    text = draft(contents(topic, ("1", {"id": 1, name: "v"}), ("2", {"id": 2, name: [{name: 1}, "v"]})), "odd")
    tree = ast.parse(text)
    assert [type(each) for each in tree.body] == [ast.Expr, ast.ImportFrom, ast.Assign]
    assert {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)} == {"ODD", "Entity", "Topic"}


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (contents("a, b"), "a, b: a topic with a comma or a space at an end of its name can't be read"),
        (
            Contents(topic="out", schema=None, sample=(Sampled("1", b'{"id": 1}', is_published=True),)),
            "out: a lakehouse publishes it from a table",
        ),
        (Contents(topic="closed", schema=None, sample=(), problem="it is encrypted"), "closed: it is encrypted"),
        (contents("empty"), "empty: has no schema with fields, and no message with a JSON object"),
        (
            Contents(topic="deep", schema=None, sample=(Sampled("1", b'{"a":' * 100_000),)),
            "deep: has no schema with fields, and no message with a JSON object",
        ),
        (
            Contents(topic="pairs", schema=pair("{", of_key="LOCAL_DATE", of_value="AVRO"), sample=()),
            "pairs: has no schema with fields, and no message with a JSON object",
        ),
        (contents("texts", ("1", "x")), "texts: has no schema with fields, and no message with a JSON object"),
    ],
)
def test_what_can_not_be_drafted(found: Contents, line: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        draft(found, "found")
    assert str(error.value) == line


@pytest.mark.parametrize("key", ["no base64", "\u00e9", "AAAA" * 2_000])
def test_a_pair_whose_key_is_not_what_its_schema_says(tmp_path: Path, key: str) -> None:
    sent = Contents(
        topic="pairs", schema=pair("", of_key="INT64", of_value="JSON"), sample=(Sampled(key, b'{"id": 7}'),)
    )
    [drafted] = loaded(tmp_path, sent).entities
    assert drafted.columns == {"id": "id", "key": "CAST(message.key AS BIGINT)"}


def test_a_key_that_has_a_field_which_can_not_be_declared(tmp_path: Path) -> None:
    schema = record("Event", id=["string", "long"], n="int")
    sent = contents("events", ('{"id": 7}', {"id": 7, "n": 1}), schema=schema)
    assert [each.topic.fields.names for each in loaded(tmp_path, sent).enrichments] == [["n"]]


def test_names_within_fields_are_quoted_where_they_must_be(tmp_path: Path) -> None:
    calls = contents(
        "calls", *((None, {"id": n, "labels": {"http.method": "GET", "$oid": "a", "ok": True}}) for n in (1, 2))
    )
    assert "labels STRUCT<`http.method`: STRING, `$oid`: STRING, ok: BOOLEAN>" in draft(calls, "calls")
    [drafted] = loaded(tmp_path, calls).enrichments
    assert drafted.topic.fields["labels"].dataType.simpleString() == "struct<http.method:string,$oid:string,ok:boolean>"
