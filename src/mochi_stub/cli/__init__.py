"""Command line of mochi-stub."""
