"""Which batches of a stream have only new messages: such as landed after this process had placed all others."""

from collections.abc import Iterator
from contextlib import contextmanager


class Succession:
    """The batches of a stream, one after another.

    One that does not follow the last can have been placed before: by a process that was killed, or before the
    checkpoint was lost or became an older one.
    """

    def __init__(self) -> None:
        self._finished: int | None = None
        self._is_caught_up = False
        self.is_new = False
        """Whether the batch that is being processed has only new messages."""

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """The block processes a batch."""
        if self._finished is None or number != self._finished + 1:
            self.doubt()
        self._finished, self.is_new = None, self._is_caught_up
        yield
        self._finished = number

    def doubt(self) -> None:
        """No message is known to be new until the stream has caught up again."""
        self._is_caught_up = self.is_new = False

    def caught_up(self) -> None:
        """The stream has ended well, and everything that had landed is placed."""
        self._is_caught_up = True
