import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.contracts.topics import Topic
from lakehouse.errors import ConfigurationError


def test_fields_are_ddl_or_a_struct() -> None:
    fields = StructType([StructField("id", LongType(), nullable=False), StructField("city", StringType())])
    assert Topic("stores", "id BIGINT NOT NULL, city STRING").fields == Topic("stores", fields).fields == fields


@pytest.mark.parametrize(("name", "record"), [("stores", "Stores"), ("opening_hours", "OpeningHours"), ("a-b", "AB")])
def test_a_record_is_named_after_its_topic(name: str, record: str) -> None:
    assert Topic(name, "id BIGINT").record == record


def test_wrong_ddl_is_one_line_that_names_the_topic() -> None:
    with pytest.raises(ConfigurationError, match=r"^topic stores: field city is STRING NOT: must be one of "):
        Topic("stores", "id BIGINT, city STRING NOT")


def test_no_field_takes_the_name_of_the_message() -> None:
    with pytest.raises(ConfigurationError, match=r"^topic posts: field Message: SQL has the message itself under"):
        Topic("posts", "Message STRING")
