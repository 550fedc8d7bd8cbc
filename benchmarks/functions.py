"""A function of a project over messages, beside the same in SQL, and beside a plain Arrow function of Spark.

    .venv/bin/python -m benchmarks functions [--messages 1000000] [--times 3]

Each decodes the same bronze table: the columns `id` and `domain`, which is made from an address. Nothing is written.
The plain function is called by `withColumn` on decoded messages. It knows no timeout, and an error ends the query.
No broker is needed, as Spark writes the messages.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from benchmarks.bench import START, Lap, bronze_rows, emptied_home, lap, middle, open_lake
from pulsar_lakehouse import function
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.decoding import Decoding, decode
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.spark.functions import declare

CUSTOMERS = Topic("customers", "id BIGINT NOT NULL, email STRING")
IN_SQL = "lower(split_part(email, '@', 2))"


def domain(email: pa.Array) -> pa.Array:
    return pc.utf8_lower(pc.list_element(pc.split_pattern(email, "@"), 1))


@function("email STRING", returns="STRING")
def domain_of(email: pa.StringArray) -> pa.Array:
    return domain(email)


@function("email STRING", returns="STRING")
def domain_if_good(email: pa.StringArray) -> pa.Array:
    """Raises ValueError for one address of 10,000."""
    if pc.any(pc.ends_with(email, "0001@Shop.example")).as_py():
        raise ValueError("no address")
    return domain(email)


def main(
    messages: Annotated[int, typer.Option(help="Messages to decode.", min=1_000)] = 1_000_000,
    times: Annotated[int, typer.Option(help="Times that each is measured; the middle one counts.", min=1)] = 3,
) -> None:
    declare([domain_of, domain_if_good])
    with open_lake(emptied_home()) as lake:
        lake.create(bronze_table(CUSTOMERS))
        payload = F.to_json(F.struct("id", F.concat("id", F.lit("@Shop.example")).alias("email")))
        rows = bronze_rows(
            lake.spark,
            "customers",
            range(messages),
            key=F.col("id"),
            payload=payload,
            event_time=F.timestamp_millis(F.lit(START)),
        )
        lake.table("bronze.customers").append(rows)
        landed = lake.table("bronze.customers").read()
        laps: dict[str, list[Lap]] = {name: [] for name in WAYS}
        for way in WAYS.values():  # the JVM and its Python processes get warm
            run(way(landed.where("entry_id < 20000")))
        for name, way in [each for _ in range(times) for each in WAYS.items()]:
            with lap() as lasted:
                run(way(landed))
            laps[name].append(lasted)
    each = {name: middle(of_way) for name, of_way in laps.items()}
    shown = [(name, *of_way.seconds(), *of_way.rates(messages)) for name, of_way in each.items()]
    report.rows(["", "s", "CPU s", "messages/s", "CPU µs a message"], shown, title=f"{messages:,} messages decoded")


def run(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def decoded(landed: DataFrame, sql: str) -> DataFrame:
    decoding = Decoding(topic=CUSTOMERS, columns={"id": "id", "domain": sql})
    return landed.transform(decode, decoding=decoding, reject=F.lit(None).cast("string"))


def plainly(landed: DataFrame) -> DataFrame:
    call = arrow_udf(domain, "string")  # type: ignore[call-overload]
    return decoded(landed, "email").withColumn("domain", call("domain"))


WAYS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "no function": partial(decoded, sql="email"),
    "SQL": partial(decoded, sql=IN_SQL),
    "function": partial(decoded, sql="domain_of(email)"),
    "function that fails for 1 of 10,000": partial(decoded, sql="domain_if_good(email)"),
    "plain arrow_udf": plainly,
}
