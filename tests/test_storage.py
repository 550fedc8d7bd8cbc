"""What libraries are told about the store, and what they make of it."""

from pathlib import Path

from pulsar_lakehouse.settings import S3, Settings, load_settings
from pulsar_lakehouse.storage import folder, spark_properties, table_options


def test_a_home_on_this_machine_needs_no_store(settings: Settings) -> None:
    assert (spark_properties(settings), table_options(settings)) == ({}, {})


def test_spark_and_others_are_told_the_same() -> None:
    s3 = S3(endpoint="http://minio:9000", region="eu-west-1", path_style=True)
    project = load_settings(warehouse="s3a://bucket/tables", s3=s3)
    assert (
        spark_properties(project).items()
        >= {
            "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
            "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }.items()
    )
    assert (
        table_options(project).items()
        >= {
            "aws_endpoint": "http://minio:9000",
            "aws_region": "eu-west-1",
            "aws_virtual_hosted_style_request": "false",
            "allow_http": "true",
        }.items()
    )


def test_a_folder_that_is_not_there_has_no_files(settings: Settings, tmp_path: Path) -> None:
    assert list(folder(settings, str(tmp_path / "nowhere")).list()) == []
