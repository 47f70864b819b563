"""The composition root: turns settings into processes. Only this package reads the environment and
the files that users write.
"""
