"""Check that each message of a facts topic is in exactly one table."""

from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.delta.tables import POSITION_OF_MESSAGE, read_table
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.tables.lake import Lake

LANDED = "landed"


def reconcile_facts(lake: Lake, enrichment: Enrichment) -> Reconciliation:
    """Compare the positions in bronze with those in gold and quarantine, by number and by fingerprint.

    A fingerprint is a sum of hashes, so it does not depend on how the positions are spread over tables.
    """
    read = partial(read_table, lake)
    bronze = read(enrichment.topic.bronze_table).select(F.expr(POSITION_OF_MESSAGE).alias("position"))
    accounted = {
        "enriched": read(enrichment.gold_table).select("position"),
        "waiting": read(enrichment.waiting.name).select("position"),
        "duplicates": read(enrichment.duplicates.name).select("position"),
        "discarded": read(enrichment.discarded.name).select("position"),
        "malformed": read(MALFORMED.name).where(F.col("topic") == enrichment.topic.name).select("position"),
    }
    tagged = [rows.withColumn("status", F.lit(status)) for status, rows in {LANDED: bronze, **accounted}.items()]
    fingerprint = F.sum(F.pmod(F.xxhash64("position"), F.lit(2**31 - 1)))
    counted = (
        reduce(DataFrame.union, tagged).groupBy("status").agg(F.count("*").alias("rows"), fingerprint.alias("print"))
    )
    found = {row.status: (row.rows, row.print) for row in counted.collect()}
    rows, prints = ({status: found.get(status, (0, 0))[part] for status in (LANDED, *accounted)} for part in (0, 1))
    landed, landed_print = rows.pop(LANDED), prints.pop(LANDED)
    equal = landed == sum(rows.values()) and landed_print == sum(prints.values())
    problems = () if equal else _problems(bronze, reduce(DataFrame.union, accounted.values()))
    return Reconciliation(topic=enrichment.topic.name, landed=landed, accounted=rows, problems=problems)


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
