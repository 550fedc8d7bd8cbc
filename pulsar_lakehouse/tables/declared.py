"""Declares Delta tables. Nothing here needs Spark but the schema of a table."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

Ddl = str | Callable[[], str]
"""Columns as Spark DDL, or what derives it: a function that needs Spark."""


def as_ddl(columns: Ddl) -> str:
    return columns if isinstance(columns, str) else columns()


def ddl_of(columns: StructType) -> str:
    """Columns as DDL."""
    return ", ".join(f"`{column.name}` {sql_type(column.dataType)}" for column in columns)


def sql_type(kind: DataType) -> str:
    """A type as DDL has it: the name of a field that is no word, such as `http.method`, is quoted."""
    match kind:
        case StructType():
            return f"struct<{','.join(f'{quoted(field.name)}:{sql_type(field.dataType)}' for field in kind)}>"
        case ArrayType():
            return f"array<{sql_type(kind.elementType)}>"
        case MapType():
            return f"map<{sql_type(kind.keyType)},{sql_type(kind.valueType)}>"
    return kind.simpleString()


def quoted(name: str) -> str:
    """The name of a field in DDL."""
    return name if re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII) else f"`{name}`"


NAME = re.compile(r"[a-z][a-z0-9_]*")
"""The name of a table, a column or a check. SQL does not tell upper from lower case, but files and other readers do."""
NO_NAME = re.compile(r"[ ,;{}()\n\t=`]")
"""What Delta takes in no name; and what quotes names."""


def unstorable_names(kind: DataType) -> Iterator[str]:
    """The names of fields within a type that no table can have."""
    match kind:
        case StructType():
            for field in kind:
                yield from [field.name] if NO_NAME.search(field.name) else ()
                yield from unstorable_names(field.dataType)
        case ArrayType():
            yield from unstorable_names(kind.elementType)
        case MapType():
            yield from unstorable_names(kind.keyType)
            yield from unstorable_names(kind.valueType)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Delta table. `name` is `layer.table`. Only its columns may need Spark."""

    name: str
    columns: Ddl
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties, https://docs.delta.io/latest/table-properties.html"""

    @property
    def ddl(self) -> str:
        """The columns as Spark DDL."""
        return as_ddl(self.columns)

    @property
    def schema(self) -> StructType:
        """The declared columns. Needs Spark."""
        declared = StructType.fromDDL(self.ddl)
        assert isinstance(declared, StructType)
        return declared


MADE_FROM = "lakehouse.madeFrom"
"""The property of a table that has its definition."""

Definition = Mapping[str, str]
"""What the rows of a table are made from, by name, such as `key`, `column city` and `lookup user`."""


def made_from(definition: Definition) -> dict[str, str]:
    """The property, for a table that is created."""
    return {MADE_FROM: json.dumps(definition)}


POSITION = "STRUCT<partition: INT, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT>"
"""The position in its topic of the message that a row was made from."""
POSITION_OF_ROW = f"{POSITION[:-1]}, row: INT>"
"""The position of a row, where a message can have many: that of the message, and the row's place in its array, from 0.
It is -1 for a message as a whole, such as one that breaks its contract."""
POSITION_OF_MESSAGE = "struct(partition, ledger_id, entry_id, batch_index)"
"""SQL of the position, over a bronze table."""

KEEP = timedelta(days=7)
"""How long commits, and files that left a table, are kept: a stream or a reader may still need them."""
FEED = KEEP - timedelta(days=1)
"""How long a change feed is certain to be complete."""

LOG_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
EACH_TABLE = {"delta.logRetentionDuration": f"interval {KEEP.days} days", LOG_CHECKPOINT_INTERVAL: "10"}
"""Properties of all tables. A log must not be kept longer than the files that it names.

Log checkpoints are made as often as Spark makes them by default, until `lakehouse maintain` finds that they are large.
"""

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting of a session that says why its commits are made. `lakehouse trace` tells that."""

COMMITS = "_delta_log/[0-9]*.json"
LAST_LOG_CHECKPOINT = "_delta_log/_last_checkpoint"


def commit_file(version: int) -> str:
    """The path of a commit within its table."""
    return f"_delta_log/{version:020}.json"
