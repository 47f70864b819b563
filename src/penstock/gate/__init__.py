"""Contracts as files and as a registry has them: is a change safe, and what would applying it do.

A shelf is where contracts are kept: a folder (`folder`) or a registry (`registry_shelf`). The gate
(`checking`) takes what a shelf holds and judges a proposal; it reads and asks nothing by itself.
"""
