"""What bronze must hold of several topics that land in one table, in plain Python."""

from dataclasses import dataclass, field


@dataclass
class Topics:
    """The topics that there are, and what has landed of them. A topic that is made anew is another one."""

    there: dict[str, list[bytes]] = field(default_factory=dict)
    """By name: the messages that were sent to it."""
    bronze: list[tuple[str, bytes]] = field(default_factory=list)
    _made: dict[str, int] = field(default_factory=dict)
    """By name: how often a topic was made."""
    _known: dict[str, int] = field(default_factory=dict)
    """By name: which of these lands."""
    _landed: dict[str, int] = field(default_factory=dict)
    """By name: how many of its messages have landed."""

    def create(self, name: str) -> None:
        self.there[name] = []
        self._made[name] = self._made.get(name, 0) + 1

    def delete(self, name: str) -> None:
        """What has landed stays. What has not is lost."""
        del self.there[name]

    def send(self, name: str, *payloads: bytes) -> None:
        self.there[name] += payloads

    def plan(self) -> None:
        """Landing gets to know the topics that it finds."""
        for name in self.there:
            if name not in self._known:
                self._known[name], self._landed[name] = self._made[name], 0

    def land(self) -> None:
        self.plan()
        for name, sent in self.there.items():
            if name not in self.refused:
                self.bronze += [(name, payload) for payload in sent[self._landed[name] :]]
                self._landed[name] = len(sent)

    @property
    def refused(self) -> list[str]:
        """Those that were made anew after they had landed: the others go on without them."""
        return sorted(name for name in self.there if self._known.get(name, self._made[name]) != self._made[name])

    @property
    def gone(self) -> list[str]:
        return sorted(self._known.keys() - self.there.keys())

    def accept(self) -> None:
        """Somebody accepts what was lost of those that are refused."""
        for name in self.refused:
            self._known[name], self._landed[name] = self._made[name], 0
