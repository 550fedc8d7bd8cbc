"""The frames of a batch are freed after it."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_lakehouse.spark.batches import each_batch


class Frame:
    """Refers to itself, as Spark's frames do through their objects in the JVM."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _seldom() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_frames_are_freed() -> None:
    made: list[weakref.ref[Frame]] = []
    handle: Any = each_batch(lambda _: made.append(weakref.ref(Frame())))
    handle(None, 0)
    assert [each() for each in made] == [None]
