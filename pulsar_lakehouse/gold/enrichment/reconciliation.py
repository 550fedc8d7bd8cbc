"""Check that each message of a facts topic is in exactly one table."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED, of_kind, positions
from pulsar_lakehouse.contracts.malformed import position_in
from pulsar_lakehouse.contracts.rows import landed_in, units_of
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.reconciliation import Reconciliation, fingerprint
from pulsar_lakehouse.tables.lake import Lake

LANDED = "landed"


def reconcile_facts(lake: Lake, enrichment: Enrichment) -> Reconciliation:
    """Compare the positions in bronze with those in gold and quarantine, by number and by fingerprint.

    A fingerprint is a sum of hashes, so it does not depend on how the positions are spread over tables.
    """
    landed_messages = lake.table(enrichment.topic.bronze_table).read()
    bronze = landed_messages.transform(positions, decoding=enrichment.decoding)
    names = ("enriched", "waiting", "duplicates", "discarded")
    tables = {name: lake.table(table).read() for name, table in zip(names, enrichment.places, strict=True)}
    tables["malformed"] = lake.table(MALFORMED.name).read().where(F.col("topic") == enrichment.topic.name)
    accounted = {name: rows.select("position") for name, rows in tables.items()}
    accounted["malformed"] = tables["malformed"].select(position_in(enrichment.topic))
    if enrichment.topic.rows:  # the tables may be of an older contract
        messages = landed_messages.transform(of_kind, decoding=enrichment.decoding)
        bronze = units_of(bronze, reduce(DataFrame.union, accounted.values()), messages)
    tagged = [rows.withColumn("status", F.lit(status)) for status, rows in {LANDED: bronze, **accounted}.items()]
    counted = (
        reduce(DataFrame.union, tagged)
        .groupBy("status")
        .agg(F.count("*").alias("rows"), fingerprint(F.col("position")).alias("print"))
    )
    by_status = {row.status: (row.rows, row.print) for row in counted.collect()}
    rows, prints = ({status: by_status.get(status, (0, 0))[part] for status in (LANDED, *accounted)} for part in (0, 1))
    landed, landed_print = rows.pop(LANDED), prints.pop(LANDED)
    equal = landed == sum(rows.values()) and landed_print == sum(prints.values())
    problems = () if equal else _problems(bronze, reduce(DataFrame.union, accounted.values()))
    if not enrichment.topic.rows:
        return Reconciliation(topic=enrichment.topic.name, landed=landed, accounted=rows, problems=problems)
    found = landed_in(landed_messages, enrichment.decoding, bronze)
    return Reconciliation(
        topic=enrichment.topic.name,
        landed=found.messages,
        rows=landed,
        empty=found.empty,
        accounted=rows,
        problems=problems,
    )


def _problems(bronze: DataFrame, placed: DataFrame) -> tuple[str, ...]:
    """How many positions are in no table, in more than one place, or never landed, with one example of each."""
    counted = placed.groupBy("position").count()
    cases = {
        "landed, but in no table (lost if `lakehouse enrich` has run since, and since any restore)": bronze.join(
            counted, on="position", how="left_anti"
        ),
        "in more than one place": counted.where("count > 1").select("position"),
        "in a table, but never landed": counted.join(bronze, on="position", how="left_anti").select("position"),
    }
    problems = []
    for case, rows in cases.items():
        if count := rows.count():
            example = rows.first()
            assert example is not None
            problems.append(f"{count:,} {case}, such as {'/'.join(str(part) for part in example.position)}")
    return tuple(problems)
