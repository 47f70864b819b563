"""Filters of records: a small language of comparisons, parsed and compared here. Pure.

    key == "berlin" and (value.cents >= 1000 or headers["source"] == "shop")

Nothing is evaluated as code. A field that a record does not have is null.
"""
