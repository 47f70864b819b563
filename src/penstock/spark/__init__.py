"""Pipelines on Spark: the log as a PySpark source and sink, and the pieces to build with.

The names below are what users call; each is loaded when it is first asked for, so that Spark's
workers load no more than they need.
"""
