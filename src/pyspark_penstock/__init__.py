"""What Spark imports by itself (it looks for `pyspark_*`): instant, and it never raises.

The data source lives in `penstock.spark`; until that room exists there is no `DefaultSource` here.
"""
