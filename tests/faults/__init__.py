"""Failures around the server: kills, full disks, broken models, disconnects and other processes."""
