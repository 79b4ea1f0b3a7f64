"""Freezes the objects of this process on import, after all other modules of a fork server.

A garbage collection in a forked process writes to each object that it visits. Without the frozen
ones, the first collection does not copy the memory of the fork server.
"""

import gc

gc.collect()
gc.freeze()
