"""Metrics in Prometheus' text format: a table of all names, and what a process needs to serve them.

`rows` is the only place where a metric is named. Cores count in plain integers and lists; a process
reads them when it is scraped. No metric has a label whose value a client chooses freely.
"""
