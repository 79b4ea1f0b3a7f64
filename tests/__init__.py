"""Tests of mochi-server and mochi-stub."""
