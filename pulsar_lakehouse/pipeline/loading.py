"""Find the declarations in a project's folder, and refuse all of its mistakes at once.

Each Python file is imported once, as `declarations.<its name>`, one statement after the other. So a mistake in one
declaration does not hide those in others, and each is told with its file, line and name.
"""

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from itertools import takewhile
from pathlib import Path
from types import CodeType, ModuleType

from pulsar_lakehouse.contracts.functions import function
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.sources import DeltaTable, Files, Postgres
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.sql.declaration import SqlTable, declared_in, with_parameters
from pulsar_lakehouse.near import did_you_mean, nearest
from pulsar_lakehouse.pipeline.checks import mistakes_of, mistakes_together, topics_twice
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import DECLARATIONS, Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.functions import Function, declare
from pulsar_lakehouse.terminal import one_line, shown

KINDS = (Entity, Enrichment, Function)
PARTS = {
    each.__name__: each
    for each in (Entity, Enrichment, function, Topic, Lookup, Match, Postgres, Files, DeltaTable, Service)
}
"""What a file can declare, and what such a declaration is made of."""

OF_SQL = "types are those of the SQL: leave it out, and write a CAST where they differ"
UNNAMED = "_unnamed"
"""The name of what a file declares without giving it one."""
GONE = {
    "epoch_millis": "declare the field as TIMESTAMP_MILLIS",
    "unless_deleted": "declare `checks`, which hold of rows that are not deleted",
    "rules": "declare `checks`",
    "types": OF_SQL,
    "key_type": OF_SQL,
}
"""Names that 0.1.0 had, and what takes their place."""
MOVED = ("gold.enrichment.declaration", "lakehouse.contracts.checks", "lakehouse.contracts.topics", "silver.entity")
"""Modules from which declarations imported in 0.1.0. In a checkout, some of them are still there."""


@dataclass(frozen=True)
class Project:
    """The declarations of a folder, and where each of them stands."""

    pipeline: Pipeline
    places: dict[int, str]
    """File, line and name, by the id of the declaration."""

    def place(self, declared: object) -> str:
        return f"{declared.at}:1" if isinstance(declared, SqlTable) else self.places[id(declared)]


def pipeline_of(settings: Settings) -> Pipeline:
    """The pipeline of the project. Raises DeclarationsError if it has mistakes.

    Raises ConfigurationError for settings of parameters that it does not declare.
    """
    project = load(settings.declarations)
    pipeline = project.pipeline
    refuse(list(topics_twice(pipeline, project.place, settings.pulsar.namespace)))
    if not settings.parameters:
        return pipeline
    return replace(pipeline, sql_tables=with_parameters(pipeline.sql_tables, settings.parameters))


def load(folder: Path) -> Project:
    """The project in a folder, whose functions SQL can call from now on.

    Raises DeclarationsError if it has mistakes.
    """
    project = _loaded(folder)
    declare(project.pipeline.functions)
    return project


@cache
def _loaded(folder: Path) -> Project:
    files = _Files(folder)
    files.read()
    files.mistakes += _unread(folder)
    tables: tuple[SqlTable, ...] = ()
    try:
        tables = declared_in(folder / "sql")
    except ConfigurationError as error:
        files.mistakes += str(error).splitlines()
    found = files.found
    entities = tuple(each for each in found if isinstance(each, Entity))
    enrichments = tuple(each for each in found if isinstance(each, Enrichment))
    functions = tuple(each for each in found if isinstance(each, Function))
    declare(functions)
    pipeline = Pipeline(entities=entities, enrichments=enrichments, sql_tables=tables, functions=functions)
    project = Project(pipeline, files.places)
    # What is missing because of one mistake would only be told as another.
    refuse(files.mistakes or list(mistakes_together(pipeline, project.place)))
    if not (entities or enrichments):
        raise ConfigurationError(f"{shown(folder)}: no file declares an Entity or an Enrichment at its top level")
    return project


def refuse(mistakes: Sequence[str]) -> None:
    """Raises ConfigurationError with a line for each mistake, if there are any."""
    if mistakes:
        raise DeclarationsError([one_line(line) for line in mistakes])


