"""A disk that lies: a flipped bit, an old file in place of a new one, and a lost file are noticed, and told."""

import random
import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pulsar_lakehouse.damage import DamagedError
from pulsar_lakehouse.inspection.file_checks import check_table
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.declared import commit_file
from pulsar_lakehouse.tables.direct import Merge, append_arrow, compact, merge
from pulsar_lakehouse.tables.stored import files_of, stored_table
from tests.damage.flips import (
    NAMES,
    ROWS,
    Outcome,
    by_check,
    by_delta_rs,
    by_duckdb,
    drawn,
    outcome_of,
    write,
)

NAME = NAMES["delta-rs"]


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    """A table with a file of each of two commits."""
    settings = load_settings(home=tmp_path)
    DeltaTable.create(settings.table_path(NAME), ROWS.schema)
    append_arrow(settings, NAME, ROWS)
    append_arrow(settings, NAME, ROWS.slice(7, 100))
    return settings


def file_of(project: Settings, rows: int) -> Path:
    (found,) = (row["path"] for row in files_of(stored_table(project, NAME)).to_pylist() if row["num_records"] == rows)
    return Path(project.table_path(NAME), found)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def faults(project: Settings) -> list[tuple[str, str]]:
    return [(Path(each.file).name, each.what) for each in check_table(project, NAME).faults]


def test_no_flipped_bit_gives_wrong_rows(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    write(settings, NAME)
    readers = {"delta-rs": by_delta_rs, "DuckDB": by_duckdb, "check": by_check}
    truth = {reader: read(settings, NAME) for reader, read in readers.items()}
    found = Counter[tuple[str, Outcome]]()
    for each in islice(drawn(settings, NAME, random.Random(1)), 60):
        with each.made():
            for reader, read in readers.items():
                found[reader, outcome_of(read, settings, NAME, truth[reader])] += 1
    assert found["check", Outcome.NOTICED] == 60
    assert {reader: found[reader, Outcome.SILENT] for reader in readers} == dict.fromkeys(readers, 0)


def test_nothing_is_wrong_with_a_table_that_is_as_it_was_written(project: Settings) -> None:
    compact(project, NAME, stored_table(project, NAME))
    checked = check_table(project, NAME)
    assert (checked.files, checked.unsummed, checked.faults) == (1, 0, [])


def test_a_damaged_file_is_neither_merged_nor_compacted(project: Settings) -> None:
    file = file_of(project, 100)
    flip(file)
    line = f"^silver.of_delta_rs: {file.name} is damaged .its checksums differ.: `lakehouse rebuild silver.of_delta_rs "
    table = stored_table(project, NAME)
    with pytest.raises(DamagedError, match=line):
        compact(project, NAME, table)
    with pytest.raises(DamagedError, match=line):
        merge(project, NAME, table, ROWS.slice(0, 1), Merge(on=["id"], delete=True))
    with pytest.raises(DamagedError, match=line):
        query(project, f"SELECT * FROM {NAME}")
    assert faults(project) == [(file.name, "is not as it was written")]


def test_a_file_of_yesterday_is_noticed(project: Settings) -> None:
    today, yesterday = file_of(project, 2000), file_of(project, 100)
    shutil.copy(yesterday, today)
    sizes = today.stat().st_size, stored_table(project, NAME).get_add_actions()
    written = max(pa.table(sizes[1])["size_bytes"].to_pylist())
    assert faults(project) == [(today.name, f"has {sizes[0]:,} bytes, and {written:,} in the log")]
    with pytest.raises(DamagedError, match=rf"is damaged \(it has {sizes[0]:,} bytes of {written:,}\)"):
        query(project, f"SELECT count(*) FROM {NAME}")


def test_a_lost_file_is_noticed(project: Settings) -> None:
    file_of(project, 100).unlink()
    assert [what for _, what in faults(project)] == ["is missing"]


def test_a_file_that_does_not_have_the_rows_of_the_log_is_noticed(project: Settings) -> None:
    """Without checksums, as of a table of others."""
    path = Path(project.table_path(NAME))
    commit = path / commit_file(1)
    commit.write_text(commit.read_text().replace('\\"numRecords\\":2000', '\\"numRecords\\":1999'))
    for checksum in path.rglob(".*.crc"):
        checksum.unlink()
    assert [what for _, what in faults(project)] == ["has 2,000 rows, and 1,999 in the log"]


@pytest.mark.parametrize(
    ("version", "of", "what"),
    [(2, 1, "is a copy of version 1"), (2, None, "is torn or damaged"), (1, "", "is missing")],
)
def test_a_log_that_does_not_agree_with_itself_is_noticed(
    project: Settings, version: int, of: int | str | None, what: str
) -> None:
    path = Path(project.table_path(NAME))
    commit = path / commit_file(version)
    if of == "":
        commit.unlink()
    else:
        text = commit.read_text()
        commit.write_text(text[: len(text) // 2] if of is None else (path / commit_file(int(of))).read_text())
    commit.with_name(f".{commit.name}.crc").unlink()
    assert faults(project)[0] == (commit.name, what)


def test_a_checkpoint_of_yesterday_is_noticed(project: Settings) -> None:
    path = Path(project.table_path(NAME))
    DeltaTable(str(path)).create_checkpoint()
    checkpoint = path / commit_file(2).replace("json", "checkpoint.parquet")
    kept = checkpoint.read_bytes()
    append_arrow(project, NAME, ROWS.slice(0, 1))
    DeltaTable(str(path)).create_checkpoint()
    later = path / commit_file(3).replace("json", "checkpoint.parquet")
    later.write_bytes(kept)
    assert faults(project) == [(later.name, "does not have the files of its version")]
