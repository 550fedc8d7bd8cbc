"""Where customers are: a folder of files that somebody exports."""

from pulsar_lakehouse import Entity, Files

REGIONS = Entity(
    source=Files("regions", "code STRING NOT NULL, name STRING NOT NULL, manager STRING", path="regions/*.csv"),
    key="code",
    columns="code, name, manager",
)
