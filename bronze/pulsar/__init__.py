"""A Pulsar data source for Spark 4.2, batch and streaming.

It needs pyspark, pulsar-client, pyarrow, numpy and requests, and nothing else of this project::

    spark.dataSource.register(PulsarDataSource)
    spark.readStream.format("pulsar").options(serviceUrl=…, adminUrl=…, topic=…).load()

README.md beside this file documents options, offsets and guarantees.
"""

from bronze.pulsar.source import SCHEMA, PulsarDataSource

__all__ = ["SCHEMA", "PulsarDataSource"]
