"""What small batches cost in a warm JVM: seconds, CPU seconds and Spark jobs of a step with a few new rows.

    .venv/bin/python -m benchmarks small [--orders 2000] [--changes 40] [--users 100000] [--gold 100000] [--waiting 0]
        [--random-keys]

Four kinds of batches take turns: orders whose users and items do not change; orders of which some are malformed, some
are duplicates and some wait for a user; changes of users, merged into silver; and orders together with changes of users
and prices. The medians are of the last third of the rounds, as the JVM needs
some dozens of rounds to compile what it uses. No broker is needed, as Spark writes the messages.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Annotated

import typer
from pyspark.sql import Column
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, caught_up, lakes, land, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import Stream
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import ENRICHMENTS, ENTITIES

ITEMS = 2_198
DAY = 86_400_000
Steps = list[tuple[Lap, int]]
"""The time of each step, and its number of Spark jobs."""


@dataclass
class Measured:
    """A lakehouse whose messages are numbered by topic."""

    lake: Lake
    users: int
    random_keys: bool = False
    sent: dict[str, int] = field(default_factory=lambda: {"users": 0, "items": 0, "orders": 0})

    def fill(self, orders: int, waiting: int) -> None:
        """All users and items, orders in gold, and others that wait for users who never come."""
        for topic, count in (("users", self.users), ("items", ITEMS), ("orders", orders)):
            self.send(topic, count)
        self.send("orders", waiting, userId=F.col("id") + self.users)
        self.step(merging(self.lake, ENTITIES))
        self.enrich()

    def send(self, topic: str, count: int, **others: Column) -> None:
        """Land messages; `others` replace fields, as SQL columns over `id`."""
        ids = range(self.sent[topic], self.sent[topic] + count)
        land(self.lake, topic, ids, {**self._fields(topic), **others})
        self.sent[topic] += count

    def step(self, streams: list[Stream]) -> tuple[Lap, int]:
        scheduler = self.lake.spark.sparkContext._jsc.sc().dagScheduler()
        before = scheduler.nextJobId()
        return caught_up(self.lake, streams), scheduler.nextJobId() - before

    def merge(self, name: str) -> tuple[Lap, int]:
        return self.step(merging(self.lake, [each for each in ENTITIES if each.name == name]))

    def enrich(self) -> tuple[Lap, int]:
        return self.step(self.enriching)

    @cached_property
    def enriching(self) -> list[Stream]:
        """Kept, as by `run --every`: a process knows what it has placed itself."""
        return enriching(self.lake, ENRICHMENTS)

    def mixed(self) -> dict[str, Column]:
        """Fields of orders of which 1 % are duplicates, 1 % lack their user and 0.2 % are malformed."""
        number, fields = F.col("id"), self._fields("orders")
        return {
            "invoiceId": self._invoice(F.when(number % 100 == 1, number - 1).otherwise(number)),
            "userId": F.when(number % 100 == 2, number + self.users).otherwise(fields["userId"]),
            "createdAt": F.when(number % 500 != 3, fields["createdAt"]),
        }

    def _fields(self, topic: str) -> dict[str, Column]:
        number, now = F.col("id"), F.lit(START + DAY) + F.col("id")
        fields = {
            "users": {
                "id": number * 7919 % self.users,
                "firstName": F.concat(F.lit("Ann "), number),
                "lastName": F.lit("Lee"),
                "emailAddress": F.concat(number, F.lit("@example.org")),
                "createdAt": F.lit(START) + number,
                "deletedAt": F.lit(-1),
                "mergedAt": F.lit(-1),
                "parentUserId": F.lit(-1),
            },
            "items": {
                "id": number % ITEMS,
                "name": F.lit("hammer"),
                "category": F.lit("tools"),
                "price": F.lit(9.5) + number,
                # The first version of each item is older than any order, later ones are as old as the last orders.
                "createdAt": F.when(number < ITEMS, F.lit(START)).otherwise(F.lit(START + DAY + self.sent["orders"])),
            },
            "orders": {
                "invoiceId": self._invoice(number),
                "lineItemId": F.lit(1),
                "userId": number * 7919 % self.users,
                "itemId": number * 104_729 % ITEMS,
                "itemName": F.lit("hammer"),
                "price": F.lit(9.5),
                "createdAt": now,
                "paidAt": now + 1,
            },
        }
        return fields[topic]

    def _invoice(self, number: Column) -> Column:
        return F.xxhash64(number) if self.random_keys else number


def main(
    orders: Annotated[int, typer.Option(help="New orders in a batch.")] = 2_000,
    changes: Annotated[int, typer.Option(help="Changes of users in a batch.")] = 40,
    users: Annotated[int, typer.Option(help="Users in silver.")] = 100_000,
    gold: Annotated[int, typer.Option(help="Orders in gold at the start.")] = 100_000,
    waiting: Annotated[int, typer.Option(help="Orders that wait for users who never come.")] = 0,
    random_keys: Annotated[bool, typer.Option("--random-keys", help="Orders with random numbers.")] = False,
    rounds: Annotated[int, typer.Option(help="Batches of each kind.")] = 30,
) -> None:
    with open_lake() as outer:
        measured = Measured(lakes(outer, [1])[1], users, random_keys)
        measured.fill(gold, waiting)
        found = batches(measured, orders, changes, rounds)
    report.rows(["", "seconds", "CPU s", "jobs"], [_row(name, steps) for name, steps in found.items()], title="Warm")


def batches(measured: Measured, orders: int, changes: int, rounds: int) -> dict[str, Steps]:
    """The steps of each kind, by what is in a batch."""
    steps: defaultdict[str, Steps] = defaultdict(list)
    for _ in range(rounds):
        measured.send("orders", orders)
        steps[f"{orders:,} orders"].append(measured.enrich())
        measured.send("orders", orders, **measured.mixed())
        steps[f"{orders:,} mixed orders"].append(measured.enrich())
        measured.send("users", changes)
        steps[f"{changes:,} users"].append(measured.merge("users"))
        measured.send("items", changes // 10)
        measured.merge("items")
        measured.send("orders", orders)
        steps[f"{orders:,} orders, changes"].append(measured.enrich())
    return steps


def _row(name: str, steps: Steps) -> list[str]:
    last = steps[-max(1, len(steps) // 3) :]
    return [name, *middle([each for each, _ in last]).seconds(), f"{median(jobs for _, jobs in last):.0f}"]
