"""Session store in PostgreSQL, which several servers can share.

Imported only if a database URL is set.
"""
