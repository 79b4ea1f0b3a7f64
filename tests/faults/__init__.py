"""What goes wrong around the server: kills, full disks, broken models, vanished clients, other processes."""
