"""Which topics of a declared one can land. Of several, the trouble of one is no trouble of the others."""

import json
import re
import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from pulsar_lakehouse.bronze.losses import find_losses, refusal_of
from pulsar_lakehouse.bronze.partitions import CREATED, ask_broker
from pulsar_lakehouse.bronze.pulsar.options import MissingError, NoAnswerError, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import topic_of
from pulsar_lakehouse.bronze.warehouse_claims import claim_again, claim_subscription
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, PermanentError, UnreachableError
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.stored import stored_table

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds for which a topic that could not be read is left out: at first, and at most. They double each time."""


class _Failure(NamedTuple):
    """That a topic could not be read."""

    at: float
    pause: float
    """The seconds after that for which it is left out."""
    why: str


def told_of_gone(name: str) -> str:
    """What is said of a topic that is not there any more."""
    return f"{name} is not there any more: its rows stay, and messages that had not landed are lost"


@dataclass
class Reach:
    """Plans what lands of a declared topic, and knows why some of its topics don't."""

    settings: Settings
    topic: Topic
    endpoint: Endpoint
    take_over: bool = False
    """Whether subscriptions that serve another warehouse serve this one from now on."""
    claims: bool = True
    """Whether to claim the subscriptions of several topics; a topic that is one is claimed before."""
    troubles: dict[str, str] = field(default_factory=dict)
    """By full name: why a topic was left out of the last plan."""
    gone: tuple[str, ...] = ()
    """The full names of topics that have landed, that the pattern matches, and that are not there any more."""
    _names: tuple[str, ...] = ()
    _claimed: set[str] = field(default_factory=set)
    _failed: dict[str, _Failure] = field(default_factory=dict)
    """The topics that could not be read when they were last tried."""

    def plan(self) -> Plan:
        """What lands now. Raises UnreachableError or PermanentError if nothing can."""
        plan = ask_broker(self.settings, self.endpoint, self.topic)
        if self.topic.is_several:
            self._leave_out(plan)
        return plan

    def _leave_out(self, plan: Plan) -> None:
        """Leave out the topics that can't land, and note why."""
        kept = self._created()
        if isinstance(self.topic.topic, re.Pattern):
            # One that was deleted just now is like those that were deleted before.
            plan.left_out = {name: why for name, why in plan.left_out.items() if not isinstance(why, MissingError)}
            known, there = set(map(topic_of, kept or ())), {*plan.options.topics, *plan.left_out}
            matched = {name for name in known if self.topic.lands(name, self.settings.pulsar.namespace)}
            self.gone = tuple(sorted(matched - there))
        for loss in [] if kept is None else find_losses(self.settings, self.topic, plan, kept):
            plan.leave_out(topic_of(loss.partition), PulsarSourceError(refusal_of(self.topic, loss)))
        for name in plan.options.topics:
            if why := self._failure(name) or (self._refused_claim(name) if self.claims else None):
                plan.leave_out(name, why)
        self._names, self.troubles = plan.options.topics, {name: cause_of(why) for name, why in plan.left_out.items()}
        if plan.left_out and not plan.options.topics:
            may_pass = any(isinstance(why, NoAnswerError) for why in plan.left_out.values())
            raise (UnreachableError if may_pass else PermanentError)(self.told())

    def _created(self) -> dict[str, str] | None:
        """The creation times of the partitions that have landed; None if there is no table."""
        try:
            table = stored_table(self.settings, self.topic.bronze_table)
        except DeltaError:
            return None
        found: dict[str, str] = json.loads(table.metadata().configuration.get(CREATED, "{}"))
        return found

    def _failure(self, name: str) -> PulsarSourceError | None:
        """Why a topic is left out for a while; None if it is not."""
        failed = self._failed.get(name)
        return NoAnswerError(failed.why) if failed and time.monotonic() < failed.at + failed.pause else None

    def _refused_claim(self, name: str) -> PulsarSourceError | None:
        """Why the subscription of a topic can't be claimed; None if it can, or was in the last round."""
        if name in self._claimed:
            return None
        try:
            one = replace(self.topic, topic=name)
            claim_subscription(one, self.endpoint, self.settings, take_over=self.take_over)
        except PermanentError as error:
            return PulsarSourceError(str(error))
        except BrokerError as error:
            return NoAnswerError(str(error))
        return None

    def told(self) -> str:
        """The troubles as a text; empty if there are none."""
        return "; ".join(self.troubles.values())

    @property
    def topics(self) -> list[Topic]:
        """The topics of the last plan, each as a topic with one name."""
        return [replace(self.topic, topic=name) for name in self._names] if self.topic.is_several else [self.topic]

    def has_landed(self) -> None:
        """Claim the subscriptions of the last plan once more: a batch may have made them, or another pipeline has them.

        A claim that the broker does not answer is made by the next plan. Raises PermanentError if the subscription of a
        topic that is one serves another warehouse; of several, that is the trouble of the one.
        """
        if not self.topic.is_several:
            claim_again(self.topic, self.endpoint, self.settings)
            return
        self._claimed = set()
        for name in self._names:
            self._failed.pop(name, None)
            why = self._refused_claim(name)
            if why is None:
                self._claimed.add(name)
            elif not isinstance(why, NoAnswerError):
                self.troubles[name] = str(why)

    def blame(self, why: str) -> bool:
        """Leave out for a while the topics that a failure names; whether there are others to go on with."""
        named = [name for name in self._names if re.search(rf"{re.escape(name)}(-partition-\d+)?(:| after) ", why)]
        if not 0 < len(named) < len(self._names):
            return False
        for name in named:
            last = self._failed.get(name)
            pause = min(last.pause * 2, LONGEST_PAUSE) if last else FIRST_PAUSE
            self._failed[name] = _Failure(time.monotonic(), pause, why)
        return True
