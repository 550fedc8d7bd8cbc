"""The frames of a batch are freed after it, and a batch knows whether it follows one that was finished."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from lakehouse.spark.batches import Succession, each_batch


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


def test_a_batch_follows_one_that_this_process_has_finished() -> None:
    succession, follows = Succession(), []
    for number, fails in [(4, False), (5, False), (6, True), (6, False), (7, False), (0, False), (1, False)]:
        with suppress(InterruptedError), succession.batch(number) as is_next:
            follows.append((number, is_next))
            if fails:
                raise InterruptedError
    assert follows == [(4, False), (5, True), (6, True), (6, False), (7, True), (0, False), (1, True)]
