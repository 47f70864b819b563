"""SQL over the records of topics, through DuckDB: a topic is a table, a record is a row.

DuckDB is loaded by the first query, in a process of its own. It reaches no file and no network, its
settings are locked, and memory, rows, bytes and time are limited. Needs the extra `sql`.
"""
