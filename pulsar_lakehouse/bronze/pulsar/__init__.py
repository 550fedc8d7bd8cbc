"""A Pulsar data source for Spark 4.2, for batch and streaming queries.

It needs pyspark, pulsar-client, pyarrow, numpy and requests, for encrypted messages also cryptography, and nothing else
of this project::

    spark.dataSource.register(PulsarDataSource)
    spark.readStream.format("pulsar").options(serviceUrl=…, adminUrl=…, topic=…).load()

See README.md beside this file for the options, the offsets and the guarantees.
"""

from .source import PulsarDataSource

__all__ = ["PulsarDataSource"]
