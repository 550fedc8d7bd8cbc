"""Commands that are imported when they are called: each waits for what it needs itself, and `--help` for none."""

import ast
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Late:
    """A function of this package that is a command, or a group of commands that is a `typer.Typer`."""

    panel: str
    """The panel of `--help` that shows it."""
    module: str
    name: str
    help: str = ""
    """Of a group. That of a function is its docstring."""
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        """The command under this name, or the group. Its module is imported."""
        found = getattr(import_module(f"{__package__}.{self.module}"), self.name)
        app = typer.Typer(rich_markup_mode="rich")
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=self.help)
        else:
            app.command(name, context_settings=self.settings)(found)
        return typer.main.get_group(app).commands[name]

    def summary(self) -> str:
        """The help of a group, or the docstring of the function; it is read, and its module is not imported."""
        return self.help or _docstrings(self.module)[self.name]


def _docstrings(module: str) -> dict[str, str]:
    spec = find_spec(f"{__package__}.{module}")
    assert spec is not None
    assert spec.origin is not None
    nodes = ast.parse(Path(spec.origin).read_text()).body
    return {each.name: ast.get_docstring(each) or "" for each in nodes if isinstance(each, ast.FunctionDef)}


class _Commands(Mapping[str, Any]):
    def __init__(self, late: Mapping[str, Late]) -> None:
        self._late = late

    def __getitem__(self, name: str) -> Any:
        return self._late[name].load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._late)

    def __len__(self) -> int:
        return len(self._late)


def group_of(late: Mapping[str, Late]) -> type[TyperGroup]:
    """A group of these commands."""

    class LateGroup(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.commands = _Commands(late)  # type: ignore[assignment]  # nobody adds any

        def format_help(self, ctx: Any, formatter: Any) -> None:
            brief = copy(self)
            brief.commands = {
                name: TyperCommand(name, help=each.summary(), rich_help_panel=each.panel) for name, each in late.items()
            }
            super(LateGroup, brief).format_help(ctx, formatter)

    return LateGroup
