"""Where small ends: up to these limits, work is done by this process or planned as small, and above them by Spark.

Measured in `docs/decisions/012`, `043`, `044`, `046` and `049`.
"""

MIB = 2**20

HANDFUL = 1_000
"""Rows up to which to compile code for a query takes longer than to interpret it."""
FEW = 50_000
"""Rows up to which a batch is small: its queries are planned once, what several of them read is cached, state is
reduced to the keys that are looked up, and delta-rs writes the rows."""
FEW_BYTES = 16 * MIB
"""Bytes that few rows may take in Spark's memory: all of them pass through the driver."""
MERGED_BYTES = 64 * MIB
"""Bytes of the files that a MERGE of delta-rs may read: it holds their rows, in four times as much memory."""
COMPACTED_BYTES = 100 * MIB
"""Bytes up to which a file is small, and compacted with others: delta-rs's default."""
READ_BYTES = 256 * MIB
"""Bytes of the files in which Arrow looks for rows. Of what Spark needs for more, planning is the smaller part."""
VERIFIED_BYTES = 512 * MIB
"""Bytes of the files of a table that are verified as a whole before Arrow reads them. Of more, it verifies only the
pages that it reads, which have checksums if Spark has written them."""
FOUND_BYTES = 16 * MIB
"""Bytes of rows that Arrow finds for Spark: all of them pass through its driver."""
SMALL_TABLE_BYTES = 4 * MIB
"""Bytes of the files of a table that is read as a whole."""
KEPT_KEYS_BYTES = 256 * MIB
"""Bytes of keys of files that are kept in memory, of all tables."""
BACKLOG_BYTES = 8 * MIB
"""Bytes of a backlog, as the broker stores it, that is landed without Spark. One process reads more too slowly."""
BACKLOG_MEMORY = 64 * MIB
"""Bytes that its messages may take in memory: they are compressed, and the broker tells sizes late."""
VALIDATED_ROWS = 20_000
"""Rows up to which to compile code for their validation takes longer than it saves: they are held in memory."""
