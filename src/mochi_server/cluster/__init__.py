"""Several servers over one database: requests about a turn go to the process that runs it."""
