"""The `mochi-server` command: serve, workers, banner, init, store copy."""
