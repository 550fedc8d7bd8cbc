import re

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakehouse.contracts.ddl import parse_fields

DDL = (
    "id BIGINT NOT NULL, city STRING",
    "a boolean, b INT, c integer, d long not  null, e Double",
    "id: BIGINT, `of day`: STRING NOT NULL, `date` INT",
    "\n  id BIGINT NOT NULL,\n  first_name STRING\n",
)
TYPES = "BOOLEAN, INT, INTEGER, BIGINT, LONG, DOUBLE, STRING, or one with NOT NULL"
WRONG = {
    "": "'' is no field: must be a name and a type, such as city STRING",
    "id BIGINT, city": "'city' is no field: must be a name and a type, such as city STRING",
    "id BIGINT,": "'' is no field: must be a name and a type, such as city STRING",
    "id BIGINT NOT": f"field id is BIGINT NOT: must be one of {TYPES}",
    "id BIGINT PRIMARY KEY": f"field id is BIGINT PRIMARY KEY: must be one of {TYPES}",
    "id BIGINT; city STRING": f"field id is BIGINT; city STRING: must be one of {TYPES}",
    "price DECIMAL(18, 2) NOT NULL": f"field price is DECIMAL(18, 2): must be one of {TYPES}",
    "id BIGINT, id STRING": "field id is declared twice",
}


def test_it_reads_what_spark_reads(spark: SparkSession) -> None:
    assert [parse_fields(ddl) for ddl in DDL] == [StructType.fromDDL(ddl) for ddl in DDL]


@pytest.mark.parametrize(("ddl", "reason"), WRONG.items())
def test_what_it_can_not_read_is_said(ddl: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        parse_fields(ddl)
