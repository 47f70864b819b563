"""What Spark imports on its own (it looks for `pyspark_*`): `format("penstock")` needs no register.

The import is instant and never raises: everything else is in `penstock.spark` and is loaded when a
query needs it. Empty without Spark.
"""

from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    __all__: list[str] = []
else:
    if TYPE_CHECKING:
        from pyspark.sql.types import StructType

    class DefaultSource(DataSource):
        """Topics as tables and streams; options are in the documentation of `penstock.spark`."""

        @classmethod
        def name(cls) -> str:
            """The argument of `format`."""
            return "penstock"

        def schema(self) -> "StructType":
            """The columns of a read, from the options and the registry."""
            from penstock.spark.source import read_schema

            return read_schema(self.options)

        def reader(self, schema: "StructType") -> Any:
            """`spark.read`."""
            from penstock.spark.source import batch_reader

            return batch_reader(self.options, schema)

        def streamReader(self, schema: "StructType") -> Any:
            """`spark.readStream`."""
            from penstock.spark.source import stream_reader

            return stream_reader(self.options, schema)

        def writer(self, schema: "StructType", overwrite: bool) -> Any:
            """`df.write`."""
            from penstock.spark.sink import batch_writer

            return batch_writer(self.options, schema, overwrite=overwrite)

        def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:
            """`df.writeStream`."""
            from penstock.spark.sink import stream_writer

            return stream_writer(self.options, schema, overwrite=overwrite)

    __all__ = ["DefaultSource"]
