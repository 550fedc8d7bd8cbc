"""The text of a key, as messages carry it."""

from collections.abc import Sequence
from itertools import chain

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType


def key_text(values: Sequence[Column]) -> Column:
    """The text of a key with these values; NULL if one of them is.

    A single value is cast to a string. Several are a JSON array without spaces: numbers and booleans bare, texts and
    dates quoted, and escaped as `to_json` does.
    """
    if len(values) == 1:
        return values[0].cast("string")
    elements = (
        F.when(value.isNotNull(), F.regexp_extract(F.to_json(F.array(value)), r"(?s)^\[(.*)\]$", 1)) for value in values
    )
    commas = chain.from_iterable((F.lit(","), element) for element in elements)
    return F.concat(F.lit("["), *list(commas)[1:], F.lit("]"))


def key_values(text: Column, kinds: Sequence[DataType]) -> list[Column]:
    """The values of these types in a key's text; NULL unless it is exactly their text: a cast accepts others too."""
    parts = F.from_json(text, "ARRAY<STRING>")
    texts = [text] if len(kinds) == 1 else [F.get(parts, F.lit(place)) for place in range(len(kinds))]
    values = [each.try_cast(kind) for each, kind in zip(texts, kinds, strict=True)]
    return [F.when(key_text(values) == text, value) for value in values]
