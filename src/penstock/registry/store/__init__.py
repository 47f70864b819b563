"""What the registry knows, as a machine over `_schemas`: state, decide, apply, codec. Pure.

Schemas are parsed and compared outside; `decide` is handed what was found.
"""
