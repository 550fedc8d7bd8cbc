"""Tells Airflow when messages arrive in an empty backlog, so that a run starts before its scheduled time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


class BacklogTrigger(BaseEventTrigger):
    """Fires when there are messages that have not landed, and again only after the backlog was empty.

    Otherwise messages that can't land would start run after run.
    """

    def __init__(self, *, poll_seconds: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "pulsar_lakehouse.dags.operators.backlog.BacklogTrigger", {"poll_seconds": self.poll_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        told = False
        while True:
            waiting = await asyncio.to_thread(self.waiting)
            if waiting and not told:
                yield TriggerEvent(waiting)  # type: ignore[no-untyped-call]
            told = bool(waiting)
            await asyncio.sleep(self.poll_seconds)

    def waiting(self) -> dict[str, int]:
        """Entries that have not landed, by topic, and 1 for each source of which a snapshot is due.

        Leaves out a topic if the broker fails: a run reports that better.
        """
        from pulsar_lakehouse.jobs.new_data import new_messages, new_snapshot

        settings, waiting = load_settings(), dict[str, int]()
        for entity in pipeline_of(settings).sources:
            if reason := new_snapshot(settings, entity):
                waiting[entity.name] = reason.count
        for topic in pipeline_of(settings).topics:
            try:
                if reason := new_messages(settings, topic):
                    waiting[topic.name] = reason.count
            except BrokerError as error:
                self.log.info("%s", error)
        return waiting


BACKLOG = Asset("pulsar.backlog", group="pulsar", watchers=[AssetWatcher("backlog", trigger=BacklogTrigger())])
