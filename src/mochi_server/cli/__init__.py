"""The `mochi-server` command: server, workers, startup banner, `init` and `store copy`."""
