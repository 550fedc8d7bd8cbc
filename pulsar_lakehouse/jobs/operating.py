"""Who runs a command, or sees the page, as a reader. Declarations are loaded only if they may have personal data."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from pulsar_lakehouse.access import Reader, operator, sql_users
from pulsar_lakehouse.audit import command_line, note
from pulsar_lakehouse.settings import Settings

OWN = {"pulsar_lakehouse", *sys.stdlib_module_names} - {"importlib", "runpy", "pkgutil"}


def operator_of(settings: Settings, *, who: str = "", did: str = "") -> Reader:
    """Who runs this command or, if it says so, who does something else. If they see personal data, that is noted."""
    if not may_be_personal(settings.declarations):
        return operator(settings, {}, ())
    from pulsar_lakehouse.jobs.rights import declared_tables, personal_columns  # these load PySpark, for a second
    from pulsar_lakehouse.pipeline.loading import pipeline_of

    pipeline = pipeline_of(settings)
    personal = personal_columns(pipeline)
    if settings.unmasked and personal:
        note(settings, did or command_line(), who=who, unmasked=True)
    return operator(settings, personal, declared_tables(pipeline))


def endpoint_users(settings: Settings) -> dict[str, Reader]:
    """The users of the SQL endpoint. Raises ConfigurationError for wrong grants."""
    if not settings.serve.grants and not may_be_personal(settings.declarations):
        return sql_users(settings, {}, (), layers=(), stored=())
    from pulsar_lakehouse.jobs.rights import sql_users_of

    return sql_users_of(settings)


def may_be_personal(declarations: Path) -> bool:
    """Whether a declaration may have `pii`, as the text of their files tells: one is `pii`, or they import others."""
    for file in declarations.rglob("*.py"):
        text = file.read_text("utf-8", errors="replace")
        try:
            if "pii" in text or not set(_imported(ast.parse(text))) <= OWN:
                return True
        except (SyntaxError, ValueError):  # which loading tells
            return True
    return False


def _imported(tree: ast.Module) -> Iterator[str]:
    """The packages that are imported, without modules of the same folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level != 1:
            yield (node.module or "").partition(".")[0] if node.level == 0 else ".."
        elif isinstance(node, ast.keyword) and node.arg is None:
            yield "**"  # what is declared may come from a file
        elif isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval", "compile"):
            yield node.id
