"""Says what is wrong with a text that is not SQL: the line, the word, and what is missing."""

import re

from sqlglot.errors import ParseError, SqlglotError

from pulsar_lakehouse.near import nearest

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "JOIN", "LEFT", "INNER", "UNION", "LIMIT", "WITH"),
    *("CASE", "WHEN", "THEN", "ELSE", "END", "BETWEEN", "AND", "OR", "NOT", "NULL", "LIKE", "IS", "IN", "AS", "ON"),
)


def why_not_sql(error: SqlglotError, sql: str) -> tuple[int, str]:
    """The number of the line, and the reason."""
    if isinstance(error, ParseError) and error.errors:
        return _line_of(error), _reason(error)
    if start := re.search(r"Missing (.+) from \d+:(\d+)", str(error.__cause__)):
        return sql.count(
            "\n", 0, int(start[2])
        ) + 1, f"the {start[1]} before `{_word_at(sql, int(start[2]))}` is never closed"
    if (comment := sql.rfind("/*")) > sql.rfind("*/"):
        return sql.count("\n", 0, comment) + 1, "the comment that begins with /* is never closed"
    return 1, str(error).partition("\n")[0]


def _line_of(error: ParseError) -> int:
    return int(error.errors[0].get("line") or 1)


def _reason(error: ParseError) -> str:
    told = {name: str(value or "") for name, value in error.errors[0].items()}
    before, word, description = told["start_context"], told["highlight"], told["description"]
    if description.startswith("Required keyword"):
        return f"something is missing after `{word}`"
    if expected := re.match(r"Expect(?:ing|ed) (\S+)", description):
        return f"`{expected[1]}` is missing near `{word}`"
    if "Unexpected token" not in description:
        return description
    words = re.findall(r"\w+", before)
    unknown = (each for each in (word, *reversed(words[-3:])) if each.upper() not in KEYWORDS)
    meant = next((f"; did you mean {name}?" for each in unknown if (name := nearest(each, KEYWORDS, cutoff=0.75))), "")
    after = f" after `{words[-1]}`" if words else ""
    return f"unexpected `{word}`{after}{meant}"


def _word_at(sql: str, start: int) -> str:
    return " ".join(sql[start + 1 :].split()[:2])
