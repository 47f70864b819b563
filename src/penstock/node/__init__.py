"""The composition root: settings become processes. The only reader of the environment and of files
that people write.
"""
