"""How far streams have read Delta tables, as Delta's source notes it in their checkpoints."""

from contextlib import suppress

from pydantic import BaseModel, Field, ValidationError


class TableOffset(BaseModel, populate_by_name=True):
    source_version: int = Field(default=1, alias="sourceVersion")
    table_id: str = Field(alias="reservoirId")
    version: int = Field(alias="reservoirVersion")
    index: int
    """The last file of the version that was read; negative if nothing of the version was."""
    is_first: bool = Field(alias="isStartingVersion", default=False)
    """Whether the stream still reads the rows that the table had in the version with which it began."""

    @property
    def last_read(self) -> int:
        """The last version that a stream has reached which reads whole versions."""
        return self.version - 1 if self.index < 0 else self.version

    @property
    def all_read(self) -> int:
        """The last version that was surely read to its end; -1 if none was."""
        return -1 if self.is_first else self.version - 1


def behind(table_id: str, version: int) -> str:
    """The offset, as JSON, of a stream that has read a version to its end, and nothing of the next one."""
    return TableOffset(table_id=table_id, version=version + 1, index=-1).model_dump_json(by_alias=True)


def table_offsets(lines: str) -> list[TableOffset]:
    """Those lines of a batch's file in `offsets` that are whole, and of a table."""
    found = []
    for line in lines.splitlines():
        with suppress(ValidationError):
            found.append(TableOffset.model_validate_json(line))
    return found
