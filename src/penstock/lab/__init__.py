"""Experiments that test claims about contracts: one command, one seed, one result page each.

An experiment runs against a real broker and registry, checks its claims, and writes what it
measured as JSON and as a Markdown page with plots. Nothing in the other packages imports this one.
"""
