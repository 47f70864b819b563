"""Loads every kernel when it is imported: by the server that forks the lab's processes, so that no
process has to load or compile one.
"""

from penstock.columns.warm import warm

for _kernel in warm():
    pass
