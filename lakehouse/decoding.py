"""Payloads into typed columns, by the topic's contract; and the table of those that break it."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakehouse.avro import DECODED, parse_avro
from lakehouse.settings import Settings
from lakehouse.tables import POSITION, POSITION_OF_MESSAGE, Table, append_missing
from lakehouse.topics import MAXIMUM, MINIMUM, Encoding, Topic

MALFORMED = Table(
    name="quarantine.malformed",
    columns=f"""
        topic STRING, position {POSITION}, key STRING, payload BINARY, reason STRING,
        event_time TIMESTAMP, publish_time TIMESTAMP, quarantined_at TIMESTAMP
    """,
    partition_by=("topic",),
)

UNPARSED = "_unparsed"
BROKEN = "broken contract"
WHITESPACE = " \t\r\n"
END = "end of payload"
JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": UNPARSED,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def decode(messages: DataFrame, topic: Topic, columns: Mapping[str, str], reject: Column) -> DataFrame:
    """Bronze messages as `columns` (SQL over the contract's fields by name and `message`), `message` and `reason`.

    `reason` is NULL for a message to go on with, else it says that the payload breaks the contract, or what `reject`
    (a text or NULL, over `columns` and `message`) has against it. A tombstone keeps any contract: its columns are NULL.
    `message` says where a row comes from; it holds the payload of rejected messages only. The SQL of `columns` can also
    read its `topic` and `properties`.
    """
    message = F.struct(
        F.expr(POSITION_OF_MESSAGE).alias("position"),
        "key",
        "event_time",
        "publish_time",
        F.col("payload").isNull().alias("is_tombstone"),
        "payload",
        "topic",
        "properties",
    )
    is_avro = topic.encoding is Encoding.AVRO
    value = parse_avro(topic) if is_avro else parse_json("payload", topic)
    parsed = messages.select(message.alias("message"), value.alias("_value"), "schema_version")
    difference = _avro_difference(topic) if is_avro else F.lit(BROKEN)
    broken = F.when(~F.col("message.is_tombstone") & ~_keeps_contract(topic), difference)
    checked = parsed.withColumn("_broken", broken)
    # The columns' SQL never sees the values of a broken payload, on which it could fail.
    sound = F.when(F.col("_broken").isNull(), F.col("_value"))
    fields = (sound[field.name].alias(field.name) for field in topic.fields)
    typed = checked.select("message", "_broken", *fields).select(
        "message", "_broken", *(F.expr(sql).alias(name) for name, sql in columns.items())
    )
    return typed.withColumn("reason", F.coalesce("_broken", reject)).select(
        F.col("message")
        .withField("payload", F.when(F.col("reason").isNotNull(), F.col("message.payload")))
        .dropFields("topic", "properties")
        .alias("message"),
        *columns,
        "reason",
    )


def parse_json(payload: str, topic: Topic) -> Column:
    """The contract's fields as a struct; one that is not of its type is NULL, and the whole text is in `_unparsed`."""
    optional = StructType([StructField(field.name, field.dataType) for field in topic.fields])
    return F.from_json(F.col(payload).cast("string"), optional.add(UNPARSED, StringType()), JSON_OPTIONS)


def _keeps_contract(topic: Topic) -> Column:
    value, text = F.col("_value"), F.col("message.payload").cast("string")
    is_avro = topic.encoding is Encoding.AVRO
    kept = value[DECODED] if is_avro else value[UNPARSED].isNull() & _is_one_object(text)
    for field in topic.fields:
        kept = kept if field.nullable else kept & F.col("_value")[field.name].isNotNull()
        if MINIMUM in field.metadata:
            kept = kept & ~_out_of_range(field)
    return F.coalesce(kept, F.lit(False))


def _is_one_object(text: Column) -> Column:
    """Whether nothing follows the object that a text begins with: Spark parses that one, and ignores the rest."""
    # Most objects have no other in them, so that the first brace that closes is the last byte. The rest are parsed
    # once more, as the first of two elements.
    is_flat = F.octet_length(F.substring_index(text, "}", 1)) == F.octet_length(text) - 1
    elements = F.from_json(F.concat(F.lit("["), text, F.lit(f',"{END}"]')), "ARRAY<STRING>", JSON_OPTIONS)
    return is_flat | (F.rtrim(text, F.lit(WHITESPACE)).endswith("}") & (F.get(elements, F.lit(1)) == END))


def _out_of_range(field: StructField) -> Column:
    value = F.col("_value")[field.name]
    within = value.between(F.lit(field.metadata[MINIMUM]), F.lit(field.metadata[MAXIMUM]))
    return F.coalesce(~within, F.lit(False))


def explain_broken(rejected: DataFrame, *, topic: Topic) -> DataFrame:
    """Replaces the `reason` BROKEN by how the payload differs from the contract. Parses it again, as few need it."""
    if topic.encoding is Encoding.AVRO:  # its reasons need no second look
        return rejected
    text = F.col("message.payload").cast("string")
    given = F.from_json(text, "MAP<STRING, STRING>", JSON_OPTIONS)
    both = rejected.withColumns({"_value": parse_json("message.payload", topic), "_given": given})
    differences = F.concat_ws("; ", *(_difference(field, F.element_at("_given", field.name)) for field in topic.fields))
    difference = (
        F.when(F.length(text) == 0, "empty payload")
        .when(F.col("_given").isNull() | (F.trim(text) == "null"), "not a JSON object")
        .otherwise(F.coalesce(F.nullif(differences, F.lit("")), F.lit("more than one JSON object")))
    )
    return both.withColumn("reason", F.when(F.col("reason") == BROKEN, difference).otherwise(F.col("reason")))


def _avro_difference(topic: Topic) -> Column:
    """What is wrong with a message that breaks the contract."""
    values = ((field, F.col("_value")[field.name].cast("string")) for field in topic.fields)
    version = F.col("schema_version").cast("string")
    return (
        F.when(F.col("schema_version").isNull(), "no schema version")
        .when(F.col("_value").isNull(), F.concat(F.lit("unknown schema version: "), version))
        .when(F.col("_value")[DECODED].isNull(), F.concat(F.lit("no Avro record of schema version "), version))
        .otherwise(F.concat_ws("; ", *(_difference(field, value) for field, value in values)))
    )


def _difference(field: StructField, given: Column) -> Column:
    """What is wrong with a field, or NULL; `given` is its value as text."""
    value = F.col("_value")[field.name]
    no_such_type = F.lit(f"{field.name} is no {field.dataType.simpleString()}: ")
    wrong = F.when(given.isNotNull() & value.isNull(), F.concat(no_such_type, given))
    if not field.nullable:
        wrong = wrong.when(given.isNull(), F.lit(f"{field.name} is missing"))
    if MINIMUM in field.metadata:
        wrong = wrong.when(_out_of_range(field), F.concat(F.lit(f"{field.name} is out of range: "), given))
    return wrong


def quarantine_malformed(settings: Settings, topic: Topic, rejected: DataFrame) -> None:
    """Put rejected messages into `quarantine.malformed`; those that are there already change nothing."""
    rows = rejected.transform(explain_broken, topic=topic).select(
        F.lit(topic.name).alias("topic"),
        "message.position",
        "message.key",
        "message.payload",
        "reason",
        "message.event_time",
        "message.publish_time",
        F.current_timestamp().alias("quarantined_at"),
    )
    append_missing(rows, settings, MALFORMED.name, on=["topic", "position"])
