"""Freezes the objects of a fork server on import. It is the last module that the fork server imports.

A garbage collection writes to each object that it visits, except to frozen ones. In a forked
process, each write copies memory that it would share with the fork server.
"""

import gc

gc.collect()
gc.freeze()