@dataclass
class _Files(MetaPathFinder, Loader):
    """The Python files of a folder: while they are read, they are found under the package `declarations`."""

    folder: Path
    found: list[Entity | Enrichment | Function] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    """Names that have no value because of a mistake, and so explain others."""

    def read(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == DECLARATIONS]:
            del sys.modules[name]
        package = ModuleSpec(DECLARATIONS, None, is_package=True)
        package.submodule_search_locations = [str(self.folder)]
        sys.modules[DECLARATIONS] = module_from_spec(package)
        sys.meta_path.insert(0, self)
        try:
            for file in sorted(self.folder.glob("*.py")):
                if file.stem != "__init__":
                    importlib.import_module(f"{DECLARATIONS}.{file.stem}")
        finally:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        file = self.folder / f"{module}.py"
        return spec_from_file_location(name, file, loader=self) if package == DECLARATIONS and file.is_file() else None

    def exec_module(self, module: ModuleType) -> None:
        file = str(module.__file__)
        try:
            tree = ast.parse(Path(file).read_bytes(), file)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", 1)
            self.mistakes.append(f"{shown(Path(file))}:{line}: {getattr(error, 'msg', error)}")
            self.failed.add(module.__name__)
            return
        for statement in tree.body:
            self._run(statement, module)

    def _run(self, statement: ast.stmt, module: ModuleType) -> None:
        names = list(_bound(statement))
        place = ": ".join(filter(None, (f"{shown(Path(str(module.__file__)))}:{statement.lineno}", ", ".join(names))))
        try:
            if moved := "\n".join(_moved(statement)):
                raise ConfigurationError(moved)
            exec(_compiled(statement, str(module.__file__)), module.__dict__)
        except Exception as error:  # whatever a file raises is a mistake in it
            if not self._follows(error):
                self.mistakes += [f"{place}: {line}" for line in _reason(error).splitlines()]
            imported = statement.names if isinstance(statement, ast.ImportFrom | ast.Import) else ()
            names += [alias.asname or alias.name for alias in imported]
            self.failed |= {f"{module.__name__}.{name}" for name in names}
            return
        for name, value in list(vars(module).items()):
            if not name.startswith("__"):
                self._keep(name, value, place, module)

    def _keep(self, name: str, value: object, place: str, module: ModuleType) -> None:
        """Keep what a name has come to declare; one with mistakes is treated as if it were not there."""
        for each in _held(value):
            if id(each) not in self.places:
                if wrong := list(mistakes_of(each)):
                    self.mistakes += [f"{place}: {line}" for line in wrong]
                    self.failed.add(f"{module.__name__}.{name}")
                    delattr(module, name)
                    return
                self.found.append(each)
                self.places[id(each)] = place

    def _follows(self, error: Exception) -> bool:
        """Whether a statement fails only because another one did."""
        failed = {name.rpartition(".")[2] for name in self.failed}
        if isinstance(error, ImportError):
            return any(name == error.name or name.startswith(f"{error.name}.") for name in self.failed)
        return isinstance(error, NameError) and bool(nearest(error.name or "", failed, cutoff=0.8))


def _held(value: object, depth: int = 3) -> Iterator[Entity | Enrichment | Function]:
    """The declarations that a value is, or has in it: as the element of a list, say."""
    if isinstance(value, KINDS):
        yield value
    elif depth and isinstance(value, tuple | list | set | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _held(each, depth - 1)


def _compiled(statement: ast.stmt, file: str) -> CodeType:
    """The statement. The value of one that is only an expression gets a name, so that what it declares is found."""
    if isinstance(statement, ast.Expr):
        name = ast.Name(UNNAMED, ast.Store())
        statement = ast.fix_missing_locations(ast.copy_location(ast.Assign([name], statement.value), statement))
    return compile(ast.Module([statement], []), file, "exec")


def _unread(folder: Path) -> Iterator[str]:
    """A line for each file in a folder where nothing is read, and for each SQL file that is not among the others."""
    in_sql = folder / "sql"
    beside = [*folder.parent.glob("*.sql"), *(folder.parent / "sql").glob("*.sql")]
    for file in sorted((*folder.rglob("*.[sS][qQ][lL]"), *beside)):
        is_read = file.parent == in_sql and file.suffix == ".sql"
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder.parent).parts)
        if not is_read and not is_hidden and _is_declared(file):
            yield f"{shown(file)}:1: is not read: SQL tables are files such as {shown(in_sql / file.stem.lower())}.sql"
    for file in sorted(folder.glob("*/*.py")):
        if _declares(file):
            yield f"{shown(file)}:1: is not read: declarations are files such as {shown(folder / file.name)}"


