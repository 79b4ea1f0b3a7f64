"""Several servers over one PostgreSQL: whatever a client asks about, any of them can be asked."""
