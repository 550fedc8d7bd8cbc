"""What a service is, and what is wrong with its declaration, a line each."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse import Entity, Lookup, Match, Topic, quarantine, service
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.pipeline.graph import nodes
from pulsar_lakehouse.pipeline.loading import load
from tests.pipeline.projects import project

DECLARED = """
from pulsar_lakehouse import Entity, service

@service({options})
async def geocode({arguments}):
    return None

PLACES = Entity(source=geocode, key="address", columns="address, lat")
"""


@service(returns="lat DOUBLE, lon DOUBLE")
async def geocode(address: str) -> dict[str, float]:
    return {"lat": len(address), "lon": 0}


@service(returns="rate DECIMAL(12, 6)", cache_days=30)
async def rates(currency: str, day: date, version: int, is_final: bool) -> None:
    pass


def entity(source: Any = geocode, **more: Any) -> Entity:
    return Entity(**{"source": source, "key": "address", "columns": "address, lat"} | more)


def test_an_entity_of_a_service_has_the_arguments_as_its_key() -> None:
    made = entity()
    fields = "address STRING NOT NULL, lat DOUBLE, lon DOUBLE"
    assert (made.name, made.topic, made.source_keys, made.origins) == (
        "geocode",
        Topic("geocode", fields),
        ("address",),
        ("service geocode",),
    )


def test_a_service_can_be_called_as_the_function_that_it_is() -> None:
    with pytest.raises(StopIteration, match="'lat': 3"):
        geocode("abc").__await__().send(None)


@pytest.mark.parametrize(
    ("made", "key", "arguments"),
    [
        (geocode, "Rua A, 1", ["Rua A, 1"]),
        (geocode, "[1]", ["[1]"]),
        (rates, '["EUR","2026-01-31",7,true]', ["EUR", date(2026, 1, 31), 7, True]),
        (rates, '["EUR","2026-01-32",7,true]', None),
        (rates, '["EUR","2026-01-31",true,7]', None),
        (rates, '["EUR","2026-01-31",7]', None),
        (rates, "EUR", None),
    ],
)
def test_the_arguments_in_a_key(made: Service, key: str, arguments: list[object] | None) -> None:
    assert made.arguments_in(key) == arguments


@pytest.mark.parametrize(("key", "arguments"), [("7", [7]), ("007", None), ("seven", None), ("-7", [-7])])
def test_a_number_as_a_key(key: str, arguments: list[object] | None) -> None:
    async def of_number(number: int) -> None:
        pass

    assert Service(of_number, returns="name STRING").arguments_in(key) == arguments


def test_cache_days_say_when_an_answer_is_deleted_and_leave_checks_on() -> None:
    keys = ("currency", "day", "version", "is_final")
    made = entity(rates, key=keys, columns="currency, day, version, is_final, rate", checks={"c": quarantine("rate>0")})
    assert made.deleted_at == "message.event_time + INTERVAL 30 DAYS"
    assert (made.checks_of_rows["c"].sql, entity().deleted_at) == ("rate>0", "NULL")


@pytest.mark.parametrize(
    ("options", "arguments", "line"),
    [
        ('returns="lat DOUBLE"', "", "geocode: has no arguments: give it those that are the key, such as "),
        ('returns="lat DOUBLE"', "address", "geocode: address: has no type: must be str, int, bool or date"),
        ('returns="lat DOUBLE"', "address: float", "geocode: address: is float: must be str, int, bool or "),
        ('returns="lat DOUBLE"', "*address: str", "geocode: *address: str: must be an argument with a name of"),
        (
            'returns="lat DUBLE"',
            "address: str",
            "geocode: service geocode: field lat is DUBLE: must be one of BOOLEAN, INT, ",
        ),
        ('returns="lat DOUBLE", timeout="5"', "address: str", "geocode: timeout: 5: must be a time such as 2 "),
        ('returns="lat DOUBLE", retries=-1', "address: str", "geocode: retries: -1: must be 0 or more"),
        ('returns="lat DOUBLE", rate=0', "address: str", "geocode: rate: 0: must be more than 0 calls per "),
        (
            'returns="lat DOUBLE", rate=float("nan")',
            "address: str",
            "geocode: rate: nan: must be more than 0 calls ",
        ),
        ('returns="lat DOUBLE", rate="1"', "address: str", "geocode: rate: 1: must be a whole number or a float"),
        (
            'returns="lat DOUBLE", cache_day=1',
            "address: str",
            "geocode: cache_day: Service has no such argument; did you mean ",
        ),
        ("", "address: str", "geocode: Service needs returns"),
        ('"lat DOUBLE"', "address: str", "geocode: service takes its arguments by name, such as @service(returns="),
        ('returns="lat DOUBLE"', "place: str", "PLACES: geocode: key address: must be "),
        (
            'returns="address STRING"',
            "address: str",
            "PLACES: field address is there twice, as SQL does not tell ",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(options: str, arguments: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(DeclarationsError) as error:
        load(project(tmp_path, places=DECLARED.format(options=options, arguments=arguments)))
    found, *more = str(error.value).splitlines()
    assert more == []
    place, _, told = found.partition("declarations/places.py:")[2].partition(": ")
    assert place in ("5", "8")
    assert told.startswith(line), told


def test_a_function_that_is_not_async_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be a function that begins with `async def loc"):

        @service(returns="lat DOUBLE")
        def locate(address: str) -> Any:
            pass


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"sequence_by": "lat"}, "geocode: sequence_by: an answer of a service is whole, and the newest one counts: "),
        (
            {"deleted_at": "now()"},
            "geocode: deleted_at: facts would wait for what a service says is ",
        ),
        ({"columns": "upper(address) AS address, lat"}, "geocode: key address: must be the arguments of the service"),
    ],
)
def test_mistakes_of_its_entity(more: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        entity(**more)
    assert str(error.value).startswith(line)


def test_an_end_of_its_own_beside_cache_days_is_refused() -> None:
    keys = ("currency", "day", "version", "is_final")
    columns = "currency, day, version, is_final, rate"
    with pytest.raises(ConfigurationError, match="rates: deleted_at: cache_days of the service says when an answer "):
        entity(rates, key=keys, columns=columns, deleted_at="day")


def test_joins_that_nobody_could_ask_for_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="lookup geocode: joins geocode as_of a time, but a service answers "):
        Lookup(entity=entity(), on="address", join="as_of")
    with pytest.raises(ConfigurationError, match="lookup geocode: follows merges, but nobody asks geocode for a surv"):
        Lookup(entity=entity(), on="address", merged_into="lat", required=False)
    with pytest.raises(ConfigurationError, match="match geocode: geocode is a service, which is asked for keys: use a"):
        Match(entity=entity(), on="address", time="lat", within="1 hour")
    assert Lookup(entity=entity(occurred_at="TIMESTAMP'2026-01-01'"), on="address", join="as_of").is_as_of


def test_the_graph_shows_it(tmp_path: Path) -> None:
    text = DECLARED.format(options='returns="lat DOUBLE"', arguments="address: str")
    found = nodes(load(project(tmp_path, places=text)).pipeline)
    assert [(each.name, each.sources) for each in found][:2] == [
        ("service geocode", ()),
        ("bronze.geocode", ("service geocode",)),
    ]
