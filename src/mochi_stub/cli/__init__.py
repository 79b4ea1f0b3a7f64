"""The `mochi-stub` command."""
