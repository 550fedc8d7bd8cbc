"""Parse the SQL of declared tables, and find the tables that it reads."""

import re
from collections.abc import Iterator
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pulsar_lakehouse.contracts.not_sql import why_not_sql
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.terminal import shown

DIALECT = "spark"
_TABLE = re.compile(r"[a-z]\w*\.[a-z]\w*")
_LITERALS = (exp.Literal, exp.Boolean, exp.Neg, exp.Cast, exp.Interval, exp.Concat)


def parsed(file: Path, sql: str) -> exp.Query:
    """The query of a file. Raises ConfigurationError, with file and line, unless it is one that reads tables."""
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=DIALECT) if tree is not None]
    except SqlglotError as error:
        line, reason = why_not_sql(error, sql)
        if re.search(r"(?i)\bGROUP\s+BY\s+window\s*\(", sql):
            reason = "put another key before window() in GROUP BY, or parentheses around it"
        raise ConfigurationError(f"{shown(file)}:{line}: not SQL: {reason}") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise ConfigurationError(f"{shown(file)}:1: the file must have a header and one SELECT")
    for node in tables_in(trees[0]):
        at = f"{shown(file)}:{line_of(node)}"
        if not _TABLE.fullmatch(name_of(node)):
            raise ConfigurationError(f"{at}: reads {node.sql(DIALECT)}: must be a table such as silver.users")
        if extra := [part for part, value in node.args.items() if value and part not in ("this", "db", "alias")]:
            raise ConfigurationError(f"{at}: {name_of(node)} is read with {', '.join(extra)}: only an alias is allowed")
    if not next(tables_in(trees[0]), None):
        raise ConfigurationError(f"{shown(file)}:1: the SELECT reads no table")
    return trees[0]


def literal(text: str) -> exp.Expr | None:
    """The literal that a text is, such as `1`, `'none'` or `DATE '2026-01-01'`; None if it is something else."""
    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT)
    except SqlglotError:
        return None
    is_fixed = isinstance(tree, _LITERALS) and not tree.find(exp.Column, exp.Query, exp.Placeholder, exp.Anonymous)
    return tree if is_fixed else None


def parameters_in(tree: exp.Query) -> list[str]:
    """The names of the parameter markers, such as `hours` for `:hours`."""
    return list(dict.fromkeys(node.name for node in tree.find_all(exp.Placeholder)))


def tables_in(tree: exp.Expr) -> Iterator[exp.Table]:
    """All tables that are read, without names defined by WITH."""
    given = {each.alias for each in tree.find_all(exp.CTE)}
    return (node for node in tree.find_all(exp.Table) if node.args.get("db") or node.name not in given)


def name_of(node: exp.Table) -> str:
    return f"{node.db}.{node.name}" if node.db else node.name


def line_of(node: exp.Expr) -> int:
    """The line where a part of a query begins, as far as it is known."""
    return next((int(part.meta["line"]) for part in node.walk() if "line" in part.meta), 1)
