"""What happens to closed segments, off the data path: retention, compaction.

scheduler   the broker's side: when, which partition, and the swap. Reaches no numba
choose      which partition is dirty enough, and how far it may be cleaned: pure
grouping    which segments become one: pure
work        what is asked of the worker and what it answers
worker      a process of its own at the lowest priority; writes `.cleaned` files and nothing else
clean       one job: map the keys, filter the batches, write the cleaned segments
"""
