"""Reads the columns of a declaration: SQL by name, or a list as a SELECT has it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from pulsar_lakehouse.contracts.not_sql import why_not_sql
from pulsar_lakehouse.errors import ConfigurationError

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET)
_NO_NAMES = (TokenType.STRING, TokenType.NUMBER)


class Columns:
    """A field of a dataclass with a `topic`: SQL by column name.

    It may be given as a text such as `id, city, nullif(rank, -1) AS rank`: a bare name stands for itself.
    Raises ConfigurationError if there is no column, or if a column has no name, or that of another.
    """

    accepts = Mapping[str, str] | str

    def __get__(self, declared: object, kind: type) -> Mapping[str, str]:
        if declared is None:
            raise AttributeError  # which tells a dataclass that there is no default
        columns: Mapping[str, str] = vars(declared)["columns"]
        return columns

    def __set__(self, declared: Any, given: Mapping[str, str] | str) -> None:
        within = declared.topic.name
        columns = list(_listed(within, given) if isinstance(given, str) else given.items())
        if not columns:
            raise ConfigurationError(f"{within}: columns is empty: must have at least one column")
        known: set[str] = set()
        for name, sql in columns:
            if not name.strip() or not sql.strip():
                raise ConfigurationError(
                    f"{within}: column {name or repr(name)}: {sql or repr(sql)}: must not be empty"
                )
            if name.lower() in known:  # Spark takes no notice of case
                raise ConfigurationError(f"{within}: column {name} is declared twice: give each a name of its own")
            known.add(name.lower())
        vars(declared)["columns"] = dict(columns)


COLUMNS = Columns()
"""What the field of such a dataclass is set to; a declaration must give its columns all the same."""


def refuse_wrong_pii(within: str, names: Iterable[str], columns: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Raises ConfigurationError for personal data that is no column, or is one of the `others`, by what these are."""
    for name in names:
        if name not in columns:
            raise ConfigurationError(f"{within}: pii {name}: must be one of {', '.join(columns)}")
        if name in others:
            told = "by which tables, messages and people name rows: it can't be masked"
            raise ConfigurationError(f"{within}: pii {name}: is of {others[name]}, {told}")


def _listed(within: str, text: str) -> Iterator[tuple[str, str]]:
    """The names and the SQL of the columns in a list."""
    try:
        tokens = tokenize(text, dialect="spark")
    except TokenError as error:
        raise ConfigurationError(f"{within}: columns: {text}: {why_not_sql(error, text)[1]}") from None
    if wrong := _unpaired(tokens):
        raise ConfigurationError(f"{within}: columns: {text}: {wrong}")
    before = ""
    for column in _parts(tokens) if tokens else ():
        if not column and before:
            raise ConfigurationError(f"{within}: columns: no column follows the comma after `{before}`")
        sql = text[column[0].start : column[-1].end + 1] if column else ""
        match column:
            case [name] if name.token_type not in _NO_NAMES:
                yield name.text, sql
            case [*value, alias, name] if value and alias.token_type is TokenType.ALIAS:
                yield name.text, text[value[0].start : value[-1].end + 1]
            case [first, second] if not {first.token_type, second.token_type} - {TokenType.VAR}:
                told = f"must be a name, or SQL AS name: is a comma missing before `{second.text}`?"
                raise ConfigurationError(f"{within}: columns: {sql}: {told}")
            case _:
                raise ConfigurationError(f"{within}: columns: {sql or repr(sql)}: must be a name, or SQL AS name")
        before = sql


def _unpaired(tokens: list[Token]) -> str:
    """What is wrong with the first bracket that has no other one; empty if each has."""
    opened: list[str] = []
    before = ""
    for token in tokens:
        if token.token_type in _OPEN:
            opened.append(f"the `{token.text}` after `{before}`")
        elif token.token_type in _CLOSE:
            if not opened:
                return f"the `{token.text}` after `{before}` was never opened"
            opened.pop()
        before = token.text
    return f"{opened[-1]} is never closed" if opened else ""


def _parts(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens between the commas that are in no brackets."""
    depth, part = 0, list[Token]()
    for token in tokens:
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if token.token_type is TokenType.COMMA and depth == 0:
            yield part
            part = []
        else:
            part.append(token)
    yield part
