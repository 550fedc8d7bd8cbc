"""What is wrong with the pipeline, as far as one look can tell.

What Prometheus alerts of is a problem here too. Only what shows over time, such as growth, is not.
"""

import time
from collections.abc import Iterator

from pulsar_lakehouse.bronze.reach import told_of_gone
from pulsar_lakehouse.expectations.quarantine import TOO_MUCH
from pulsar_lakehouse.expectations.suites import Severity
from pulsar_lakehouse.jobs.pipeline_status import Status
from pulsar_lakehouse.records import ReconciliationRecord
from pulsar_lakehouse.terminal import duration

LATE = 15 * 60.0
"""Seconds after which it is a problem that messages have not landed, or that commits were not read."""
LONG_TRANSACTION = 60.0
"""Seconds after which it is a problem that a transaction is open."""
UNRECONCILED = 86_400.0
"""Seconds after which a topic has to be reconciled again."""
MANY_MALFORMED = 100
"""More malformed messages within an hour are a problem."""
MANY_FILES = 2_000
SMALL_BYTES = 1e6
"""A table with many files has to be compacted if they are smaller on average."""


def problems(status: Status) -> Iterator[str]:
    """A line for each thing that is wrong, with what to do about it; the gravest first."""
    for name, lines in status.contracts.items():
        then = "its messages are malformed until that is declared; then run `lakehouse quarantine retry`"
        yield f"{name}: {'; '.join(lines)}: {then}"
    yield from (_broken(each) for each in status.reconciliations if not each.holds)
    if status.unreadable:
        yield f"the tables can't be read: {status.unreadable}"
    if status.broker:
        yield f"the broker can't be asked: {status.broker}"
    yield from (f"{each.name}: can't land: {each.problem}" for each in status.topics if each.problem)
    if status.expiring:
        yield status.expiring
    yield from dict.fromkeys(f"the last run failed: {each.failure}" for each in status.steps if each.failure)
    yield from (f"a step was tried again: {each.retry}" for each in status.steps if each.retry)
    yield from _failing(status, Severity.CRITICAL)
    yield from _late(status)
    for each in status.waiting:
        if each.expired:
            what = f"{each.expired:,} wait for {each.entity} and are no longer retried"
            yield f"{each.topic}: {what}: see `lakehouse quarantine inspect`"
    yield from _held_back(status)
    for topic in status.malformed:
        if topic.new > MANY_MALFORMED:
            what = f"{topic.new:,} messages broke the contract within an hour"
            yield f"{topic.topic}: {what}: see quarantine.malformed"
    yield from _neglected(status)


def warnings(status: Status) -> Iterator[str]:
    """A line for each thing that may be as it should, but that somebody wanted to be told."""
    yield from _failing(status, Severity.WARNING)
    yield from (f"{topic.name}: {told_of_gone(name)}" for topic in status.topics for name in topic.gone)


def _broken(done: ReconciliationRecord) -> str:
    why = "; ".join(done.problems) or f"landed and accounted messages differ by {done.difference:,}"
    return f"{done.topic}: reconciliation does not hold: {why}: see `lakehouse reconcile`"


def _failing(status: Status, severity: Severity) -> Iterator[str]:
    for each in status.checks:
        if each.rules and each.severity == severity:
            count = f"1 {severity} rule" if len(each.rules) == 1 else f"{len(each.rules)} {severity} rules"
            yield f"{each.table}: {count} did not pass: see `lakehouse validate`"


def _held_back(status: Status) -> Iterator[str]:
    """Topics of which most messages are in no layer: their contract, their keys or their lookups must be wrong."""
    for topic, landed in status.landed.items():
        held = {what: count for what, count in status.held_back(topic).items() if count}
        if sum(held.values()) > TOO_MUCH * landed:
            what = ", ".join(f"{count:,} {what}" for what, count in held.items())
            yield f"{topic}: of {landed:,} messages, most are held back: {what}: see `lakehouse quarantine inspect`"


def _late(status: Status) -> Iterator[str]:
    for topic in status.topics:
        waited = topic.status.lag_seconds if topic.status else None
        if topic.status and (open_one := topic.status.transaction):
            age = time.time() - open_one.since.timestamp()
            if age > LONG_TRANSACTION:
                what = f"the transaction {open_one.id}, open for {duration(age)}, holds back what is behind it"
                yield f"{topic.name}: {what}: does its producer live?"
        elif waited is not None and waited > LATE:
            yield f"{topic.name}: messages have waited in the broker for {duration(waited)}: does the pipeline run?"
    for source in status.sources:
        if source.overdue > LATE:
            yield f"{source.name}: {source.place} was to be read {duration(source.overdue)} ago: does the pipeline run?"
    for table in status.tables:
        if table.name in status.streams and table.lag_seconds is not None and table.lag_seconds > LATE:
            yield f"{table.name}: has not read what came {duration(table.lag_seconds)} ago: does the pipeline run?"


def _neglected(status: Status) -> Iterator[str]:
    """What has to be done once a day, and was not."""
    for topic, age in status.unreconciled.items():
        if age > UNRECONCILED:
            yield f"{topic}: was not reconciled for {duration(age)}: is `lakehouse reconcile` run each day?"
    for table in status.tables:
        if table.files > MANY_FILES and table.size / table.files < SMALL_BYTES:
            yield f"{table.name}: has {table.files:,} small files: is `lakehouse maintain` run each night?"
