"""The contract gate: is a schema change safe, and what would applying a folder of contracts change.

`check.check` compares a proposed schema with the contracts of a store: a folder (`folder`), a
registry (`registry_contracts`), or given versions. Nothing here changes anything, except
`change_plan.Planner.apply`.
"""