def _is_declared(file: Path) -> bool:
    """Whether a SQL file has the header of a declaration; others are queries."""
    try:
        with file.open(errors="replace") as lines:
            header = takewhile(lambda line: line.startswith("--") or not line.strip(), lines)
            return any(re.match(r"--\s*(keys|refresh)\s*:", line) for line in header)
    except OSError:  # it is a folder, or another user's
        return False


def _declares(file: Path) -> bool:
    return re.search(r"(?m)^\w+ *= *(Entity|Enrichment)\(", file.read_text(errors="replace")) is not None


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names to which a statement assigns, or that it defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", statement)]
    for target in targets:
        if isinstance(target, ast.Name | ast.Tuple):
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _moved(statement: ast.stmt) -> Iterator[str]:
    """What to write in place of an import that 0.1.0 had."""
    if isinstance(statement, ast.ImportFrom) and statement.module in MOVED:
        yield from (_gone(alias.name) for alias in statement.names if alias.name in GONE)
        if kept := [alias for alias in statement.names if alias.name not in GONE]:
            now = ast.unparse(ast.ImportFrom("pulsar_lakehouse", kept, 0))
            yield f"{statement.module}: gone since 0.1.0: {now}"


def _gone(name: str) -> str:
    return f"{name}: gone since 0.1.0: {GONE[name]}"


def _reason(error: Exception) -> str:
    if isinstance(error, ConfigurationError):
        return str(error)
    named = re.search(r"(?:unexpected keyword argument|cannot import name) '(\w+)'", str(error))
    if named and named[1] in GONE:
        return _gone(named[1])
    if isinstance(error, TypeError) and (found := re.match(r"(\w+)(?:\.__init__)?\(\) (.*)", str(error))):
        return _wrong_arguments(*found.groups()) or f"TypeError: {error}"
    return _wrong_name(error) or f"{type(error).__name__}: {error}"


def _wrong_arguments(kind: str, problem: str) -> str:
    """What is wrong with the arguments of a declaration; empty if it is something else."""
    names = list(signature(PARTS[kind]).parameters) if kind in PARTS else []
    if wrong := re.search(r"unexpected keyword argument '(\w+)'", problem):
        return f"{wrong[1]}: {kind} has no such argument{did_you_mean(wrong[1], names)}"
    if "required keyword-only argument" in problem and kind in PARTS:
        return f"{kind} needs " + ", ".join(re.findall(r"'(\w+)'", problem))
    if "positional argument" in problem and names:
        return f"{kind} takes its arguments by name, such as {kind}({names[0]}=...)"
    return ""


def _wrong_name(error: Exception) -> str:
    """Which name is not there, and one that is; empty for other errors."""
    name = getattr(error, "name", None) or ""
    match error:
        case NameError() if name:
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            known = [*frame.tb_frame.f_globals, *frame.tb_frame.f_locals] if frame else []
            return f"{name}: no such name{did_you_mean(name, known)}"
        case AttributeError() if name:
            of = getattr(error.obj, "__name__", type(error.obj).__name__)
            return f"{name}: {of} has no such name{did_you_mean(name, dir(error.obj))}"
        case ModuleNotFoundError() if name:
            parent, _, last = name.rpartition(".")
            folders = getattr(sys.modules.get(parent), "__path__", ())
            known = [each.name for each in pkgutil.iter_modules(folders)] if parent else []
            near = nearest(last, known)
            return f"{name}: no such module{f'; did you mean {parent}.{near}?' if near else ''}"
        case ImportError() if found := re.match(r"cannot import name '(\w+)'", str(error)):
            module = sys.modules.get(name)
            known = [*getattr(module, "__all__", ()), *dir(module)]
            return f"{found[1]}: {name} has no such name{did_you_mean(found[1], known)}"
    return ""
