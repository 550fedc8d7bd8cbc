"""Suggests the name that somebody has probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The name that is most like a word, whatever their case; empty if none is."""
    known = {name.lower(): name for name in names}
    return known[found[0]] if (found := get_close_matches(word.lower(), known, n=1, cutoff=cutoff)) else ""


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The end of a line about a wrong name, such as `; did you mean city?`; empty if no name is like it."""
    return f"; did you mean {name}?" if (name := nearest(word, names)) else ""
