"""HTML from Python: what is not made by `tag` is text, and is escaped."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import urlencode

from pulsar_lakehouse.terminal import duration, visible


class Markup(str):
    """Text that is HTML."""


class Number(str):
    """The text of a number, which tables align."""


Child = Markup | str | int | Iterable["Child"] | None
EMPTY = {"input", "link", "meta"}
"""Elements without an end tag."""
ICONS = {"good": "M2 6.5 5 9.5 10 3", "bad": "M3 3 9 9M9 3 3 9", "warn": "M6 2V7M6 9.6V10", "idle": "M6 6V6.1"}
"""The lines of the icons of states, in a square of 12: not every font has such characters."""
LONG = 40
"""Texts with more characters than this may be broken into lines, in tables and badges."""
MOST_CHARACTERS = 2_000
"""Longer values are cut."""


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. An attribute that is a Python keyword ends with `_`; those that are False or None are left out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    texts = (
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for key, value in given.items()
        if value is not None and value is not False
    )
    end = "" if name in EMPTY else f"{html(children)}</{name}>"
    return Markup(f"<{name}{''.join(texts)}>{end}")


def html(child: Child) -> Markup:
    match child:
        case None:
            return Markup("")
        case Markup():
            return child
        case str():
            return Markup(_text(child))
        case int():
            return Markup(f"{child:,}")
    return Markup("".join(map(html, child)))


def _text(text: str) -> str:
    """Also control characters are escaped, such as those that turn the direction of text."""
    return escape(visible(text))


def link(text: Child, path: str, **query: str) -> Markup:
    return tag("a", text, href=address(path, **query))


def address(path: str, **query: str) -> str:
    """A path of this page, which is relative, with what it asks for."""
    return f"{path}?{urlencode(query)}" if query else path


def badge(kind: str, text: Child) -> Markup:
    """A state, told by colour, icon and words."""
    icon = tag("svg", tag("path", d=ICONS[kind]), viewBox="0 0 12 12", class_="icon", aria_hidden="true")
    return tag("span", icon, text, class_=f"badge {kind}{' long' * (_kind(text) == 'long')}")


def section(title: str, *children: Child) -> Markup:
    return tag("section", tag("h2", title), children)


def grid(label: str, columns: Sequence[str], rows: Iterable[Sequence[Child]], empty: str = "") -> Markup:
    """A table that scrolls sideways, also by the keyboard; the text `empty` if it has no rows."""
    body = list(rows)
    if not body:
        return tag("p", empty, class_="empty") if empty else Markup("")
    head = (tag("th", name, scope="col", class_=_kind(value)) for name, value in zip(columns, body[0], strict=True))
    lines = (tag("tr", (tag("td", value, class_=_kind(value)) for value in row)) for row in body)
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", lines))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _kind(value: Child) -> str | None:
    if isinstance(value, int | Number):
        return "number"
    return "long" if isinstance(value, str) and not isinstance(value, Markup) and len(value) > LONG else None


def sparkline(counts: Sequence[tuple[datetime, int]], what: str) -> Markup:
    """A bar for each of the counts, as high as it is large."""
    if not counts:
        return Markup("")
    most, step = max(count for _, count in counts), 5
    heights = [max(1, round(20 * count / most)) for _, count in counts]
    bars = (tag("rect", x=at * step, y=20 - high, width=step - 1, height=high) for at, high in enumerate(heights))
    since, until = f"{counts[0][0]:%Y-%m-%d %H:%M}", f"{counts[-1][0]:%Y-%m-%d %H:%M}"
    said = f"{len(counts)} {what} from {since} to {until} UTC, with up to {most:,} rows"
    width = max(len(counts) * step, 60)
    return tag("svg", tag("title", said), bars, class_="spark", role="img", aria_label=said, width=width, height=20)


def ago(moment: datetime | float) -> Markup:
    """How long ago a time was, which is told on hovering; a number is seconds since 1970."""
    at = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    seconds = (datetime.now(UTC) - at).total_seconds()
    return tag("time", f"{duration(seconds)} ago", datetime=at.isoformat(), title=f"{at:%Y-%m-%d %H:%M:%S} UTC")


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text):,} characters)"
