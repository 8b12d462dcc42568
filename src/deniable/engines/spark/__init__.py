"""Apache Spark as an engine: questions are computed in Spark, and bounded exact sums come out.

A source is `spark:catalog.table`, or `spark:/folder` of Parquet files. Which Spark is used follows from the
environment: `SPARK_REMOTE` is the address of a Spark Connect server (`sc://host:15002`), `SPARK_MASTER` that of a
cluster; without
either, Spark runs inside this process's machine.
"""
