"""Declare an interval join: the rows of an entity that belong to a fact, by a value and within a time."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.keys import key_text
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.silver.entity import Entity

DURATION = re.compile(r"(-?)(\d{1,9}) (second|minute|hour|day)s?")
LONGEST = timedelta(3650)
"""The longest time that a fact can wait for a partner."""


@checked
@dataclass(frozen=True, kw_only=True)
class Match:
    """An interval join: a fact with the rows of an entity that have the same value and a time near the fact's.

    Raises ConfigurationError for `on` and `by` of different lengths, for a column that the entity does not have, for
    an entity whose source is a service, and for a time that is none, that ends before it begins, or that is longer than
    3650 days.
    """

    entity: Entity
    """The entity whose rows are the partners. Facts of another topic are one, too: their own id is its key.
    Example: `entity=STORES`"""
    on: str | tuple[str, ...]
    """The column of the fact that a partner has the same value of, or several. A fact in which one of them is NULL has
    no partner, and waits for none. Example: `on="store_id"`"""
    by: str | tuple[str, ...] = ()
    """The columns of the entity with these values, in the same order. Default: those named as in `on`.
    Example: `by="id"`"""
    time: str
    """The entity's column with the time of a partner. Example: `time="opened_at"`"""
    within: str | tuple[str, str]
    """How long after the fact a partner's time may be, in seconds, minutes, hours or days, or from when until when.
    Both ends count. Example: `within=("-5 minutes", "1 hour")`"""
    lateness: str = "5 minutes"
    """How long after the end of the interval a partner may still come before the fact is taken to have none.
    Example: `lateness="10 minutes"`"""
    each: Literal["first", "all"] = "first"
    """`first` adds the earliest partner as a struct, and `all` an array of all partners; NULL if there is none.
    Partners are in the order of their times, and then of their keys. Example: `each="all"`"""
    required: bool = True
    """Whether a fact without a partner stays in quarantine. If not, it goes to gold with NULL when the interval and the
    `lateness` are over. A partner that comes later moves or corrects the fact in either case.
    Example: `required=False`"""
    name: str = ""
    """The column in gold with the partners. Default: the entity's name. Example: `name="opening"`"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.entity.name)
        if not self.paths or len(self.columns) != len(self.paths):
            columns = " and ".join(", ".join(each) or "none" for each in (self.paths, self.columns))
            raise ConfigurationError(f"match {self.name}: on and by: {columns}: must be as many columns, one or more")
        if isinstance(self.entity.source, Service):
            raise ConfigurationError(
                f"match {self.name}: {self.entity.name} is a service, which is asked for keys: use a Lookup"
            )
        for what, name in (*(("by", each) for each in self.columns), ("time", self.time)):
            if name not in self.entity.columns:
                known = ", ".join(self.entity.columns)
                raise ConfigurationError(
                    f"match {self.name}: {what} {name}: is no column of {self.entity.name}; there are {known}"
                )
        low, high = self.span
        if low > high:
            raise ConfigurationError(f"match {self.name}: within: {self.within!r}: ends before it begins")
        if self._duration("lateness", self.lateness) < timedelta():
            raise ConfigurationError(f"match {self.name}: lateness: {self.lateness}: must be 0 seconds or more")

    def _duration(self, argument: str, text: str) -> timedelta:
        if not (found := DURATION.fullmatch(text)):
            right = "must be a number of seconds, minutes, hours or days, such as 90 minutes"
            raise ConfigurationError(f"match {self.name}: {argument}: {text}: {right}")
        sign, number, unit = found.groups()
        try:
            length = timedelta(**{f"{unit}s": int(number)})
        except OverflowError:
            length = timedelta.max
        if length > LONGEST:
            raise ConfigurationError(f"match {self.name}: {argument}: {text}: must be at most {LONGEST.days} days")
        return -length if sign else length

    @property
    def paths(self) -> tuple[str, ...]:
        """The columns of `on`."""
        return (self.on,) if isinstance(self.on, str) else self.on

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `by`."""
        return ((self.by,) if isinstance(self.by, str) else self.by) or self.paths

    @property
    def span(self) -> tuple[timedelta, timedelta]:
        """How long after the fact the time of a partner is, at least and at most."""
        given = ("0 seconds", self.within) if isinstance(self.within, str) else self.within
        if len(given) != 2:
            raise ConfigurationError(f"match {self.name}: within: {given!r}: must be a time, or a beginning and an end")
        low, high = (self._duration("within", each) for each in given)
        return low, high

    @property
    def wait(self) -> timedelta:
        """How long after its time a fact without partner is taken to have none."""
        return self.span[1] + self._duration("lateness", self.lateness)

    @property
    def kind(self) -> str:
        """What messages call it."""
        return "match"

    @property
    def table(self) -> str:
        return self.entity.table.name

    @property
    def may_be_purged(self) -> bool:
        """Whether the entity can lose a row that is a partner: one that says itself until when it is kept."""
        return self.entity.deleted_at != "NULL"

    @property
    def awaited(self) -> str:
        """What a fact without partner waits for. No entity has such a name."""
        return f"match {self.name}"

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns that the match adds to gold."""
        return (self.name,)

    def values(self) -> list[Column]:
        """Over the fact's columns: the values that a partner must have, with the types of the entity's columns."""
        schema = self.entity.decoding.schema
        kinds = (schema[name].dataType for name in self.columns)
        return [F.col(path).try_cast(kind) for path, kind in zip(self.paths, kinds, strict=True)]

    @property
    def own_key(self) -> Column:
        """Over the fact's columns: these values as the text of a key."""
        return key_text(self.values())

    def rows_of(self, partners: Column) -> Column:
        """The partners as an array, whether there is one or all; NULL if there is none."""
        return partners if self.each == "all" else F.when(partners.isNotNull(), F.array(partners))

    def key_of(self, partner: Column) -> Column:
        """The text of a partner's key."""
        return key_text([partner[name] for name in self.entity.keys])

    @property
    def used_keys(self) -> Column:
        """Over gold's columns: the keys of the partners, as text."""
        return F.transform(self.rows_of(F.col(self.name)), self.key_of)

    @property
    def said(self) -> str:
        """How rows are joined, in words."""
        low, high = (self.within, "") if isinstance(self.within, str) else self.within
        between = f"within {low}" if not high else f"from {low} to {high}"
        same = " and ".join(on if on == by else f"{on} = {by}" for on, by in zip(self.paths, self.columns, strict=True))
        return f"{self.each} of {self.entity.name} on {same}, {self.time} {between}"

    @property
    def definition(self) -> dict[str, str]:
        """What the column that it adds to gold is made from, by name."""
        need = "required" if self.required else "not required"
        return {
            f"match {self.name}": f"{self.said}, late by {self.lateness}, {need}",
            **{f"match {self.name}: {what}": sql for what, sql in self.entity.definition.items()},
        }
