"""What `lakehouse plan` says about the tables that exist: how they differ from their declarations, and what to do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from pulsar_lakehouse.bronze.schemas import unreadable
from pulsar_lakehouse.bronze.source_readers import why_unread
from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.contracts.sources import Source
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.inspection.row_counts import rows_and_bytes
from pulsar_lakehouse.jobs.planning import Change, approve_all, changes, resolve
from pulsar_lakehouse.jobs.rebuild import wanted
from pulsar_lakehouse.jobs.steps import open_lake, open_lake_between_rounds
from pulsar_lakehouse.pipeline.graph import nodes
from pulsar_lakehouse.pipeline.loading import Project
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.definitions import APPROVE, rebuild_command
from pulsar_lakehouse.tables.stored import is_stored, stored_table


def show(settings: Settings, project: Project, *, approve: bool, as_json: bool) -> None:
    """Compare with the tables that exist, and print it. Raises PermanentError if values would be lost.

    With `approve`, these changes are accepted.
    """
    pipeline = project.pipeline
    written = [*pipeline.written, *(table.name for table in pipeline.sql_tables)]
    opened = open_lake_between_rounds(settings, written) if approve else open_lake(settings, writes=[])
    with opened as lake, spinner("Resolving SQL, and comparing with the tables that exist"):
        columns = resolve(lake, project)
        approved = list(approve_all(lake, project, columns)) if approve else []
        plan = Compared(settings, project, changes(lake, project, columns))
    if as_json:
        shapes.show(plan.shape())
    else:
        show_changes(plan)
        for line in approved:
            report.say(line)
        for name, line in plan.unreadable:
            report.say(f"{name}: {line}: its messages are malformed until that is declared")
        for entity, why in plan.unread:
            report.say(f"{project.place(entity)}: {why}: nothing of it lands until that is right")
    if losing := dict.fromkeys(each.table for each in plan.differing if each.loses):
        also = f"`{plan.command}`, or " if plan.command.startswith("lakehouse rebuild") else ""
        raise PermanentError(f"{', '.join(losing)}: values would be lost: no run writes there before {also}`{APPROVE}`")


@dataclass(frozen=True)
class Compared:
    """The changes by table, and how much they concern."""

    settings: Settings
    project: Project
    found: Mapping[str, Sequence[Change]]

    @cached_property
    def differing(self) -> list[Change]:
        return [each for of_table in self.found.values() for each in of_table]

    @property
    def unchanged(self) -> list[str]:
        return [name for name, of_table in self.found.items() if not of_table]

    @cached_property
    def unreadable(self) -> list[tuple[str, str]]:
        topics = self.project.pipeline.topics
        return [(topic.name, line) for topic in topics for line in unreadable(self.settings, topic)]

    @cached_property
    def unread(self) -> list[tuple[Entity, str]]:
        """Entities whose source can't be read, and why."""
        sources = [(each, each.source) for each in self.project.pipeline.sources]
        read = [(each, source) for each, source in sources if isinstance(source, Source)]
        return [(each, why) for each, source in read if (why := why_unread(self.settings, source))]

    @property
    def rebuilt(self) -> list[str]:
        """The tables to rebuild."""
        return sorted({each.rebuild for each in self.differing if each.rebuild})

    @property
    def command(self) -> str:
        """The one that brings the tables to the declarations; empty if the next run and refresh do."""
        return rebuild_command(self.rebuilt) if self.rebuilt else ""

    @property
    def reads(self) -> int:
        """The bytes of bronze that the command reads."""
        chosen = wanted(self.project.pipeline, self.rebuilt)
        topics = [*(each.topic for each in chosen.entities), *(each.topic for each in chosen.enrichments)]
        return sum(size(self.settings, topic.bronze_table)[1] or 0 for topic in topics)

    def shape(self) -> shapes.Plan:
        return shapes.Plan(
            tables=[shapes.Declared(**asdict(each)) for each in nodes(self.project.pipeline)],
            changes=[self._shape_of(each) for each in self.differing],
            unchanged=self.unchanged,
            unreadable=[
                *(shapes.Unreadable(topic=name, why=line) for name, line in self.unreadable),
                *(shapes.Unreadable(topic=each.name, why=why) for each, why in self.unread),
            ],
            command=self.command,
            reads=self.reads,
        )

    def _shape_of(self, change: Change) -> shapes.Change:
        return shapes.Change(
            table=change.table,
            what=change.what,
            then=change.then,
            kind=change.kind,
            loses=change.loses,
            rebuild=change.rebuild,
            rows=size(self.settings, change.table)[0],
            downstream=[
                shapes.Concerned(name=name, columns=columns, rows=size(self.settings, name)[0])
                for name, columns in change.downstream.items()
            ],
        )


def size(settings: Settings, name: str) -> tuple[int | None, int | None]:
    """The rows and bytes of a table; None for what is no table, or does not exist yet."""
    if " " in name or not is_stored(settings, name):
        return None, None
    return rows_and_bytes(stored_table(settings, name))


def show_changes(plan: Compared) -> None:
    """Print what differs from each table that exists, what that concerns, and the command for it."""
    if plan.differing and all(each.what == "new" for each in plan.differing) and all(plan.found.values()):
        report.say("No table exists yet: `lakehouse run` makes them, and `lakehouse refresh` those that SQL declares")
        return
    if plan.differing:
        columns, rows = (
            ("table", "what differs", "change", "what happens"),
            ((each.table, each.what, each.kind, each.then) for each in plan.differing),
        )
        report.OUT.print(report.grid(columns, rows, title="Compared with the tables that exist"))
    if concerned := list(_concerned(plan)):
        report.OUT.print(report.grid(("concerned", "columns", "rows", "by changes of"), concerned, title="Downstream"))
    report.say(f"Unchanged: {', '.join(plan.unchanged) or 'none'}")
    if plan.command:
        read = f"{plan.reads / 1_000_000:,.1f} MB of bronze are read"
        report.say(f"`{plan.command}` makes these again, and what depends on them: {read}")
    elif any(each.kind != "additive" for each in plan.differing):
        report.say("No table needs a rebuild")


def _concerned(plan: Compared) -> Iterable[tuple[str, str, str, str]]:
    """Everything behind the changes, once: the columns that change there, and the tables from which that comes."""
    names = [node.name for node in nodes(plan.project.pipeline)]
    for name in names:
        by = [each for each in plan.differing if name in each.downstream]
        if by:
            found = [each.downstream[name] for each in by]
            columns = sorted({column for each in found for column in each}) if all(found) else ["all"]
            rows, _ = size(plan.settings, name)
            tables = dict.fromkeys(each.table for each in by)
            yield name, ", ".join(columns), "" if rows is None else f"{rows:,}", ", ".join(tables)
